// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
)

// waiting waits for a chain on eth0 in the background.
func waiting(ctx context.Context, ns *testutil.NetNS) <-chan error {
	done := make(chan error, 1)
	go func() { done <- hostif.WaitNetfilterIngress(ctx, ns.NetNS, "eth0") }()
	return done
}

// answered is what came of the wait, within the time that a loaded machine may
// take.
func answered(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
		return nil
	}
}

func stillWaits(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s: WaitNetfilterIngress = %v, want that it waits", what, err)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestPrivilegedWaitNetfilterIngress(t *testing.T) {
	testutil.RequireRoot(t)
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: ns, Name: "eth1"})
	done := waiting(t.Context(), ns)
	stillWaits(t, done, "nothing")
	ns.Run(t, "nft", "add table netdev a\nadd chain netdev a b { type filter hook ingress device eth1 priority 0; }\n"+
		"add table inet i\nadd chain inet i j { type filter hook input priority 0; }")
	stillWaits(t, done, "chains elsewhere")
	// More changes than the socket holds, and the one that counts among them.
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "add chain inet i c%d\nadd rule inet i c%d counter comment \"%s\"\n", i, i, strings.Repeat("x", 100))
	}
	many.WriteString("add chain netdev a c { type filter hook ingress device eth0 priority 0; }\n")
	cmd := ns.Command(t, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(many.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	if err := answered(t, done); err != nil {
		t.Errorf("WaitNetfilterIngress = %v, want nil", err)
	}
	if err := answered(t, waiting(t.Context(), ns)); err != nil {
		t.Errorf("WaitNetfilterIngress with the chain there = %v, want nil", err)
	}
	ns.Run(t, "nft", "delete chain netdev a c")
	ctx, cancel := context.WithCancel(t.Context())
	done = waiting(ctx, ns)
	stillWaits(t, done, "the chain is gone")
	cancel()
	if err := answered(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitNetfilterIngress cancelled = %v, want the context's error", err)
	}
	if err := answered(t, waiting(ctx, ns)); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitNetfilterIngress with an ended context = %v, want its error", err)
	}
}
