// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Only answers are kept: an error is tried again, and so is one that an earlier
// release left in the file.
func TestPrivilegedErrorsOfTheSelfTestAreNotKept(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "ifb")
	paths := engine.Paths{Run: t.TempDir()}
	fails := func() (string, error) { return "", unix.EPERM }
	if way, none, err := paths.Redirect(fails); err != nil || way != "" || !strings.Contains(none, unix.EPERM.Error()) {
		t.Errorf("Redirect() = %q, %q, %v, want the reason of the failure", way, none, err)
	}
	if way, none, err := paths.Redirect(func() (string, error) { return "mirred", nil }); err != nil || way != "mirred" || none != "" {
		t.Errorf("after a failure Redirect() = %q, %q, %v, want mirred", way, none, err)
	}
	if way, _, err := paths.Redirect(fails); err != nil || way != "mirred" {
		t.Errorf("after an answer Redirect() = %q, %v, want mirred, which is kept", way, err)
	}
	rewrite(t, paths, map[string]any{"redirect": "", "redirectError": "redirect self-test: open packet socket: operation not permitted"})
	if way, _, err := paths.Redirect(func() (string, error) { return "bpf", nil }); err != nil || way != "bpf" {
		t.Errorf("with a file of an earlier release Redirect() = %q, %v, want bpf", way, err)
	}
	// That packets get lost is an answer.
	rewrite(t, paths, map[string]any{"redirect": ""})
	if way, none, err := paths.Redirect(fails); err != nil || way != "" || !strings.Contains(none, "get lost") {
		t.Errorf("Redirect() = %q, %q, %v, want that packets get lost", way, none, err)
	}
}

// Of processes that try at the same time the one whose packets came through is right.
func TestPrivilegedLaterFailureOfTheSelfTest(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "ifb")
	for name, fails := range map[string]error{"packets get lost": nil, "no answer": unix.EPERM} {
		paths := engine.Paths{Run: t.TempDir()}
		way, none, err := paths.Redirect(func() (string, error) {
			if way, _, err := paths.Redirect(func() (string, error) { return "bpf", nil }); err != nil || way != "bpf" {
				t.Errorf("the other process: Redirect() = %q, %v, want bpf", way, err)
			}
			return "", fails
		})
		if err != nil || way != "bpf" || none != "" {
			t.Errorf("%s: Redirect() = %q, %q, %v, want the other's bpf", name, way, none, err)
		}
		if way, _, err := paths.Redirect(func() (string, error) { return "", unix.EPERM }); err != nil || way != "bpf" {
			t.Errorf("%s: then Redirect() = %q, %v, want bpf, which is kept", name, way, err)
		}
	}
}

// rewrite changes what is kept of the probes.
func rewrite(t *testing.T, paths engine.Paths, change map[string]any) {
	t.Helper()
	path := filepath.Join(paths.Run, "features.json")
	found := map[string]any{}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &found)
	}
	must.OK(t, err)
	maps.Copy(found, change)
	if b, err = json.Marshal(found); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	must.OK(t, err)
}

// The kinds of queue are those of the whole device, leaves too, and of no device that is
// not there.
func TestPrivilegedQueueKinds(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	ns, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: peer, Name: "eth0"})
	ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "tbf", "rate", "10mbit", "burst", "40kb", "latency", "25ms")
	ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "parent", "1:1", "pfifo_fast")
	var kinds map[string][]string
	must.OK(t, ns.Do(func() (err error) { kinds, err = engine.Paths{}.QueueKinds([]string{"eth0", "gone"}); return err }))
	if got := kinds["eth0"]; len(kinds) != 1 || !slices.Contains(got, "tbf") || !slices.Contains(got, "pfifo_fast") {
		t.Errorf("QueueKinds = %q, want tbf and pfifo_fast of eth0", kinds)
	}
}

// The queue of the device that a filter sends a pod's packets to is the pod's, as Calico's
// limit of egress is.
func TestPrivilegedQueueBehindARedirect(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf")
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "cali1"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "eth0"})
	ns.Run(t, "ip", "link", "add", "bwcali1", "type", "ifb")
	ns.Run(t, "tc", "qdisc", "add", "dev", "bwcali1", "root", "tbf", "rate", "10mbit", "burst", "40kb", "latency", "25ms")
	ns.Run(t, "tc", "qdisc", "add", "dev", "cali1", "ingress")
	ns.Run(t, "tc", "filter", "add", "dev", "cali1", "ingress", "u32", "match", "u8", "0", "0", "action", "mirred", "egress", "redirect", "dev", "bwcali1")
	var devices []engine.PodDevice
	paths := engine.Paths{Pins: filepath.Join(t.TempDir(), "none"), Run: t.TempDir()}
	if err := ns.Do(func() (err error) { devices, err = paths.PodDevices(); return err }); err != nil {
		t.Fatal(err)
	}
	if len(devices) != 1 || len(devices[0].Egress) != 1 || devices[0].Egress[0].Rate.BitRate() != 10_000_000 || len(devices[0].Tree.Qdiscs) != 0 {
		t.Errorf("PodDevices = %+v, want a queue of 10 Mbit/s for what cali1 receives", devices)
	}
}
