// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// capabilities are those of a node: all that Docker 20.10 knows by name but
// SYS_RESOURCE, which processes on a machine of continuous integration may lack.
const capabilities = "AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID " +
	"IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST " +
	"NET_RAW SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE " +
	"SYS_RAWIO SYS_TIME SYS_TTY_CONFIG WAKE_ALARM"

// Node is a container with containerd and the kubelet.
type Node struct {
	// Name is its name in Kubernetes.
	Name string
	// IP is its address in the network of nodes.
	IP netip.Addr
	// PodCIDR is where its pods' addresses come from.
	PodCIDR string

	cluster   *Cluster
	container string
	pid       int // of the first process, on this machine
}

// startNode returns when the container runs.
func (c *Cluster) startNode(ctx context.Context, name string, index int) (*Node, error) {
	a := c.gateway.As4()
	a[3] = byte(11 + index)
	n := &Node{Name: name, IP: netip.AddrFrom4(a), cluster: c}
	if err := n.writeConfig(); err != nil {
		return nil, err
	}
	args := []string{
		"run", "--detach", "--init", "--name", c.network + "-" + name, "--hostname", name,
		"--label", label + "=" + ownPID(),
		"--network", c.network, "--ip", n.IP.String(),
		"--env", "NODE=" + name, "--env", "IP=" + n.IP.String(), "--env", "API=" + c.api.String(),
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined",
		"--cgroupns", "private", "--device-cgroup-rule", "a *:* rwm",
		"--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec",
		// overlayfs does not lie on overlayfs.
		"--volume", "/var/lib/containerd", "--volume", "/var/lib/kubelet",
		"--volume", c.Components + ":/node/components:ro",
		"--volume", c.path("node") + ":/node/config:ro",
		"--volume", filepath.Join(c.NodeFiles, "entry.sh") + ":/node/entry.sh:ro",
	}
	for _, image := range c.Images {
		args = append(args, "--volume", image+":/node/images/"+filepath.Base(image)+":ro")
	}
	for capability := range strings.FieldsSeq(capabilities) {
		args = append(args, "--cap-add", capability)
	}
	var err error
	if n.container, err = docker(ctx, append(args, c.NodeImage, "bash", "/node/entry.sh")...); err != nil {
		return nil, err
	}
	pid, err := docker(ctx, "inspect", "--format", "{{.State.Pid}}", n.container)
	if err != nil {
		return nil, err
	}
	n.pid, err = strconv.Atoi(pid)
	return n, err
}

// join waits for the node's network and puts the primary CNI's conflist there.
func (n *Node) join(ctx context.Context) error {
	err := Eventually(ctx, time.Minute, func(ctx context.Context) error {
		if running, err := docker(ctx, "inspect", "--format", "{{.State.Running}}", n.container); running != "true" {
			return errors.Join(fmt.Errorf("the container has ended (%s)", n.cluster.path(n.Name)), err)
		}
		var err error
		n.PodCIDR, err = n.cluster.Kubectl(ctx, "", "get", "node", n.Name, "-o", "jsonpath={.spec.podCIDR}")
		if err == nil && n.PodCIDR == "" {
			err = errors.New("it has no pod CIDR")
		}
		return err
	})
	if err != nil {
		return err
	}
	return n.WriteFile(ctx, Conflist, n.Conflist())
}

// Conflist is where the primary CNI's network is.
const Conflist = "/etc/cni/net.d/10-lab.conflist"

// Conflist is the primary CNI's network: a veth pair and a route for each pod.
func (n *Node) Conflist() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "lab",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
`, n.PodCIDR)
}

// connect gives every node routes to the pods of the others.
func (c *Cluster) connect(ctx context.Context) error {
	for _, from := range c.Members {
		for _, to := range c.Members {
			if from == to {
				continue
			}
			if _, err := from.Exec(ctx, "ip", "route", "add", to.PodCIDR, "via", to.IP.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Exec runs a program on the node and returns what it wrote to stdout.
func (n *Node) Exec(ctx context.Context, args ...string) (string, error) {
	return docker(ctx, append([]string{"exec", n.container}, args...)...)
}

// WriteFile makes a file on the node as CNIs should: under another name first.
func (n *Node) WriteFile(ctx context.Context, path, content string) error {
	const script = `cat >"$1.part" && mv "$1.part" "$1"`
	_, err := command(ctx, nil, content, "docker", "exec", "-i", n.container, "bash", "-c", script, "bash", path)
	return err
}

// Path is a path of the node, on this machine.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.pid), "root", path)
}

// saveLogs keeps the logs of the node in Dir, before the container goes.
func (n *Node) saveLogs(ctx context.Context) error {
	err := os.MkdirAll(n.cluster.path("logs"), 0o755)
	if err != nil {
		return err
	}
	_, err = docker(ctx, "cp", n.container+":/var/log", n.cluster.path("logs", n.Name))
	return err
}
