// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil"
)

// TestPrivilegedUplinks: what the node reaches others by is told from its pods'
// devices, although all of them are veths whose other end is elsewhere.
func TestPrivilegedUplinks(t *testing.T) {
	testutil.RequireRoot(t)
	host, other := testutil.NewNetNS(t), testutil.NewNetNS(t)
	for name, cidrs := range map[string][]string{
		"address4": {"172.30.1.2/24"}, "address6": {"fd01::2/64"}, "route4": {"169.254.7.1/32"}, "route6": nil, "path1": nil, "path2": nil,
		// Pods as ptp, Calico and Cilium leave them.
		"gateway": {"10.22.0.1/32", "fd02::1/128"}, "linklocal": {"fe80::1/64"}, "bare": nil, "policyroute": nil,
	} {
		testutil.VethPair(t, testutil.End{NetNS: host, Name: name, CIDRs: cidrs}, testutil.End{NetNS: other, Name: name})
	}
	for _, route := range [][]string{
		{"-4", "default", "dev", "route4"},
		{"-6", "default", "via", "fe80::9", "dev", "route6"},
		{"-4", "default", "metric", "9", "nexthop", "dev", "path1", "nexthop", "dev", "path2"},
		{"-4", "10.22.0.9/32", "dev", "bare"},
		{"-4", "default", "dev", "policyroute", "table", "77"},
	} {
		host.Run(t, "ip", append([]string{route[0], "route", "add"}, route[1:]...)...)
	}
	got, err := host.Handle.Uplinks()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for index := range maps.Keys(got) {
		i, err := host.Handle.InterfaceByIndex(index)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, i.Name)
	}
	slices.Sort(names)
	want := []string{"address4", "address6", "path1", "path2", "route4", "route6"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("Uplinks (-want +got):\n%s", diff)
	}
}
