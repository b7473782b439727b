// Stands in for both modules of Tencent's that a backend of flannel imports. Go asks the
// go.mod of a replacement in a directory for no name, but wants each replacement written
// differently: hence ../flannel/standins and ./standins in flannel's go.mod.
module github.com/podweir/podweir/e2e/flannel/standins

go 1.26.0
