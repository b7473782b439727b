// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package tools has the tests of the scripts beside it.
package tools

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
)

// TestRights: who lacks a right is told in one line which it is and how to get it, before
// anything is built. As root, rights are taken away one at a time.
func TestRights(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		wantLacks(t, "root", "", "./rights.sh")
		return
	}
	for name, tt := range map[string]struct {
		want string
		// with runs the script and its arguments.
		with []string
		// target is the script's argument.
		target string
	}{
		"nobody":              {"root", []string{"setpriv", "--reuid=65534", "--clear-groups"}, ""},
		"no SYS_ADMIN":        {"CAP_SYS_ADMIN, new network namespaces", without("sys_admin"), ""},
		"no NET_ADMIN":        {"CAP_NET_ADMIN", without("net_admin"), ""},
		"no NET_RAW":          {"CAP_NET_RAW", without("net_raw"), ""},
		"no SYS_NICE":         {"CAP_SYS_NICE", without("sys_nice"), ""},
		"no SETPCAP":          {"CAP_SETPCAP", without("setpcap"), ""},
		"root of a namespace": {"BPF programs", []string{"unshare", "--user", "--map-root-user"}, ""},
		"a node's":            {"the capabilities of a cluster's node", without("mknod"), "gate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := exec.CommandContext(t.Context(), tt.with[0], append(tt.with[1:], "test", "-x", "./rights.sh")...).Run(); err != nil {
				testutil.SkipFeature(t, strings.Join(tt.with, " ")) // or what is to be taken away is not there
			}
			args := append(tt.with[1:], "./rights.sh")
			if tt.target != "" {
				args = append(args, tt.target)
			}
			wantLacks(t, tt.want, tt.target, tt.with[0], args...)
		})
	}
}

// without takes a capability away from what follows.
func without(capability string) []string {
	return []string{"setpriv", "--bounding-set=-" + capability, "--inh-caps=-" + capability}
}

// wantLacks runs a command, which is to name what is missing and the target of make.
func wantLacks(t *testing.T, want, target, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%s %q: %v, want status 1", name, args, err)
	}
	lacks, run, _ := strings.Cut(string(out), ". ")
	if !strings.Contains(lacks, want) || !strings.Contains(run, "docker run --rm --privileged") ||
		!strings.HasSuffix(run, " make "+cmp.Or(target, "test")+"\n") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%s %q prints %q, want one line with %q and a command", name, args, out, want)
	}
}
