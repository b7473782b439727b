// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/podweir/podweir/e2e/step"
)

// cniVersion is the usual version of the lab's conflists: the newest that the
// reference plugins v1.9.1 speak (they say 1.1.0).
const cniVersion = "1.1.0"

// RuntimeBurst is the burst, in bits, that containerd hands down with every
// bandwidth annotation: no annotation asks for a burst, and it fills in
// math.MaxUint32.
const RuntimeBurst uint64 = 4294967295

// Entry is one plugin of a conflist.
type Entry map[string]any

// PodweirEntry is the conflist entry of podweir with further keys set.
func PodweirEntry(keys map[string]any) Entry {
	e := Entry{
		"type": "podweir-cni",
		"capabilities": map[string]bool{
			"bandwidth": true, annotationsCapability: true,
		},
	}
	maps.Copy(e, keys)
	return e
}

// BandwidthEntry is the conflist entry of the reference bandwidth plugin, as
// its documentation writes it.
func BandwidthEntry() Entry {
	return Entry{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}}
}

// annotationsCapability is what containerd looks for before it hands down pod
// annotations.
const annotationsCapability = "io.kubernetes.cri.pod-annotations"

// Bandwidth is runtimeConfig.bandwidth as the runtime makes it from the pod's
// annotations: rates and bursts in bits. Zero means absent.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// RuntimeBandwidth is what containerd hands down for a cap, in bits per second,
// in both directions.
func RuntimeBandwidth(bitsPerSec uint64) *Bandwidth {
	return &Bandwidth{
		IngressRate: bitsPerSec, IngressBurst: RuntimeBurst,
		EgressRate: bitsPerSec, EgressBurst: RuntimeBurst,
	}
}

// Network is a conflist on disk: ptp with host-local, then the plugins under
// test.
type Network struct {
	// Name is the network's name, unique on the machine.
	Name string
	// Conflist is the path of the file.
	Conflist string

	lab  *Lab
	list *libcni.NetworkConfigList
	cni  *libcni.CNIConfig
}

// Network writes a conflist with ptp and host-local, followed by chained
// plugins, and reads it back as a runtime does. Pods of the network get one
// IPv4 and one IPv6 address.
func (l *Lab) Network(name string, chained ...Entry) (_ *Network, err error) {
	defer step.End(&err)
	sub := step.Get(l.nextSubnet())
	full := l.name + "-" + name
	plugins := append([]Entry{l.ptpEntry(sub)}, chained...)
	raw, err := json.MarshalIndent(map[string]any{
		"cniVersion": cniVersion, "name": full, "plugins": plugins,
	}, "", "  ")
	step.OK(err)
	dir := filepath.Join(l.dir, "net.d")
	step.OK(os.MkdirAll(dir, 0o700))
	file := filepath.Join(dir, name+".conflist")
	step.OK(os.WriteFile(file, raw, 0o600))
	list, err := libcni.NetworkConfFromFile(file)
	step.Say(err, "conflist %s", file)
	return &Network{
		Name: full, Conflist: file, lab: l, list: list,
		cni: libcni.NewCNIConfigWithCacheDir(l.opts.PluginDirs, filepath.Join(l.dir, "cache"), newNodeExec(l.node, l.opts.PluginLog)),
	}, nil
}

func (l *Lab) ptpEntry(sub subnet) Entry {
	return Entry{
		"type": "ptp",
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": filepath.Join(l.dir, "ipam"),
			"ranges": [][]map[string]string{
				{{"subnet": sub.v4().String()}}, {{"subnet": sub.v6().String()}},
			},
			"routes": []map[string]string{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
		},
	}
}

// PodOptions are what a kubelet would know of a pod.
type PodOptions struct {
	// Bandwidth is runtimeConfig.bandwidth; nil means no annotation.
	Bandwidth *Bandwidth
	// Namespace, if not empty, is told to plugins with the pod's name, as a
	// runtime of Kubernetes does (CNI_ARGS).
	Namespace string
}

// Pod is a namespace that CNI ADD has connected.
type Pod struct {
	Host
	// ContainerID is CNI_CONTAINERID.
	ContainerID string
	// HostIfName is the host-side device, in the node's namespace.
	HostIfName string
	// Result is the result of the ADD.
	Result *current.Result

	network *Network
	rt      *libcni.RuntimeConf
	// namespace and attachment are what ends with the pod.
	namespace, attachment *closer
}

// Pod makes a namespace and runs CNI ADD of the whole chain for it. The pod
// goes with the lab or by [Pod.Delete]. If ADD does not succeed, DEL has been
// called, as a runtime would.
func (n *Network) Pod(ctx context.Context, opts PodOptions) (*Pod, error) {
	l := n.lab
	l.mu.Lock()
	l.podCount++
	number := l.podCount
	l.mu.Unlock()
	name := fmt.Sprintf("pod%d", number)
	p := &Pod{
		Host:        Host{Name: name, IfName: podIfName},
		ContainerID: fmt.Sprintf("%s-%d", l.name, number),
		network:     n,
	}
	if err := p.prepare(opts); err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	if err := p.add(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: add: %w", name, err),
			p.Delete(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// prepare makes the namespace, and what a runtime tells plugins.
func (p *Pod) prepare(opts PodOptions) error {
	l := p.network.lab
	ns, namespace, err := l.newNamespace("-" + p.Name)
	if err != nil {
		return err
	}
	p.Netns, p.namespace = ns, namespace
	p.rt = &libcni.RuntimeConf{
		ContainerID: p.ContainerID, NetNS: ns.Path(), IfName: p.IfName,
		CapabilityArgs: map[string]any{},
	}
	if opts.Bandwidth != nil {
		p.rt.CapabilityArgs["bandwidth"] = opts.Bandwidth
	}
	if opts.Namespace != "" {
		p.rt.Args = [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", opts.Namespace}, {"K8S_POD_NAME", p.Name},
		}
	}
	return nil
}

func (p *Pod) add(ctx context.Context) (err error) {
	defer step.End(&err)
	// Registered first: a half-done ADD needs its DEL, too.
	p.attachment = p.network.lab.onClose("pod "+p.Name, p.Del)
	result := step.Get(p.network.cni.AddNetworkList(ctx, p.network.list, p.rt))
	p.Result = step.Get(current.NewResultFromResult(result))
	for _, ip := range p.Result.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		switch addr = addr.Unmap(); {
		case !ok:
			return fmt.Errorf("address %s in the result is no address", ip.Address.IP)
		case addr.Is4():
			p.V4 = addr
		default:
			p.V6 = addr
		}
	}
	for _, iface := range p.Result.Interfaces {
		if iface.Sandbox == "" {
			p.HostIfName = iface.Name
			break
		}
	}
	return nil
}

// Del runs CNI DEL and leaves the namespace; it may be repeated.
func (p *Pod) Del(ctx context.Context) error {
	return p.network.cni.DelNetworkList(ctx, p.network.list, p.rt)
}

// Delete runs CNI DEL and removes the namespace. Processes in the pod must
// have ended, otherwise the namespace lives on without a name until they do.
func (p *Pod) Delete(ctx context.Context) error {
	l := p.network.lab
	return errors.Join(l.closeNow(ctx, p.attachment), l.closeNow(ctx, p.namespace))
}
