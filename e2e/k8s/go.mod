module github.com/podweir/podweir/e2e/k8s

go 1.26.0

require (
	github.com/podweir/podweir v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.49.0
)

require (
	github.com/cilium/ebpf v0.22.0 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
)

replace github.com/podweir/podweir => ../..
