// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package far

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"net/rpc"
	"net/rpc/jsonrpc"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/lab"
)

// dialPipe connects to a peer without a lab.
func dialPipe(t *testing.T) *TwoMachines {
	t.Helper()
	server := rpc.NewServer()
	if err := server.RegisterName(peerService, newPeer(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	go server.ServeCodec(jsonrpc.NewServerCodec(there))
	two := &TwoMachines{far: jsonrpc.NewClient(here)}
	t.Cleanup(func() { _ = two.far.Close() })
	return two
}

// net/rpc drops methods whose types do not fit without a word.
func TestEveryMethodOfThePeerCanBeCalled(t *testing.T) {
	two := dialPipe(t)
	for m := range reflect.TypeFor[*Peer]().Methods() {
		_, err := call[json.RawMessage](t.Context(), two, m.Name, []int{})
		if err != nil && strings.Contains(err.Error(), "can't find method") {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestPeerRefusesWhatItDoesNotKnow(t *testing.T) {
	two := dialPipe(t)
	for method, args := range map[string]any{
		"AskHTTP": AskHTTPArgs{From: "nobody"}, "SendBulk": BulkArgs{Host: "nobody"}, "Meter": "nobody",
		"Wait": 3, "StopBulk": 3, "WaitBulk": 3, "CloseMeter": 3, "ReadMeter": Span{Run: 3},
	} {
		if _, err := call[json.RawMessage](t.Context(), two, method, args); err == nil {
			t.Errorf("%s(%v) = nil error, want an error", method, args)
		}
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	here, _ := net.Pipe() // nobody reads
	two := &TwoMachines{far: jsonrpc.NewClient(here)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	// A write into the pipe blocks: the caller is not to wait for it for ever.
	time.AfterFunc(20*time.Millisecond, func() { _ = here.Close() })
	if _, err := call[time.Duration](ctx, two, "Now", struct{}{}); err == nil {
		t.Error("call of a peer that does not answer = nil error, want an error")
	}
}

// Both ends have the same clock here.
func TestClocksOfOneMachineAgree(t *testing.T) {
	two := dialPipe(t)
	if err := two.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if off := max(two.offset, -two.offset); off > two.uncertain {
		t.Errorf("offset = %v, want at most the time of a call, %v", off, two.uncertain)
	}
}

// A load crosses the wire without its ends and otherwise whole.
func TestLoadSurvivesTheCall(t *testing.T) {
	want := AskHTTPArgs{
		From: "client", Server: netip.MustParseAddrPort("198.18.1.2:80"),
		Load: lab.HTTPLoad{ResponseBytes: 6000, PerSecond: 20, Duration: 12 * time.Second, Timeout: time.Second},
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got AskHTTPArgs
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}
