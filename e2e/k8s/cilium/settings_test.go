// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

func TestValues(t *testing.T) {
	text := BPF.values("localhost/c:1", netip.MustParseAddrPort("172.30.1.1:6443"), "10.77.0.0/16")
	var got struct {
		Image                 struct{ Override string }
		Operator              struct{ Image struct{ Override string } }
		K8sServiceHost        string `yaml:"k8sServiceHost"`
		K8sServicePort        string `yaml:"k8sServicePort"`
		IPv4NativeRoutingCIDR string `yaml:"ipv4NativeRoutingCIDR"`
		KubeProxyReplacement  string `yaml:"kubeProxyReplacement"`
		BPF                   struct{ Masquerade bool }
		CNI                   struct{ Exclusive bool }
	}
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := got
	want.Image.Override, want.Operator.Image.Override = "localhost/c:1", "localhost/c:1"
	want.K8sServiceHost, want.K8sServicePort = "172.30.1.1", "6443"
	want.IPv4NativeRoutingCIDR, want.KubeProxyReplacement = "10.77.0.0/16", "true"
	want.BPF.Masquerade, want.CNI.Exclusive = true, true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestHostRouting(t *testing.T) {
	for want, settings := range map[string][]Settings{
		"Legacy": {{}, Legacy, KubeProxyReplacement, {BPFMasquerade: true}},
		"BPF":    {BPF, {KubeProxyReplacement: true, BPFMasquerade: true}},
	} {
		for _, s := range settings {
			if got := s.HostRouting(); got != want {
				t.Errorf("%+v: host routing %s, want %s", s, got, want)
			}
		}
	}
}

func TestVersionIsTheTag(t *testing.T) {
	if got := (Made{Image: "localhost/cilium/cilium:1.15.19"}).Version(); got != "1.15.19" {
		t.Errorf("Version %q, want 1.15.19", got)
	}
}
