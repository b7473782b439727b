// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"fmt"

	"github.com/podweir/podweir/plugin/netconf"
)

// The rates of the runtime come from kubernetes.io/ingress-bandwidth and
// kubernetes.io/egress-bandwidth.
func ExampleParse() {
	c, err := netconf.Parse(netconf.Add, []byte(`{
		"cniVersion": "1.0.0", "name": "n", "type": "podweir-cni", "policy": "strict",
		"runtimeConfig": {"bandwidth": {"ingressRate": 20000000, "egressRate": 10000000}},
		"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}]}
	}`))
	fmt.Println(c.Shaping.Ingress.Rate, c.Shaping.Egress.Rate, c.Interfaces[0].Name, err)
	// Output: 20 Mbit/s 10 Mbit/s eth0 <nil>
}

// A value that is not accepted is named, with what is accepted.
func ExampleParseStrict() {
	_, err := netconf.ParseStrict(netconf.Add, []byte(`{
		"cniVersion": "1.0.0", "name": "n", "type": "podweir-cni", "policy": "fair", "egressRate": "10M",
		"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod"}]}
	}`))
	fmt.Println(err)
	// Output: policy: "fair" is not accepted, want one of strict, elephants, flat
}
