// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedAgentOfManyGroups: 110 pods of 20 namespaces with limits, two busy pods in each, cost the agent
// little memory. What it takes of a processor is logged: a machine that is busy elsewhere decides nothing.
func TestPrivilegedAgentOfManyGroups(t *testing.T) {
	mark.Slow(t, "it makes 110 pods")
	testutil.RequireQdisc(t, "htb", "tbf")
	const groups, pods = 20, 110
	n := newTestNode(t)
	for g := range groups {
		n.api.PutNamespace(fmt.Sprint("group-", g), map[string]string{"podweir.io/node-ingress-rate": "10M", "podweir.io/node-egress-rate": "10M"})
	}
	var into []*sender
	for i := range pods {
		ns, host := testutil.NewNetNS(t), fmt.Sprintf("veth%d", i)
		testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: n.NetNS, Name: host})
		pod := n.podOf(i, nil)
		pod.Namespace = fmt.Sprint("group-", i%groups)
		must.OK(t, n.runtime.Add(critest.Sandbox{ID: fmt.Sprintf("sandbox-%d", i), UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, NetNS: ns.Path()}))
		n.api.Put(pod)
		if i < 2*groups {
			into = append(into, newSender(t, n.NetNS, host))
		}
	}
	a := n.startAs(t, []string{"nice", "-n", "-20"})
	mail := engine.Paths{Run: n.run}.Mail()
	a.until(t, 3*time.Minute, "all limits are divided", func() (bool, string) {
		all, err := mail.Groups()
		divided := 0
		for i := range all {
			divided += all[i].Pods
		}
		return divided == 2*pods, fmt.Sprintf("%d queues are in %d groups, %v", divided, len(all), err)
	})
	a.until(t, 30*time.Second, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
	// One pod of each namespace without an end, the other one now and then.
	begun := time.Now()
	often(t, 4*time.Millisecond, func() {
		burst := time.Since(begun)%(240*time.Millisecond) < 40*time.Millisecond
		for i, s := range into {
			if i < groups || burst {
				s.send(7)
			}
		}
	})
	a.sample(t, 2*time.Second)
	looks := a.reconciled(t) // a scrape is not what is measured
	from, before := time.Now(), a.processorTime(t)
	a.sample(t, 10*time.Second)
	took := 100 * (a.processorTime(t) - before).Seconds() / time.Since(from).Seconds()
	// Changes of shares are no drift: nobody looks at the pods for them.
	must.AtMost(t, "pods that the agent looked at while it divided, for none of which a share is a reason", pods/10, a.reconciled(t)-looks)
	status := exec.CommandContext(t.Context(), os.Args[0], "status", "-o", "wide", "--pins", n.pins, "--run", n.run)
	status.Env = append(os.Environ(), envCommand+"=1")
	var wide []byte
	if err := n.Do(func() (err error) { wide, err = status.Output(); return err }); err != nil {
		t.Errorf("status: %v, want every pod limited:\n%.3000s", err, wide)
	}
	const gives, of = "namespace: the agent gives it ", "Mbit/s now of the 10 Mbit/s that the pods of its namespace have together on this node\n"
	if n := strings.Count(string(wide), gives); n != 2*pods || !strings.Contains(string(wide), of) {
		t.Errorf("status says %d times what the agent gives a pod, want it of both directions of %d:\n%.3000s", n, pods, wide)
	}
	all := must.Get(mail.Groups())(t)
	used := 0.0
	for i := range all {
		used += float64(all[i].Sent) / float64(all[i].Limit) / groups
	}
	t.Logf("%d limits, %.2f of them used; the agent took %.2f %% of a processor", len(all), used, took)
	if len(all) != 2*groups || used < 0.2 { // a machine that is busy elsewhere sends little
		t.Errorf("%d limits, of which the pods use %.2f, want %d, and some of each", len(all), used, 2*groups)
	}
	must.AtMost(t, "bytes of the agent", mostMemory, a.most)
}

// Under flat, and without a ceiling, the agent divides a group's limit, too.
func TestPrivilegedAgentDividesUnderFlat(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf")
	n := newTestNode(t)
	n.api.PutNamespace("default", map[string]string{"podweir.io/node-ingress-rate": "16M", "podweir.io/node-egress-rate": "16M"})
	pods := []*testutil.NetNS{n.pod(t, 1, nil), n.pod(t, 2, nil)}
	a := n.startAs(t, withFlags(t, "--default policy=flat --default egressCeiling=off"))
	devices := map[*testutil.NetNS]string{n.NetNS: "veth1", pods[0]: "eth0"}
	a.until(t, time.Minute, "the limits are divided", func() (bool, string) {
		all, err := engine.Paths{Run: n.run}.Mail().Groups()
		return len(all) == 2 && all[0].Pods == 2, fmt.Sprint(all, err)
	})
	most := regexp.MustCompile(`class htb \w+:4 .* rate 1[3-6](\.\d+M|M|\d{3}K)bit `)
	for ns, device := range devices {
		// It goes on while tc runs, which beside other tests takes long.
		s := newSender(t, ns, device)
		often(t, 4*time.Millisecond, func() { s.send(7) })
		a.until(t, time.Minute, "the pod that sends has most of the limit", func() (bool, string) {
			out := ns.Run(t, "tc", "class", "show", "dev", device)
			return most.MatchString(out), out
		})
	}
}

// reconciled is how often the agent looked at a pod to see whether it is as it should be.
func (a *agentProcess) reconciled(t *testing.T) (sum int) {
	t.Helper()
	status, body, err := a.get(t.Context(), "127.0.0.1"+testMetrics, "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics = %d, %v", status, err)
	}
	for line := range strings.Lines(body) {
		if _, count, is := strings.Cut(line, "} "); is && strings.HasPrefix(line, "podweir_reconcile_duration_seconds_count{") {
			n := must.Get(strconv.Atoi(strings.TrimSpace(count)))(t)
			sum += n
		}
	}
	if sum == 0 {
		t.Fatalf("no looks in /metrics:\n%s", body)
	}
	return sum
}

// processorTime is what all threads of the agent took.
func (a *agentProcess) processorTime(t *testing.T) (sum time.Duration) {
	t.Helper()
	all := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", a.cmd.Process.Pid)))(t)
	for _, path := range all {
		var took time.Duration
		b := must.Get(os.ReadFile(path))(t)
		must.OK(t, must.Err(fmt.Sscan(string(b), &took)))
		sum += took
	}
	return sum
}

// sender sends frames through a device.
type sender struct {
	fd int
	to unix.SockaddrLinklayer
}

func newSender(t *testing.T, ns *testutil.NetNS, device string) *sender {
	t.Helper()
	s := &sender{to: unix.SockaddrLinklayer{Ifindex: ns.Interface(t, device).Index, Halen: 6}}
	must.OK(t, ns.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}))
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

// send sends full frames of a protocol for experiments, or as many as the queue takes; 7 are what 10 Mbit/s take in 8 ms.
func (s *sender) send(frames int) {
	var frame [1500]byte
	for i := range 12 {
		frame[i] = 0xff
	}
	frame[12], frame[13] = 0x88, 0xb5
	for range frames {
		if unix.Sendto(s.fd, frame[:], 0, &s.to) != nil {
			return
		}
	}
}
