// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package aws_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/aws"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	policyOn, policyOff = "enableNetworkPolicy=true", "enableNetworkPolicy=false"
	bandwidth           = "env.ENABLE_BANDWIDTH_PLUGIN=true"
)

// vpc brings AWS's chart to these values, and all others to those of values.yaml.
func vpc(t *testing.T, set ...string) {
	t.Helper()
	err := amazon.Install(t.Context(), set...)
	if err == nil {
		err = amazon.Wait(t.Context())
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, kubectl(t, "-n", "kube-system", "describe", "pods", "-l", "k8s-app=aws-node"))
	}
}

// policy lets one peer alone talk to pods, and waits until that is enforced. It is
// withdrawn with the test.
func policy(t *testing.T, name string, peer *workload.Pod, pods ...*workload.Pod) {
	t.Helper()
	must.OK(t, amazon.Apply(t.Context(), aws.Policy{Name: name, Pods: pods, Friends: []*workload.Pod{peer}}))
	t.Cleanup(func() {
		if err := amazon.Withdraw(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
}

// enforced waits until a server is reached by one client and not by the other.
func enforced(t *testing.T, what string, server, allowed, denied *workload.Pod) {
	t.Helper()
	eventually(t, 20*time.Second, what, func(context.Context) error {
		var wrong error
		if denied.Reach(t.Context(), server) == nil {
			wrong = fmt.Errorf("%s reaches %s", denied.Name, server.Name)
		}
		if err := allowed.Reach(t.Context(), server); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s does not reach %s: %w", allowed.Name, server.Name, err))
		}
		return wrong
	})
}

// TestPrivilegedPodFromBefore has a pod with limits that ran before podweir, and one
// that gets its limits while it runs: aws-cni's result has a dummy interface with
// the sandbox "0".
func TestPrivilegedPodFromBefore(t *testing.T) {
	uninstall(t)
	vpc(t, policyOn)
	early := run(t, "early-1", 0, workload.Limits("50M", "30M"))
	later := run(t, "later-1", 0, nil)
	peer := run(t, "peer-1", 1, nil)
	keeps(t, "before podweir", early, peer, 0, 0)
	install(t)
	eventually(t, 20*time.Second, "a pod from before podweir", shaped(early))
	keeps(t, "a pod from before podweir", early, peer, 50_000_000, 30_000_000)
	must.OK(t, later.Annotate(t.Context(), workload.Limits("50M", "30M")))
	eventually(t, 20*time.Second, "a pod annotated while it runs", shaped(later))
	keeps(t, "a pod annotated while it runs", later, peer, 50_000_000, 30_000_000)
	green(t)
}

// batch is how many pods one call of kubectl makes, which takes a second or two, and
// mostBorn how many there are: half of them on each node.
const (
	batch    = 4
	mostBorn = 32
)

// TestPrivilegedRolled starts pods with limits all the time while aws-node is
// replaced on each node, which writes its conflist again: every pod that runs has
// a queue.
func TestPrivilegedRolled(t *testing.T) {
	vpc(t, policyOn)
	install(t)
	rolled := make(chan error, 1)
	go func() { rolled <- amazon.Roll(t.Context()) }()
	var names []string
	for over := false; !over; {
		var manifests []map[string]any
		for range batch {
			names = append(names, fmt.Sprintf("born%d-1", len(names)))
			manifests = append(manifests, manifest(names[len(names)-1], len(names)%2, workload.Limits("20M", "10M")))
		}
		create(t, manifests...)
		select {
		case err := <-rolled:
			must.OK(t, err)
			over = true
		default:
			over = len(names) == mostBorn
		}
	}
	t.Logf("%d pods", len(names))
	// The Network Policy Agent loads its programs for one pod after the other, which
	// takes a second or two each, and the kubelet waits longer after each failure.
	kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout=4m", "pod"}, names...)...)
	for _, name := range names {
		p := ready(t, name)
		eventually(t, 2*time.Second, "pods made while aws-node was replaced", shaped(p))
	}
	if events := kubectl(t, "get", "events", "--field-selector", "reason=BandwidthNotEnforced", "-o", "jsonpath={.items[*].message}"); events != "" {
		t.Errorf("Events: %s", events)
	}
	green(t)
}

// TestPrivilegedPolicy has network policy on before podweir comes, pods from before
// and after, the policy agent killed, and a policy that is turned round.
func TestPrivilegedPolicy(t *testing.T) {
	uninstall(t)
	vpc(t, policyOn)
	before := run(t, "before-1", 0, workload.Limits("50M", "30M"))
	friend, stranger := run(t, "friend-1", 1, nil), run(t, "stranger-1", 1, nil)
	policy(t, "before", friend, before)
	enforced(t, "without podweir", before, friend, stranger)
	install(t)
	enforced(t, "podweir after the policy", before, friend, stranger)
	keeps(t, "podweir after the policy", before, friend, 50_000_000, 30_000_000)

	after := run(t, "after-1", 0, workload.Limits("50M", "30M"))
	policy(t, "after", friend, after)
	enforced(t, "a pod from after podweir", after, friend, stranger)
	keeps(t, "a pod from after podweir", after, friend, 50_000_000, 30_000_000)

	must.OK(t, amazon.Kill(t.Context(), suite.Members[0], "controller"))
	enforced(t, "NPA killed", after, friend, stranger)
	eventually(t, time.Minute, "NPA started again", func(ctx context.Context) error {
		return amazon.AgentReady(ctx, suite.Members[0])
	})
	enforced(t, "NPA back", after, friend, stranger)
	keeps(t, "NPA back", after, friend, 50_000_000, 30_000_000)
	green(t)

	policy(t, "after", stranger, after)
	enforced(t, "policy turned round", after, stranger, friend)
	keeps(t, "policy turned round", after, stranger, 50_000_000, 30_000_000)
}

// TestPrivilegedPolicySwitchedOn has podweir first and network policy later.
func TestPrivilegedPolicySwitchedOn(t *testing.T) {
	vpc(t, policyOff)
	install(t)
	server := run(t, "server-1", 0, workload.Limits("50M", "30M"))
	friend, stranger := run(t, "friend-1", 1, nil), run(t, "stranger-1", 1, nil)
	keeps(t, "without policy", server, friend, 50_000_000, 30_000_000)
	policy(t, "server", friend, server)
	vpc(t, policyOn)
	enforced(t, "policy switched on beside podweir", server, friend, stranger)
	keeps(t, "policy switched on beside podweir", server, friend, 50_000_000, 30_000_000)
	green(t)
}

// TestPrivilegedStockBandwidth keeps what the reference plugin "bandwidth" does in
// podweir's place, two lines of a table in README. If it fails because AWS or the
// plugin is better than that, README has to change.
func TestPrivilegedStockBandwidth(t *testing.T) {
	uninstall(t)
	vpc(t, policyOff, bandwidth)
	friend, stranger := run(t, "friend-1", 1, nil), run(t, "stranger-1", 1, nil)
	first := run(t, "first-1", 0, workload.Limits("50M", "30M"))
	policy(t, "first", friend, first)
	vpc(t, policyOn, bandwidth)

	// Whatever the policy agent does, it does it within some seconds.
	control := run(t, "control-1", 0, nil)
	policy(t, "control", friend, control)
	enforced(t, "a pod without a limit", control, friend, stranger)
	if err := stranger.Reach(t.Context(), first); err != nil {
		t.Errorf("bandwidth first, policy later: the denied connection fails now: %v", err)
	}

	in := run(t, "in-1", 0, map[string]string{"kubernetes.io/ingress-bandwidth": "50M"})
	policy(t, "in", friend, in)
	enforced(t, "an ingress limit", in, friend, stranger)

	create(t, manifest("out-1", 0, map[string]string{"kubernetes.io/egress-bandwidth": "30M"}))
	eventually(t, 30*time.Second, "the sandbox of a pod with an egress limit", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "", "get", "events", "--field-selector", "involvedObject.name=out-1,reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, "create ingress qdisc: file exists") {
			err = fmt.Errorf("its events are %q", out)
		}
		return err
	})
}
