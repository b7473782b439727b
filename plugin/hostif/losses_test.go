// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
)

// Rules that drop and count are losses, those that only count are not.
func TestPrivilegedLosses(t *testing.T) {
	testutil.RequireRoot(t)
	if _, err := exec.LookPath("nft"); err != nil {
		testutil.SkipFeature(t, "nft")
	}
	own := testutil.NewNetNS(t)
	own.Run(t, "ip", "link", "set", "lo", "up")
	own.Run(t, "nft", "add table inet filter; add chain inet filter out { type filter hook output priority 0; }; "+
		"add rule inet filter out udp dport 8 counter accept; add rule inet filter out udp dport 9 counter drop; add rule inet filter out udp dport 10 counter reject")
	ns, err := hostif.OpenNetNS(own.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	h, err := hostif.NewHandle(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if got, err := hostif.Losses(ns, h); err != nil || len(got) != 0 {
		t.Errorf("Losses before any packet = %v, %v", got, err)
	}
	for _, port := range []string{"8", "9", "10"} {
		if err := own.Do(func() error {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", "127.0.0.1:"+port)
			if err == nil {
				_, _ = conn.Write(make([]byte, 10)) // what is dropped is an error to the sender
				err = conn.Close()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := hostif.Losses(ns, h)
	if err != nil || len(got) != 2 {
		t.Fatalf("Losses = %v, %v, want two rules", got, err)
	}
	for _, l := range got {
		if l.Packets != 1 || !strings.Contains(l.Where, "of chain out in table inet filter") {
			t.Errorf("%+v, want one packet lost by a rule of the chain out", l)
		}
	}
}
