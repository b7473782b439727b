// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package examine

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestParseDevice(t *testing.T) {
	const head = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n"
	const lines = "  eth01: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  eth0: 1024 16 0 0 0 0 0 0 2048 32 0 0 0 0 0 0\n"
	got, err := parseDevice(head+lines, "eth0")
	want := map[terms.Direction]doctor.Count{terms.Ingress: {Packets: 16, Bytes: 1024}, terms.Egress: {Packets: 32, Bytes: 2048}}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("parseDevice() = %v, %v, want %v", got, err, want)
	}
	for name, text := range map[string]string{
		"no such device": head, "3 fields": "eth0: 1 2 3\n", "invalid syntax": "eth0: x 16 0 0 0 0 0 0 2048 32 0 0 0 0 0 0\n",
	} {
		if _, err := parseDevice(text, "eth0"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("parseDevice(%q) = %v, want %q", text, err, name)
		}
	}
}

// podweir's entry is read by the plugin's own parser.
func TestDoctorReadsTheEntry(t *testing.T) {
	for entry, want := range map[string]string{
		`{"type":"podweir-cni","capabilities":{"bandwidth":true}}`:         "",
		`{"type":"podweir-cni","policy":"elephants","egressMaxRate":"1G"}`: "",
		`{"type":"podweir-cni","policy":"fair"}`:                           `"fair"`,
		`{"type":"podweir-cni","lightShare":"120%"}`:                       "lightShare",
		`{"type":"podweir-cni","egressRate":"10X"}`:                        "egressRate",
		`{"type":"podweir-cni","maxrte":"10M"}`:                            `unknown key "maxrte" is ignored, did you mean "maxRate"?`,
		`{"type":"podweir-cni","x-owner":"me"}`:                            "",
	} {
		err := checkEntry([]byte(entry))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("checkEntry(%s) = %v, want %q", entry, err, want)
		}
	}
}

// Counters that cannot be read are not zero. Where the attachment differs the difference
// says why.
func TestAttachments(t *testing.T) {
	for _, drift := range [][]string{nil, {"egress load"}} {
		a := &status.Attachment{
			By: "agent", Attached: time.Unix(1_800_000_000, 0), Drift: drift,
			Directions: []status.Direction{{Limit: terms.Limit{Direction: terms.Name(terms.Egress)}, CountersErr: errors.New("EPERM")}},
		}
		got := attachments(nil, a)[0]
		if (got.Uncounted == "EPERM") != (drift == nil) {
			t.Errorf("with the differences %q: uncounted %q", drift, got.Uncounted)
		}
		if got.By != "agent" || !got.Attached.Equal(a.Attached) {
			t.Errorf("attached by %q at %v, want the agent at %v", got.By, got.Attached, a.Attached)
		}
	}
}

// What an agent found is known while one watches.
func TestUnenforcedIsOfAnAgentThatWatches(t *testing.T) {
	n := Node{Paths: engine.Paths{Pins: filepath.Join(t.TempDir(), "pins"), Run: t.TempDir()}}
	for _, want := range []bool{false, true} {
		if all, watched, err := n.Unenforced(t.Context()); err != nil || len(all) != 0 || watched != want {
			t.Errorf("unenforced = %v, watched %v, %v, want none, %v", all, watched, err, want)
		}
		must.OK(t, n.Paths.RecordReached(nil))
	}
}
