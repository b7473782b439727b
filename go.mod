module github.com/podweir/podweir

go 1.26.0
