// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestNRI: the one delivery that no profile has by itself.
func TestNRI(t *testing.T) {
	const off = "[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n[other]\n  disable = false\n"
	for name, tc := range map[string]struct {
		sockets []string
		config  string
		want    doctor.Status
	}{
		"listens":         {[]string{"/run/nri/nri.sock"}, off, doctor.OK},
		"off":             {[]string{"/x"}, off, doctor.Fail},
		"none listens":    {[]string{"/x"}, "", doctor.Fail},
		"nothing is seen": {nil, "", doctor.Unknown},
		"off, unseen":     {nil, off, doctor.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			n := aws()
			n.sockets = tc.sockets
			n.files["etc/containerd/config.toml"] = tc.config
			root := n.root()
			f := doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), doctor.Options{Kernel: n.kernel})
			f.Choice.Delivery = profiles.NRI
			checks := doctor.Run(f).Checks
			at := slices.IndexFunc(checks, func(o doctor.Outcome) bool { return o.Code == "PW115" })
			must.Be(t, "PW115, "+checks[at].Seen, tc.want, checks[at].Status)
		})
	}
}

// No file shows the deliveries nri and watch: who runs the doctor says so.
func TestDeliveryThatWasAskedFor(t *testing.T) {
	for asked, want := range map[profiles.Delivery]doctor.Status{
		"": doctor.Fail, "auto": doctor.Fail, profiles.Chain: doctor.Fail, profiles.NRI: doctor.Skip, profiles.Watch: doctor.Skip,
	} {
		n := aws()
		delete(n.files, own)
		n.files["proc/77/comm"], n.files["proc/77/cmdline"] = "podweir\n", "podweir\x00agent\x00"
		root := n.root()
		rep := doctor.Run(doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts),
			doctor.Options{Kernel: n.kernel, Delivery: asked}))
		at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW202" })
		must.Be(t, fmt.Sprintf("requested %q, without podweir in the chain: PW202, %s", asked, rep.Checks[at].Seen), want, rep.Checks[at].Status)
		if asked.ByAgent() && rep.Delivery != string(asked) {
			t.Errorf("requested %q: the delivery is %q", asked, rep.Delivery)
		}
	}
}

// A link may lead to another mount: on Fedora CoreOS / is mounted read-only, and /opt leads to /var.
func TestWritableBehindALink(t *testing.T) {
	for mounts, want := range map[string]profiles.Delivery{
		"/dev/sda9 / ext4 ro 0 0\n/dev/sda8 /etc ext4 rw 0 0\n/dev/sda8 /var ext4 rw 0 0\n": profiles.DropIn,
		"/dev/sda9 /var ext4 ro 0 0\n": profiles.Chain, // as it was
	} {
		n := aws()
		n.files["proc/1/mounts"] += mounts
		n.exec = nil
		root := n.root()
		root["opt"] = &fstest.MapFile{Data: []byte("var/../var/opt"), Mode: fs.ModeSymlink | 0o777}
		for _, plugin := range []string{"podweir-cni", "aws-cni"} {
			root["var/opt/cni/bin/"+plugin] = &fstest.MapFile{Mode: 0o755}
		}
		f := doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), doctor.Options{Kernel: n.kernel})
		if binary := f.Node.Binary(root, "podweir-cni"); binary == "" || f.Choice.Delivery != want {
			t.Errorf("%q: binary %q, delivery %s: %s; want %s", mounts, binary, f.Choice.Delivery, f.Choice.Why, want)
		}
	}
}

// TestHandedWithOtherSettings: an entry in the CNI's own chain that has not the node's
// settings is told of, and where these are not known the commands say so.
func TestHandedWithOtherSettings(t *testing.T) {
	entry := strings.TrimSuffix(conflist.DefaultEntry, "}") + `,"maxRate":"1G"}`
	plain := "add the chart's defaults to podweir's entry"
	for name, tc := range map[string]struct {
		asked profiles.Delivery
		// has is podweir's entry in the chain, told that of the node, "" if it is not known.
		has, told string
		want      doctor.Status
		seen, fix string
	}{
		"not yet":            {asked: profiles.Handed, told: entry, want: doctor.Warn, seen: "until Cilium", fix: `.plugins += [` + entry + `]`},
		"not yet, not known": {asked: profiles.Handed, want: doctor.Warn, seen: "until Cilium", fix: "> cni-config && kubectl"},
		"as it should be":    {asked: profiles.Handed, has: entry, told: entry, want: doctor.OK, seen: "delivery handed"},
		"with others":        {asked: profiles.Handed, has: conflist.DefaultEntry, told: entry, want: doctor.Warn, seen: "podweir is in 05-cilium.conflist with other settings than this node: maxRate", fix: ` = ` + entry + `' `},
		"not known":          {asked: profiles.Handed, has: conflist.DefaultEntry, want: doctor.OK, seen: "delivery handed"},
		"asked for auto":     {asked: "auto", told: entry, want: doctor.OK},
		"not said":           {has: entry, told: entry, want: doctor.OK},
	} {
		t.Run(name, func(t *testing.T) {
			n := cilium()
			if tc.has != "" {
				delete(n.files, net+"cilium/50-podweir.conf")
				n.files[net+"05-cilium.conflist"] = strings.Replace(n.files[net+"05-cilium.conflist"], "]}", ","+tc.has+"]}", 1)
			}
			root := n.root()
			rep := doctor.Run(doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, n.opts), doctor.Options{
				Kernel: n.kernel, Delivery: tc.asked, Handed: func(*detect.Node) string { return tc.told },
			}))
			at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW210" })
			got := rep.Checks[at]
			if got.Status != tc.want || !strings.Contains(got.Seen, tc.seen) || !strings.Contains(got.Fix, tc.fix) {
				t.Errorf("PW210 = %s: %s; fix: %s, want %s: %s with %q", got.Status, got.Seen, got.Fix, tc.want, tc.seen, tc.fix)
			}
			must.Be(t, fmt.Sprintf("PW210 says that the defaults are not known: %s, %q", got.Fix, got.Evidence), tc.told == "", strings.Contains(got.Fix+strings.Join(got.Evidence, " "), plain))
		})
	}
}
