// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cri

import (
	"testing"
)

// FuzzInfo: nothing that a runtime says of a sandbox breaks the decoder, and a sandbox
// without an error has a namespace.
func FuzzInfo(f *testing.F) {
	for _, seed := range []string{
		`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/a"}]}},"cniResult":{"Interfaces":{"eth0":{"Sandbox":"/run/netns/a"},"lo":{"Sandbox":"/run/netns/a"},"veth":{}}}}`,
		`{"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}`, `{}`, `null`, `[]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := parseInfo(map[string]string{"info": raw})
		if err == nil && s.NetNSPath == "" {
			t.Error("no namespace and no error")
		}
		for _, name := range s.Interfaces {
			if name == "lo" {
				t.Error("the loopback is an interface")
			}
		}
	})
}

// FuzzNetwork: nothing that a runtime says of its CNI configuration breaks the decoder,
// and a network has a directory of conflists.
func FuzzNetwork(f *testing.F) {
	for _, seed := range []string{
		`{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d","PluginMaxConfNum":1,"Prefix":"eth","Networks":[{"Config":{"Name":"a"}}]}`,
		`{"PluginConfDir":""}`, `{"PluginMaxConfNum":1e3,"pluginconfdir":"a"}`, `null`, `[]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		n, err := parseNetwork(map[string]string{"cniconfig": raw})
		if n != nil && (err != nil || n.ConfDir == "") {
			t.Errorf("network %+v with error %v", n, err)
		}
	})
}
