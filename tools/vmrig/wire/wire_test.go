// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wire

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/vmrig/vm"
)

// Both emulators must name the same sockets, one of them listening, and each
// device needs an address of its own.
func TestDevicesMeet(t *testing.T) {
	leader := strings.Join(devices(Leader, "/d"), " ")
	peer := strings.Join(devices(Peer, "/d"), " ")
	for _, socket := range []string{"addr.path=/d/wire,", "addr.path=/d/control,"} {
		if !strings.Contains(leader, socket+"server=on") || !strings.Contains(peer, socket+"server=off") {
			t.Errorf("%s is not on both sides, once as server:\n%s\n%s", socket, leader, peer)
		}
	}
	seen := map[string]bool{}
	for _, args := range []string{leader, peer} {
		for field := range strings.FieldsSeq(strings.ReplaceAll(args, ",", " ")) {
			if strings.HasPrefix(field, "mac=") {
				if seen[field] {
					t.Errorf("%s is given twice", field)
				}
				seen[field] = true
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d devices have an address, want 4", len(seen))
	}
}

func TestMachine(t *testing.T) {
	o := Options{
		Kernels: [2]string{"a", "b"}, Machine: vm.Options{MemMiB: 7},
		Command: []string{"x", "y z"}, PeerCommand: "p; q",
	}
	for side, want := range map[Side][]string{
		Leader: {"198.19.0.1/24", "198.19.1.1/24", "x", "y z"},
		Peer:   {"198.19.0.2/24", "198.19.1.2/24", "sh", "-c", "p; q"},
	} {
		m := o.machine(side, "/d")
		if m.Kernel != o.Kernels[side] || m.MemMiB != 7 {
			t.Errorf("side %d has kernel %q and %d MiB, want %q and 7", side, m.Kernel, m.MemMiB, o.Kernels[side])
		}
		if diff := cmp.Diff(want, m.Args[4:]); diff != "" {
			t.Errorf("side %d runs (-want +got):\n%s", side, diff)
		}
	}
}

func TestConclude(t *testing.T) {
	o := &Options{Kernels: [2]string{"6.1", "6.12"}}
	hang := &vm.HangError{Kernel: "6.12", Reason: "killed"}
	for name, tc := range map[string]struct {
		first, second end
		status        int
		want          []error
	}{
		"the command ends, the peer is killed": {
			end{Leader, vm.Result{Status: 7}, nil}, end{Peer, vm.Result{}, context.Canceled}, 7, nil,
		},
		"the peer ends first": {
			end{Peer, vm.Result{Status: 0}, nil}, end{Leader, vm.Result{}, context.Canceled}, 0, []error{ErrPeerEnded},
		},
		"interrupted": {
			end{Leader, vm.Result{}, context.Canceled}, end{Peer, vm.Result{}, context.Canceled}, 0, []error{context.Canceled},
		},
		"both hang": {
			end{Leader, vm.Result{}, hang}, end{Peer, vm.Result{}, errors.ErrUnsupported}, 0, []error{hang, errors.ErrUnsupported},
		},
	} {
		r, err := o.conclude(tc.first, tc.second)
		if r.Status != tc.status || (err == nil) != (len(tc.want) == 0) {
			t.Errorf("%s: conclude() = %d, %v; want %d, %v", name, r.Status, err, tc.status, tc.want)
		}
		for _, want := range tc.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: conclude() error = %v, want it to hold %v", name, err, want)
			}
		}
	}
	r, _ := o.conclude(end{Leader, vm.Result{Complaints: []string{"BUG: x"}}, nil}, end{Peer, vm.Result{Complaints: []string{"Oops"}}, nil})
	if diff := cmp.Diff([]string{"6.1: BUG: x", "6.12: Oops"}, r.Complaints); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}
}

// What is the leader's alone must not be the peer's: both would have one socket.
func TestLeaderDevicesAreTheLeadersAlone(t *testing.T) {
	o := Options{LeaderDevices: []string{"-device", "port"}}
	for side, want := range map[Side]bool{Leader: true, Peer: false} {
		m := o.machine(side, "/dir")
		if got := slices.Contains(m.Devices, "port"); got != want {
			t.Errorf("side %d has the device = %v, want %v: %q", side, got, want, m.Devices)
		}
		if !slices.ContainsFunc(m.Devices, func(arg string) bool { return strings.Contains(arg, "addr.path=/dir/wire") }) {
			t.Errorf("side %d has no wire: %q", side, m.Devices)
		}
	}
}
