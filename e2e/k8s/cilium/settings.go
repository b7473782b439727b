// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"cmp"
	"fmt"
	"net/netip"
)

// Settings are the values of Cilium's chart that a row is about.
type Settings struct {
	// Exclusive is cni.exclusive, Cilium's default: its agent renames every
	// other conflist.
	Exclusive bool
	// KubeProxyReplacement is the value of that name.
	KubeProxyReplacement bool
	// BPFMasquerade is bpf.masquerade. With KubeProxyReplacement it gives BPF
	// host routing.
	BPFMasquerade bool
	// EndpointRoutes is endpointRoutes.enabled: policy for what enters a pod is on its
	// device.
	EndpointRoutes bool
	// BandwidthManager is bandwidthManager.enabled.
	BandwidthManager bool
	// DatapathMode is bpf.datapathMode; empty is Cilium's default, veth.
	DatapathMode string
	// WithoutTCX turns bpf.enableTCX off.
	WithoutTCX bool
	// ConfigMap is cni.configMap, the name of one in the namespace of the release
	// whose key cni-config is the chain that Cilium writes; empty is Cilium's own.
	ConfigMap string
}

// Settings of the three ways in which Cilium takes packets to pods.
var (
	// Legacy has no services of Cilium's own, and legacy host routing.
	Legacy = Settings{Exclusive: true}
	// KubeProxyReplacement has them, and legacy host routing because of
	// masquerading by iptables.
	KubeProxyReplacement = Settings{Exclusive: true, KubeProxyReplacement: true}
	// BPF redirects packets past the host side of pods' devices.
	BPF = Settings{Exclusive: true, KubeProxyReplacement: true, BPFMasquerade: true}
)

// HostRouting is what Cilium's agent says of itself with these settings.
func (s Settings) HostRouting() string {
	if s.KubeProxyReplacement && s.BPFMasquerade {
		return "BPF"
	}
	return "Legacy"
}

// values are what the chart is told. Parts that need images of their own are
// off, and so is what writes to a systemd that the nodes do not have. Nodes have
// all capabilities but SYS_RESOURCE.
func (s Settings) values(image string, api netip.AddrPort, podCIDR string) string {
	return fmt.Sprintf(`image: {override: %[1]q, pullPolicy: Never}
operator: {replicas: 1, image: {override: %[1]q, pullPolicy: Never}}
k8sServiceHost: %[2]q
k8sServicePort: "%[3]d"
k8s: {requireIPv4PodCIDR: true}
ipam: {mode: kubernetes}
routingMode: native
autoDirectNodeRoutes: true
ipv4NativeRoutingCIDR: %[4]q
kubeProxyReplacement: "%[5]t"
bpf: {masquerade: %[6]t, preallocateMaps: false, datapathMode: %[9]q, enableTCX: %[12]t}
endpointRoutes: {enabled: %[10]t}
bandwidthManager: {enabled: %[11]t}
cni: {exclusive: %[7]t, configMap: %[8]q}
hubble: {enabled: false}
envoy: {enabled: false}
l7Proxy: false
healthChecking: false
endpointHealthChecking: {enabled: false}
sysctlfix: {enabled: false}
securityContext:
  capabilities:
    ciliumAgent: [CHOWN, KILL, NET_ADMIN, NET_RAW, IPC_LOCK, SYS_MODULE, SYS_ADMIN, DAC_OVERRIDE, FOWNER, SETGID, SETUID]
    cleanCiliumState: [NET_ADMIN, SYS_MODULE, SYS_ADMIN]
`, image, api.Addr(), api.Port(), podCIDR, s.KubeProxyReplacement, s.BPFMasquerade, s.Exclusive, s.ConfigMap,
		cmp.Or(s.DatapathMode, "veth"), s.EndpointRoutes, s.BandwidthManager, !s.WithoutTCX)
}
