// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"testing"
)

func TestDelegateIsABridgeInTheNodesSubnet(t *testing.T) {
	env := map[string]string{"FLANNEL_MTU": "1450", "FLANNEL_IPMASQ": "true", "FLANNEL_SUBNET": "10.77.1.1/24", "FLANNEL_NETWORK": "10.77.0.0/16"}
	out, err := delegate([]byte(`{"name": "cbr0", "cniVersion": "1.0.0", "type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}`), env)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name, Type, Bridge                               string
		MTU                                              int
		HairpinMode, IsDefaultGateway, IsGateway, IPMasq bool
		IPAM                                             struct{ Ranges [][]struct{ Subnet string } }
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "cbr0" || got.Type != "bridge" || got.Bridge != "cni0" || got.MTU != 1450 || !got.HairpinMode ||
		!got.IsDefaultGateway || !got.IsGateway || got.IPMasq || got.IPAM.Ranges[0][0].Subnet != "10.77.1.0/24" {
		t.Errorf("delegate() = %s", out)
	}
	delete(env, "FLANNEL_MTU")
	if _, err := delegate([]byte(`{}`), env); err == nil {
		t.Error("a file without an MTU is accepted")
	}
}
