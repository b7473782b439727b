// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func statusOf(err error) int {
	if e, ok := errors.AsType[*show.ExitError](err); ok {
		return e.Status
	}
	if err != nil {
		return -1
	}
	return 0
}

// expect fails unless a command ends with a status, and its output and error have texts.
func expect(t *testing.T, f *fakeCluster, args []string, status int, want ...string) string {
	t.Helper()
	out, err := f.run(t, args...)
	must.Be(t, fmt.Sprintf("%v: %v, exit", args, err), status, statusOf(err))
	text := strings.Join(strings.Fields(out+" "+fmt.Sprint(err)), " ")
	must.Have(t, fmt.Sprint(args), text, want...)
	return out
}

// parse reads what a command prints for programs.
func parse[T any](t *testing.T, f *fakeCluster, args ...string) (v T) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(expect(t, f, append(args, "-o", "json"), 0)), &v))
	return v
}

// fits fails the test if a line is wider than a screen.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > terms.Width {
			t.Errorf("a line has more than %d columns: %q", terms.Width, line)
		}
	}
}

func TestEverythingIsFine(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 3, pods: 2})
	expect(t, f, []string{"status"}, 0, "All 6 pods with a limit are limited as they should be.", "team-a/n1-0 n1")
	expect(t, f, []string{"status", "-o", "wide"}, 0, "team-a/n3-1 n3 limited 20 Mbit/s 20 Mbit/s strict tbf, strict tbf",
		"team-a/n3-0 n3 limited 20 Mbit/s 20 Mbit/s strict tbf (egress at its limit for 90 % of the last minute), strict tbf")
	expect(t, f, []string{"doctor"}, 0, "3 nodes looked at", "No problem found. 1 checks passed, 0 skipped")
	expect(t, f, []string{"doctor", "-v"}, 0, "PW101 the kernel is new enough")
	must.Len(t, "nodes", 3, parse[cluster.Nodes](t, f, "status").Nodes)
}

// A limit that pods have together is one on each node, and told with the node.
func TestLimitsOfNamespaces(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 3, pods: 2, grouped: []string{"n1", "n3"}})
	const first, third = "egress of namespace team-a is at its limit of 200 Mbit/s on n1 since 2026-11-23T14:02:31Z, among 2 pods; team-a/n1-0 has 70 % of it.",
		"egress of namespace team-a is at its limit of 200 Mbit/s on n3 since 2026-11-23T14:02:31Z, among 2 pods; team-a/n3-0 has 70 % of it."
	must.Have(t, "status", expect(t, f, []string{"status"}, 0, first, third), "!on n2")
	must.Have(t, "explain", expect(t, f, []string{"explain", "team-a/n3-1"}, 0, third), "!on n1")
	must.Len(t, "groups", 1, parse[cluster.Nodes](t, f, "status").Nodes[2].Answer.Status.Groups)
}

