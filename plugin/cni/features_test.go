// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
)

// The first of a node to try the kernel may be the agent: with what its DaemonSet
// allows and nothing else, a pod gets its queue on an ifb, and the answer is kept.
func TestPrivilegedTheChartsCapabilitiesSuffice(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "clsact", "ifb")
	p := unprobed(t).newPod(t)
	a, _ := p.execBy(t, withOnly(chartCapabilities(t)), "ADD", p.conf(inIFB(nil)).json(t), 0)
	if a.err != nil {
		t.Fatalf("ADD: %s\n%s", describe(a.err), a.log)
	}
	if d := p.ingress(t); d.Side != shaping.SideIFB.String() || d.Queue != shaping.QueueTBF.String() {
		t.Errorf("ingress is %s on the %s side, want tbf on the ifb", d.Queue, d.Side)
	}
	if by := p.status(t).By; by != attach.ByPlugin {
		t.Errorf("attached by %q, want by the plugin", by)
	}
	p.crosses(t)
	untried := func() (string, error) { return "", errors.New("it was tried again") }
	if way, none, err := p.node.paths.Redirect(untried); err != nil || way == "" || none != "" {
		t.Errorf("what was kept of the self-test is %q, %q, %v, want a way through the ifb", way, none, err)
	}
	p.must(t, "DEL", p.conf(nil))
}

// Only answers are kept: an error is tried again, and so is one that an earlier
// release left in the file.
func TestPrivilegedErrorsOfTheSelfTestAreNotKept(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "ifb")
	n := unprobed(t)
	fails := func() (string, error) { return "", unix.EPERM }
	if way, none, err := n.paths.Redirect(fails); err != nil || way != "" || !strings.Contains(none, unix.EPERM.Error()) {
		t.Errorf("Redirect() = %q, %q, %v, want the reason of the failure", way, none, err)
	}
	if way, none, err := n.paths.Redirect(func() (string, error) { return "mirred", nil }); err != nil || way != "mirred" || none != "" {
		t.Errorf("after a failure Redirect() = %q, %q, %v, want mirred", way, none, err)
	}
	if way, _, err := n.paths.Redirect(fails); err != nil || way != "mirred" {
		t.Errorf("after an answer Redirect() = %q, %v, want mirred, which is kept", way, err)
	}
	n.rewrite(t, map[string]any{"redirect": "", "redirectError": "redirect self-test: open packet socket: operation not permitted"})
	if way, _, err := n.paths.Redirect(func() (string, error) { return "bpf", nil }); err != nil || way != "bpf" {
		t.Errorf("with a file of an earlier release Redirect() = %q, %v, want bpf", way, err)
	}
	// That packets get lost is an answer.
	n.rewrite(t, map[string]any{"redirect": ""})
	if way, none, err := n.paths.Redirect(fails); err != nil || way != "" || !strings.Contains(none, "get lost") {
		t.Errorf("Redirect() = %q, %q, %v, want that packets get lost", way, none, err)
	}
}

// Where the ifb that a profile prefers cannot be used, ingress is policed and it is
// said why; when it can, the next look moves the queue there. So it is with the ifb
// by name.
func TestPrivilegedFallsBackFromAnIFB(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "clsact", "ifb")
	p := newNode(t).newPod(t)
	const why = "packets get lost on the way through an ifb"
	for _, place := range []string{"ifb", "prefer-ifb"} {
		t.Run(place, func(t *testing.T) { fallsBackFromAnIFB(t, p, place, why) })
	}
}

func fallsBackFromAnIFB(t *testing.T, p *pod, place, why string) {
	t.Helper()
	p.node.rewrite(t, map[string]any{"redirect": ""})
	c := p.conf(inIFB(conf{"ingressPlace": place}))
	a := p.must(t, "ADD", c)
	if !strings.Contains(a.log, "level=WARN") || !strings.Contains(a.log, why) {
		t.Errorf("ADD logs no warning with the reason: %s", a.log)
	}
	d := p.ingress(t)
	if d.Queue != shaping.QueueNone.String() || d.CapHolds || !strings.Contains(strings.Join(d.Notes, "; "), why) {
		t.Errorf("ingress is %+v, want policing with the reason", d)
	}
	p.must(t, "CHECK", c)
	p.crosses(t)

	if err := os.Remove(filepath.Join(p.node.paths.Run, "features.json")); err != nil {
		t.Fatal(err)
	}
	p.repair(t)
	if d := p.ingress(t); d.Side != shaping.SideIFB.String() || d.Queue != shaping.QueueTBF.String() {
		t.Errorf("after the repair ingress is %s on the %s side, want tbf on the ifb", d.Queue, d.Side)
	}
	p.must(t, "CHECK", c)
	p.crosses(t)
	p.must(t, "DEL", c)
}

// ingress is what status says of that direction.
func (p *pod) ingress(t *testing.T) status.Direction {
	t.Helper()
	for _, d := range p.status(t).Directions {
		if d.Direction == shaping.Ingress.String() {
			return d
		}
	}
	t.Fatal("status says nothing of ingress")
	return status.Direction{}
}

// rewrite changes what the node keeps of its probes.
func (n *node) rewrite(t *testing.T, change map[string]any) {
	t.Helper()
	path := filepath.Join(n.paths.Run, "features.json")
	found := map[string]any{}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &found)
	}
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(found, change)
	if b, err = json.Marshal(found); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// capabilities are those that the chart may give.
var capabilities = map[string]uintptr{
	"NET_ADMIN": unix.CAP_NET_ADMIN, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "SYS_PTRACE": unix.CAP_SYS_PTRACE,
}

// chartCapabilities reads what the agent may do from the chart as it is rendered.
func chartCapabilities(t *testing.T) map[uintptr]bool {
	t.Helper()
	b, err := os.ReadFile("../../chart/testdata/golden/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(b), "drop: [ALL]")
	list, _, _ = strings.Cut(list, "volumeMounts:")
	allowed := map[uintptr]bool{}
	for _, name := range regexp.MustCompile(`(?m)^ +- ([A-Z_]+)\b`).FindAllStringSubmatch(list, -1) {
		number, known := capabilities[name[1]]
		if !known {
			t.Fatalf("the chart gives the agent %s, which this test does not know", name[1])
		}
		allowed[number] = true
	}
	if len(allowed) == 0 {
		t.Fatal("the chart's list of capabilities was not found")
	}
	return allowed
}

// withOnly starts a process that has these capabilities and no others.
func withOnly(allowed map[uintptr]bool) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		// Never unlocked: the thread, which has lost its rights, ends with its
		// goroutine.
		runtime.LockOSThread()
		for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
			if allowed[c] {
				continue
			}
			// EINVAL: this kernel has no such capability.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
		return cmd.Start()
	}
}
