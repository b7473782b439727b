// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/cri/critest"
	"github.com/podweir/podweir/plugin/testutil"
)

// TestPrivilegedDeliveryWatch: without NRI and with nothing on the node the agent is
// ready, and a pod gets its limit by what the API server and the runtime say.
func TestPrivilegedDeliveryWatch(t *testing.T) {
	n := newTestNode(t)
	nri := n.startAs(t, []string{"env", "PODWEIR_DELIVERY=nri"})
	nri.until(t, time.Minute, "with nri the agent is not ready for want of NRI alone", func() (bool, string) {
		_, text := nri.ready(t.Context())
		return strings.Count(text, "ok: ") >= 5 && !strings.Contains(text, "ok: nri"), text
	})
	nri.end()

	a := n.startAs(t, []string{"env", "PODWEIR_DELIVERY=watch"})
	a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })

	// As the kubelet has it: the pod is bound to the node, then has a sandbox, and then
	// the API server learns of its address.
	annotations := map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "10M"}
	bound := n.podOf(1, annotations)
	bound.PodIP, bound.Phase = "", "Pending"
	n.api.Put(bound)
	a.sample(t, 1500*time.Millisecond) // it was looked for twice, in vain
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: n.NetNS, Name: "veth1"})
	if err := n.runtime.Add(critest.Sandbox{ID: "sandbox-1", UID: "uid-1", NetNS: ns.Path(), Annotations: annotations}); err != nil {
		t.Fatal(err)
	}
	n.api.Put(n.podOf(1, annotations))
	began := time.Now()
	a.until(t, 10*time.Second, "the pod is shaped", func() (bool, string) { return a.outcomes("attached") == 1, "it is not" })
	t.Logf("limited %v after the API server had its address", time.Since(began).Round(time.Millisecond))

	var files []string
	for _, dir := range []string{"etc/cni/net.d", "opt/cni/bin", "var/lib"} {
		entries, err := os.ReadDir(filepath.Join(n.root, dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			files = append(files, e.Name())
		}
	}
	if !slices.Equal(files, []string{"10-net.conflist"}) {
		t.Errorf("files of the node %v, want nothing of podweir's", files)
	}
}