// What is wrong on some nodes is told once, with the nodes. A node that does not answer is
// unknown, and not fine.
func TestProblemsAndUnknownNodes(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 40, desired: 41, pods: 2, sick: []string{"n7", "n19"}, down: []string{"n3", "n4"}})
	expect(t, f, []string{"status"}, cluster.ExitBroken,
		"38 of 41 nodes answered; 3 are unknown:", "UNKNOWN 2 nodes: n3, n4", "its agent does not run, or the API server does not reach its port (no route to host); see kubectl --kubeconfig", "-n kube-system get pods -o wide -l app.kubernetes.io/name=podweir", "UNKNOWN 1 node without an agent's pod",
		"76 of 78 pods are limited as they should be; 2 are not:", "NOT LIMITED 2 pods: team-b/n19 on n19, team-b/n7 on n7", "cause no memory for the queue",
		"2 of 78 pods are not limited as they should be; 3 of 41 nodes are unknown")
	out := expect(t, f, []string{"doctor"}, 1, "fail PW602 on 2 of 38 nodes: n19, n7. what is attached is what should be",
		"seen a queue is missing", "UNKNOWN 2 nodes: n3, n4", "kubectl podweir explain CODE", "3 of 41 nodes are unknown; 1 fail, 1 ok")
	fits(t, out)
	f.sick = nil
	expect(t, f, []string{"status"}, cluster.ExitUnknown, "All 76 pods", "3 of 41 nodes are unknown")
	expect(t, f, []string{"doctor"}, cluster.ExitUnknown, "3 of 41 nodes are unknown")
	expect(t, f, []string{"status", "--node", "n3"}, cluster.ExitUnknown, "0 of 1 node answered; 1 is unknown")
	expect(t, f, []string{"status", "--node", "n5"}, 0, "All 2 pods")
	f.down, f.desired, f.strays = nil, 40, 1
	expect(t, f, []string{"status"}, cluster.ExitUnknown, "40 of 41 nodes answered", "UNKNOWN 1 node without an agent's pod")
	f.strays, f.change = 0, func(a *cluster.Answer) {
		if a.Node == "n2" {
			a.NotReady = []string{"delivery: its file is not there"}
		}
	}
	expect(t, f, []string{"status"}, cluster.ExitBroken, "All 80 pods", "NOT READY 1 node: n2 cause delivery: its file is not there", "1 of 40 agents are not ready")
	f.nodes, f.desired = 0, 0
	expect(t, f, []string{"status"}, -1, "podweir has no agent in the namespace kube-system: -n names the namespace where podweir is installed; if it is this one, kubectl --kubeconfig", "describe daemonset -l app.kubernetes.io/name=podweir")
}

// A cure names the cluster and the namespace that the flags name, and the node where there is one. All
// that is as it should be is left out if the reader wants that.
func TestCuresRunWhereTheyAreRead(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 3, pods: 1, sick: []string{"n2", "n3"}})
	out := expect(t, f, []string{"status", "-o", "wide", "--broken"}, cluster.ExitBroken, "NOT LIMITED 2 pods", "cure kubectl podweir --kubeconfig", "-n kube-system exec NODE -- podweir doctor")
	must.Have(t, "--broken", out, "!n1-0")
	expect(t, f, []string{"status", "--node", "n2"}, cluster.ExitBroken, "-n kube-system exec n2 -- podweir doctor")
}

// Why an agent does not answer is said in plain words, with what to do.
func TestSilentAgents(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 4, pods: 1, down: []string{"n1"}, stuck: []string{"n2"}, deaf: []string{"n3"}})
	out := expect(t, f, []string{"doctor", "--request-timeout", "1s"}, cluster.ExitUnknown,
		"cause its agent does not run, or the API server does not reach its port (no route to host); see kubectl --kubeconfig",
		"cause its agent does not answer within 1s (--request-timeout); see kubectl --kubeconfig",
		"cause its agent cannot ask the API server whose token this is; see kubectl --kubeconfig")
	for _, raw := range []string{"dial", "503", "context"} {
		must.Have(t, "the answer", out, "!"+raw)
	}
}

// An upgrade that stopped half-way is found by status and by doctor, with the nodes that it
// has not reached.
func TestHalfUpgradedFleet(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 40, pods: 1, behind: []string{"n7", "n19"}, down: []string{"n3"}})
	for _, command := range []string{"status", "doctor"} {
		expect(t, f, []string{command}, cluster.ExitUnknown,
			"VERSIONS 2 releases: 37 agents of 0.1.0; 2 agents of 0.0.9 on n19, n7 cause an upgrade or a rollback is under way, or has stopped half-way cure kubectl --kubeconfig", "shows which pods are old; kubectl describe of one that stays says why")
	}
	expect(t, f, []string{"doctor"}, cluster.ExitUnknown, "podweir 0.0.9 and 0.1.0")
	f.behind, f.down = nil, nil
	must.Have(t, "status of one release", expect(t, f, []string{"status"}, 0), "!VERSIONS")
	f.behind = []string{"n7"}
	expect(t, f, []string{"status"}, 0, "2 releases: 39 agents of 0.1.0; 1 agent of 0.0.9 on n7")
	must.Have(t, "status of one node", expect(t, f, []string{"status", "--node", "n7"}, 0), "!VERSIONS")
}

