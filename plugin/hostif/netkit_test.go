// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"errors"
	"testing"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
)

// Both ends of a netkit pair are found. Its L3 mode has no addresses and no
// neighbours, but packets on it have an Ethernet header all the same, one of
// zeros: they are not to be read as bare IP.
func TestPrivilegedFindNetkitPair(t *testing.T) {
	testutil.RequireRoot(t)
	for name, l3 := range map[string]bool{"L2": false, "L3": true} {
		t.Run(name, func(t *testing.T) {
			host, pod, third := testutil.NewNetNS(t), testutil.NewNetNS(t), testutil.NewNetNS(t)
			podIf, hostIf := testutil.NetkitPair(t,
				testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: host, Name: "lxc1"}, l3)
			p, err := hostif.FindPair(pod.Handle, host.Handle, pod.NetNS, host.NetNS, "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if p.Pod.Index != podIf.Index || p.Host.Index != hostIf.Index || p.Host.Name != "lxc1" ||
				p.Pod.Kind != terms.DeviceNetkit || p.Host.Kind != terms.DeviceNetkit || p.Pod.L3Only || !p.Pod.Up || p.Pod.MTU != 1500 {
				t.Errorf("FindPair = %+v", p)
			}
			_, err = hostif.FindPair(pod.Handle, third.Handle, pod.NetNS, third.NetNS, "eth0")
			if !errors.Is(err, hostif.ErrNoPeer) {
				t.Errorf("FindPair with the host end elsewhere = %v, want ErrNoPeer", err)
			}
		})
	}
}
