// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// A chain that is found is there, whatever else cannot be read; that none is there is known only if all were read.
func TestIngressBesideWhatCannotBeRead(t *testing.T) {
	hook := nl.NewRtAttr(unix.NLA_F_NESTED|unix.NFTA_CHAIN_HOOK, nil)
	hook.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, []byte{0, 0, 0, unix.NF_NETDEV_INGRESS})
	hook.AddRtAttr(unix.NFTA_HOOK_DEV, nl.ZeroTerminated("eth0"))
	chain := append([]byte{unix.NFPROTO_NETDEV, 0, 0, 0}, hook.Serialize()...)
	other := append([]byte{unix.NFPROTO_INET, 0, 0, 0}, hook.Serialize()...)
	for name, c := range map[string]struct {
		messages [][]byte
		found    bool
		unread   bool
	}{
		"none":               {[][]byte{other}, false, false},
		"one, then broken":   {[][]byte{other, chain, chain[:10]}, true, false},
		"broken, then one":   {[][]byte{{1}, chain}, true, false},
		"none, then broken":  {[][]byte{other, chain[:10]}, false, true},
		"broken, then other": {[][]byte{{1}, other}, false, true},
	} {
		found, err := ingressOn("eth0", func(do chainReader) error { return eachMessage(c.messages, do) })
		must.Be(t, name+": found", c.found, found)
		must.Be(t, name+": unread", c.unread, err != nil)
	}
	var seen []byte
	err := eachMessage([][]byte{{1}, chain}, func(family byte, _ []byte) error { seen = append(seen, family); return nil })
	if err == nil || !slices.Equal(seen, []byte{unix.NFPROTO_NETDEV}) {
		t.Errorf("families %v (%v), want that of the message that can be read, and an error", seen, err)
	}
}
