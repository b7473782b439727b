// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything in the package depends on the kernel")

// The binary itself, called as a runtime calls it, with the paths of a node: in
// a mount namespace where /sys/fs/bpf and /run/podweir are the test's own.
func TestPrivilegedBinary(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	binary := filepath.Join(t.TempDir(), "podweir-cni")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: host, Name: "veth1"})
	pins, run := testutil.BPFFS(t), t.TempDir()
	if _, err := os.Stat("/run/podweir"); errors.Is(err, os.ErrNotExist) {
		t.Cleanup(func() { _ = os.Remove("/run/podweir") }) // the mount point, empty outside
	}
	prev := fmt.Sprintf(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":%q}]}`, pod.Path())
	stdin := `{"cniVersion":"1.1.0","name":"net","type":"podweir-cni","onError":"closed","egressRate":"10M",` +
		`"ingressRate":"10M","cni.dev/valid-attachments":[],"prevResult":` + prev + `}`
	call := func(verb, stdin string) (string, error) {
		t.Helper()
		// In a mount namespace of its own, so that nothing is left to undo.
		script := `mount --make-rprivate / && mount --bind "$1" /sys/fs/bpf && mkdir -p /run/podweir &&
			mount --bind "$2" /run/podweir && exec "$3"`
		cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-ec", script, "sh", pins, run, binary)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_NETNS=" + pod.Path(),
			"CNI_IFNAME=eth0", "CNI_PATH=/nowhere",
		}
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		// The child is in the namespace of the thread that starts it.
		must.OK(t, host.Do(cmd.Start))
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.String())
		}
		return stdout.String(), err
	}
	works := func(verb string) string {
		t.Helper()
		out, err := call(verb, stdin)
		if err != nil {
			t.Fatalf("%s: %v\n%s", verb, err, out)
		}
		return out
	}
	must.Have(t, "what VERSION prints", works("VERSION"), `"0.3.1"`)
	works("STATUS")
	must.Be(t, "what ADD prints", prev, strings.TrimSuffix(works("ADD"), "\n"))
	works("CHECK")
	for _, ns := range []struct {
		*testutil.NetNS
		dev string
	}{{pod, "eth0"}, {host, "veth1"}} {
		must.Have(t, ns.dev+" after ADD", ns.Run(t, "tc", "qdisc", "show", "dev", ns.dev), "tbf")
	}
	if _, err := os.Stat(filepath.Join(pins, "podweir", "net", "c1,eth0", "eth0", "record")); err != nil {
		t.Errorf("no record under /sys/fs/bpf/podweir: %v", err)
	}
	if out, err := call("ADD", "{"); err == nil || !strings.Contains(out, `"code": 6`) {
		t.Errorf("ADD of half an object = %v and prints %q, want code 6 on stdout", err, out)
	}
	works("GC")
	works("DEL")
	// What all pods share stays for the next one, and the directory of holders, which is empty.
	left, err := os.ReadDir(filepath.Join(pins, "podweir"))
	if err != nil || len(left) != 2 || left[0].Name() != "holders," || !strings.HasPrefix(left[1].Name(), "node,") {
		t.Errorf("after DEL %v are pinned, %v", left, err)
	}
	must.Len(t, "what is held after DEL", 0, must.Get(os.ReadDir(filepath.Join(pins, "podweir", "holders,")))(t))
}
