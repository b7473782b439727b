// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"encoding/json"
	"testing"
)

func TestConflistHasTheChainBehindPtp(t *testing.T) {
	n := &Node{PodCIDR: "10.77.3.0/24"}
	for _, chained := range [][]string{nil, {"bandwidth"}, {"bandwidth", "other"}} {
		var list struct {
			Plugins []struct {
				Type         string
				Capabilities struct{ Bandwidth bool }
				IPAM         struct{ Ranges [][]struct{ Subnet string } }
			}
		}
		if err := json.Unmarshal([]byte(n.Conflist(chained...)), &list); err != nil {
			t.Fatalf("Conflist(%q): %v", chained, err)
		}
		if len(list.Plugins) != 1+len(chained) || list.Plugins[0].Type != "ptp" || list.Plugins[0].IPAM.Ranges[0][0].Subnet != n.PodCIDR {
			t.Fatalf("Conflist(%q) = %+v, want ptp with the node's addresses and the chain", chained, list)
		}
		for i, name := range chained {
			if p := list.Plugins[1+i]; p.Type != name || !p.Capabilities.Bandwidth {
				t.Errorf("Conflist(%q): plugin %d is %+v, want %s with the capability", chained, 1+i, p, name)
			}
		}
	}
}