func TestTop(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 2, pods: 2, down: []string{"n2"}, busy: 1})
	expect(t, f, []string{"top", "--count", "1", "--flows"}, cluster.ExitUnknown,
		"team-a/n1-0 egress 20M 20M [██████████] 100 %", "tcp 10.0.0.1:4242 > 10.0.0.9:443 offers 19.4M 97 %", "3 idle not shown",
		"no rates of node n2: its agent does not run, or the API server does not reach", "1 of 2 nodes are unknown")
}

// A token lives for ten minutes, and top runs for longer: it gets another one in time.
func TestTopOutlivesItsToken(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 2, pods: 1})
	c, err := (&options{kubeconfig: f.kubeconfig(t), namespace: "kube-system", timeout: 10 * time.Second}).client()
	must.OK(t, err)
	for _, step := range []struct {
		age  time.Duration
		want int
	}{{0, 1}, {7 * time.Minute, 1}, {9 * time.Minute, 2}, {0, 2}} {
		for name, made := range c.tokens {
			c.tokens[name] = token{made.text, time.Now().Add(-step.age)}
		}
		for _, n := range must.Get(c.look(t.Context()))(t).Nodes {
			must.Be(t, fmt.Sprintf("with a token that is %v old: error of %s", step.age, n.Name), "", n.Error)
		}
		must.Be(t, fmt.Sprintf("with a token that is %v old: tokens that were made", step.age), step.want, f.tokens)
	}
	f.tokens = 7 // agents take no token of an account that was there before
	must.Part(t, "an account that was made anew", "its agent does not accept the token", must.Get(c.look(t.Context()))(t).Nodes[0].Error)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 2, pods: 2, sick: []string{"n2"}})
	expect(t, f, []string{"explain", "team-a/n1-0"}, 0,
		"egress has been at its limit of 20 Mbit/s since 14:02 UTC: one flow, tcp 10.0.0.1:4242 > 10.0.0.9:443, offers 97 % of the traffic; light flows (600 kbit/s) go before heavy ones.",
		"ingress carries next to nothing of its limit of 20 Mbit/s.", "egress of eth0 on n1, limit 20 Mbit/s, policy strict, queue tbf",
		"now 20 Mbit/s (100 %) sent of 20 Mbit/s offered", "flow tcp 10.0.0.1:4242 > 10.0.0.9:443 offers 19.4 Mbit/s",
		"held at the limit for 90 % of the last minute")
	expect(t, f, []string{"explain", "team-b/n2"}, cluster.ExitBroken, "NOT LIMITED team-b/n2 on n2", "cause no memory for the queue")
	expect(t, f, []string{"explain", "team-a/none"}, cluster.ExitBroken, "no node has a limit for pod team-a/none")
	expect(t, f, []string{"explain", "PW602"}, 0, "# PW602", "**Cure**")
	expect(t, f, []string{"explain", "team-c/left-n2"}, 0, "team-c/left-n2 on n2 has no limit from podweir: its egress is left to Cilium.")
	expect(t, f, []string{"explain", "team-c/host-n2"}, cluster.ExitBroken, "team-c/host-n2 on n2 has no limit from podweir: it has hostNetwork.")
	expect(t, f, []string{"explain", "team-a/n2-0", "--node", "n1"}, cluster.ExitUnknown, "node n1 has no limit for pod team-a/n2-0, and no other node was asked")
	f.change = func(a *cluster.Answer) {
		a.Status.Add(&view.Pod{Pod: "team-d/host", State: view.HostNetwork, Cause: "it shares the node's interfaces", Cure: "take the annotation off"})
	}
	expect(t, f, []string{"explain", "team-d/host"}, -1, "pod team-d/host is on n1, n2: --node names one of them")
	expect(t, f, []string{"explain", "team-d/host", "--node", "n2"}, 0, "team-d/host on n2 has no limit: it shares the node's interfaces; take the annotation off.")
	f.down = []string{"n2"}
	expect(t, f, []string{"explain", "team-a/none"}, cluster.ExitUnknown, "1 of 2 nodes are unknown")
}

