// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	dockernet "github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/podweir/podweir/e2e/step"
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
	container *testcontainers.DockerContainer
	pid       int // of the first process, on this machine
}

// startNode returns when the container runs.
func (c *Cluster) startNode(ctx context.Context, name string, index int) *Node {
	a := c.gateway.As4()
	a[3] = byte(11 + index)
	n := &Node{Name: name, IP: netip.AddrFrom4(a), cluster: c}
	step.OK(n.writeConfig())
	var err error
	n.container, err = testcontainers.Run(ctx, c.NodeImage,
		testcontainers.WithName("podweir-k8s-"+c.name+"-"+name),
		testcontainers.WithLabels(labels(c.name)),
		testcontainers.WithCmd("bash", "/node/entry.sh"),
		testcontainers.WithEnv(map[string]string{"NODE": name, "IP": n.IP.String(), "API": c.api.String()}),
		testcontainers.WithConfigModifier(func(config *container.Config) {
			config.Hostname = name
			// overlayfs does not lie on overlayfs.
			config.Volumes = map[string]struct{}{"/var/lib/containerd": {}, "/var/lib/kubelet": {}}
		}),
		testcontainers.WithHostConfigModifier(n.rights),
		network.WithNetwork(nil, c.network),
		testcontainers.WithEndpointSettingsModifier(func(settings map[string]*dockernet.EndpointSettings) {
			settings[c.network.Name].IPAMConfig = &dockernet.EndpointIPAMConfig{IPv4Address: n.IP}
		}),
	)
	step.OK(err)
	step.OK(n.readPID(ctx))
	return n
}

// readPID reads it again: a container that was restarted has another one.
func (n *Node) readPID(ctx context.Context) (err error) {
	defer step.End(&err)
	n.pid = step.Get(n.container.State(ctx)).Pid
	return nil
}

// Restart ends everything on the node at once, as a loss of power does, and
// starts it again. Files outside of /run and /tmp stay; network, mounts and pins
// are gone. It returns when the container runs, before the kubelet is ready.
func (n *Node) Restart(ctx context.Context) (err error) {
	defer step.End(&err)
	step.Get(command(ctx, nil, "", "docker", "restart", "--time", "0", n.container.GetContainerID()))
	return n.readPID(ctx)
}

// rights are what a kubelet and containerd need of the machine, and the files
// they get from it.
func (n *Node) rights(host *container.HostConfig) {
	init := true
	host.Init = &init
	host.CapAdd = strings.Fields(capabilities)
	host.SecurityOpt = []string{"seccomp=unconfined", "apparmor=unconfined"}
	host.MaskedPaths, host.ReadonlyPaths = []string{}, []string{}
	host.CgroupnsMode = container.CgroupnsModePrivate
	host.DeviceCgroupRules = []string{"a *:* rwm"}
	host.Tmpfs = map[string]string{"/run": "exec", "/tmp": "exec"}
	host.Binds = []string{
		n.cluster.Components + ":/node/components:ro",
		n.cluster.path("node") + ":/node/config:ro",
		filepath.Join(n.cluster.NodeFiles, "entry.sh") + ":/node/entry.sh:ro",
	}
	for _, image := range n.cluster.Images {
		host.Binds = append(host.Binds, image+":/node/images/"+filepath.Base(image)+":ro")
	}
}

// join waits for the node's network. The kubelet starts when all images are
// imported; Cilium's has 700 MB.
func (n *Node) join(ctx context.Context) error {
	return Eventually(ctx, 3*time.Minute, func(ctx context.Context) error {
		state, err := n.container.State(ctx)
		if err != nil || !state.Running {
			return errors.Join(fmt.Errorf("the container has ended (%s)", n.cluster.path(n.Name)), err)
		}
		n.PodCIDR, err = n.cluster.Kubectl(ctx, "", "get", "node", n.Name, "-o", "jsonpath={.spec.podCIDR}")
		if err == nil && n.PodCIDR == "" {
			err = errors.New("it has no pod CIDR")
		}
		return err
	})
}

// ConflistFile is where the primary CNI's network is.
const ConflistFile = "/etc/cni/net.d/10-lab.conflist"

// Plugin is one entry of a conflist.
type Plugin map[string]any

// Conflist is the network of these plugins.
func Conflist(plugins ...Plugin) string {
	text, err := json.MarshalIndent(map[string]any{"cniVersion": "1.0.0", "name": "lab", "plugins": plugins}, "", "  ")
	if err != nil {
		panic(err) // maps of texts
	}
	return string(text) + "\n"
}

// HostLocal gives the node's pods their addresses.
func (n *Node) HostLocal() Plugin {
	return Plugin{"type": "host-local", "ranges": [][]Plugin{{{"subnet": n.PodCIDR}}}, "routes": []Plugin{{"dst": "0.0.0.0/0"}}}
}

// Ptp gives each of them a veth pair and a route.
func (n *Node) Ptp() Plugin { return Plugin{"type": "ptp", "ipam": n.HostLocal()} }

// Connect gives every node routes to the pods of the others. A primary CNI that
// leaves this to the network needs it with [Options.NoCNI], too.
func (c *Cluster) Connect(ctx context.Context) error {
	for _, from := range c.Members {
		for _, to := range c.Members {
			if from == to {
				continue
			}
			if _, err := from.Exec(ctx, "ip", "route", "replace", to.PodCIDR, "via", to.IP.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteFile makes a file on the node as CNIs should: under another name first.
func (n *Node) WriteFile(path, content string) error {
	part := n.Path(path + ".part")
	if err := os.WriteFile(part, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(part, n.Path(path))
}

// PID of the node's first process, on this machine.
func (n *Node) PID() int { return n.pid }

// Path is a path of the node, on this machine.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.pid), "root", path)
}

// saveLogs keeps the logs of the node in Dir, before the container goes. Logs of
// pods may go while they are copied.
func (n *Node) saveLogs() error {
	if err := os.MkdirAll(n.cluster.path("logs"), 0o755); err != nil {
		return err
	}
	err := os.CopyFS(n.cluster.path("logs", n.Name), os.DirFS(n.Path("/var/log")))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Node is the node of a name.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.Members {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q", name)
}