// A plan says what would change for pods whose limits are observed, and for which pods
// nothing would.
func TestPlan(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 3, pods: 4, observed: []string{"n1", "n2"}, sick: []string{"n1"}})
	out := expect(t, f, []string{"plan", "--node", "n1"}, 0,
		"Enforcement would limit 4 pods, observed now: 1 would lose packets at this moment, 1 would only wait, 1 went beyond a limit before, 1 stayed below. WOULD",
		"WOULD DROP team-a/n1-0 on n1: egress carries 25 Mbit/s, 125 % of its limit of 20 Mbit/s; 5 Mbit/s would be dropped and 10 Mbit/s would wait; "+
			"since it was attached, 20.0 % of its bytes would have been dropped and 40.0 % would have waited",
		"WOULD WAIT team-a/n1-1 on n1: ingress carries 20 Mbit/s", "0 bit/s would be dropped and 2 Mbit/s would wait",
		"BEFORE team-a/n1-2 on n1: egress carries 0 bit/s, 0 % of its limit of 20 Mbit/s; since it was attached, less than 0.1 % of its bytes would have been dropped and none would",
		"POD NODE EGRESS INGRESS POLICY team-a/n1-0 n1 20 Mbit/s 20 Mbit/s strict",
		`NOTE 1 pod: team-a/n1-0 on n1 cause annotation podweir.io/policy: "fast" is not accepted`,
		"LEFT 1 pod: team-c/left-n1 on n1 cause its egress is left to Cilium",
		"NO LIMIT 1 pod: team-b/n1 on n1 cause no memory for the queue", "NO LIMIT 1 pod: team-c/host-n1 on n1 cause it has hostNetwork",
		"3 pods without a requested limit would have none.")
	fits(t, out)
	if one := parse[cluster.Plan](t, f, "plan", "--pod-namespace", "team-c"); len(one.Pods) != 0 || len(one.Unlimited) != 6 || one.None != 3 {
		t.Errorf("the plan of a namespace: %+v", one)
	}
	expect(t, f, []string{"plan", "--pod-namespace", "tema"}, 0, "No node that answered knows a pod of the namespace tema.")
	f.down = []string{"n1"}
	expect(t, f, []string{"plan"}, cluster.ExitUnknown, "2 of 3 nodes answered; 1 is unknown:", "UNKNOWN 1 node: n1", "would limit 4 pods",
		"Nothing changes for 4 pods with limits that are enforced already.", "1 of 3 nodes are unknown")
}

func TestErrorsSayWhatIsAccepted(t *testing.T) {
	t.Parallel()
	f := start(t, &fakeCluster{nodes: 1})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"top", "-o", "wide"}, `--output "wide" is not accepted by kubectl podweir top, want table, json`},
		{[]string{"plan", "--pod-namespace", "team/web"}, "want the name of a namespace"},
		{[]string{"top", "--interval", "1s"}, "want 2s or more"},
		{[]string{"exec", "n1", "podweir", "status", "-o", "json"}, "want a node, -- and a command"},
		{[]string{"status", "--request-timeout", "1ms"}, "want 1s or more"},
		{[]string{"status", "--node", "n9"}, "no agent on node n9"},
		{[]string{"explain", "web"}, "want NAMESPACE/POD or a code"},
		{[]string{"status", "--context", "none"}, "read the kubeconfig"},
		{[]string{"status", "--context", "old"}, `kubeconfig: no cluster of the context "old", want one of ["login" "old" "t"] (--context), or another file (--kubeconfig)`},
	} {
		expect(t, f, c.args, -1, c.want)
	}
	// How long somebody takes to log in is no matter of the API server.
	expect(t, f, []string{"status", "--context", "login", "--request-timeout", "1s"}, 0, "No pod of the cluster")
	for path, want := range map[string]string{
		"/token": "make a token of the account kube-system/podweir-reader", "/pods": "list the agents' pods in the namespace kube-system",
		"/daemonsets": "how many agents there should be",
	} {
		f.forbidden = path
		expect(t, f, []string{"status"}, -1, want, "403", `(the chart's Role NAME-reader has the rights): User "me" cannot do that`)
	}
	for text, want := range map[string]string{
		`{"version": "9", "schema": 1, "status": {"pods": [{"limits": [{"policy": "new"}]}]}}`: "its agent (9) answers what this command cannot read, take the command of that release: ",
		`{"schema": 2}`: "its agent (of unknown version) answers with schema 2, this command reads 1",
	} {
		must.Fail(t, text, must.Err((&client{}).read([]byte(text))), want)
	}
	f.forbidden, f.nodes, f.desired = "/proxy/", 2, 2
	expect(t, f, []string{"status"}, cluster.ExitUnknown, "UNKNOWN 2 nodes: n1, n2",
		`403 Forbidden (the chart's Role NAME-reader has the rights): User "me" cannot do that`)
	must.Be(t, "doctor of unknown nodes", "2 of 2 nodes are unknown", must.Text(must.Err(f.run(t, "doctor"))))
}

// Five hundred nodes with 15,000 pods. How long it takes is for people to read: that is a
// matter of the machine.
func TestFiveHundredNodes(t *testing.T) {
	mark.Slow(t, "500 agents answer")
	f := start(t, &fakeCluster{nodes: 500, pods: 30, sick: []string{"n7", "n19"}})
	f.make(1)
	for _, command := range []string{"status", "doctor"} {
		began, used := time.Now(), processor(t)
		out := expect(t, f, []string{command}, 1, "n19")
		t.Logf("%s of 500 nodes took %v, and %v of the processor for it and for the API server that is played", command,
			time.Since(began).Round(time.Millisecond), (processor(t) - used).Round(time.Millisecond))
		if n := strings.Count(out, "\n"); n > 23 {
			t.Errorf("%s has %d lines, which is more than a screen", command, n)
		}
	}
	must.Be(t, "tokens that were made for two commands", 2, f.tokens)
}

// processor is how much time of processors this process used so far.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	must.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// The reference page names every command and every flag.
func TestReferenceNamesEveryFlag(t *testing.T) {
	t.Parallel()
	page := string(must.Get(os.ReadFile("../../../docs/reference/kubectl-podweir.md"))(t))
	check := func(text string) { must.Have(t, "docs/reference/kubectl-podweir.md", page, text) }
	root := newRoot()
	for _, cmd := range root.Commands() {
		check("## kubectl podweir " + cmd.Name())
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { check("`--" + f.Name + "`") })
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { check("`--" + f.Name + "`") })
}

// exec runs a command in the pod of the node's agent, by kubectl and for the same cluster,
// and ends as the command does.
func TestExec(t *testing.T) {
	f := start(t, &fakeCluster{nodes: 3, pods: 1, evicted: []string{"n2"}})
	dir := t.TempDir()
	const kubectl = "#!/bin/sh\necho \"$@\"\ncase \"$*\" in *repair*) exit 3;; esac\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out, err := f.run(t, "exec", "n2", "--", "podweir", "status", "-o", "wide")
	if err != nil || !strings.Contains(out, "--kubeconfig ") || !strings.HasSuffix(out, " -n kube-system exec --stdin podweir-n2 -- podweir status -o wide\n") {
		t.Errorf("exec = %q, %v", out, err)
	}
	must.Be(t, "exit of a command that ends with 3", 3, statusOf(must.Err(f.run(t, "exec", "n2", "--", "podweir", "repair"))))
	must.Fail(t, "exec on a node without an agent", must.Err(f.run(t, "exec", "n9", "--", "podweir", "repair")), "node n9 has no agent")
}

// Values come from the environment and a file, too, in the order of podweir's.
func TestValuesOfAFile(t *testing.T) {
	f := start(t, &fakeCluster{nodes: 2, pods: 1})
	dir := must.Files(t, t.TempDir(), map[string]string{"good.yaml": "output: json\nnode: n2\ninterval: 3s\n", "bad.yaml": "putout: yaml\n"}) // interval is a flag of top
	t.Setenv("PODWEIR_NODE", "n1")
	must.Have(t, "status by the file", expect(t, f, []string{"status", "--config", filepath.Join(dir, "good.yaml")}, 0, "team-a/n1-0"), "{", "!n2-0")
	expect(t, f, []string{"status", "--config", filepath.Join(dir, "bad.yaml")}, -1, `"putout" is no setting`)
}
