// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// handedMap is the ConfigMap that the doctor's commands make.
const handedMap = "podweir-cni-configuration"

// TestPrivilegedHanded lets Cilium write podweir into its own chain, by the commands
// that the doctor prints, and takes it out again, with a pod that runs under a
// policy. Runtimes before containerd 2.1 need it.
func TestPrivilegedHanded(t *testing.T) {
	bring(t, cilium.Legacy)
	p := underPolicy(t, "handed")
	suite.Install(t)
	t.Cleanup(func() { suite.Uninstall(t) })
	p.limited(t, "before", "drop-in", "host")

	handed := cilium.Legacy
	handed.ConfigMap = handedMap
	r := must.Get(workload.Load{Pod: p.shaped, Peer: p.far}.While(t.Context(), func(ctx context.Context) error {
		for _, step := range []func() error{
			func() error { return suite.Cluster.Upgrade(ctx, suite.Chart, suite.Values, "delivery=handed") },
			func() error { return suite.Rollout(ctx) },
			func() error { return p.handOver(t) },
			func() error { return release.Install(ctx, handed) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}))(t)
	clustertest.Judge(t, "while Cilium took podweir into its chain", r, 20_000_000, 10_000_000)
	written(t, true)
	// A pod from before keeps its queue; Cilium's chain asks for an ifb.
	p.limited(t, "handed", "handed", "")
	p.withoutAgent(t)
	suite.Green(t, p.shaped.Node)
	p.agentDeleted(t, "")

	both := cilium.BPF
	both.ConfigMap = handedMap
	bring(t, both)
	p.limited(t, "handed, BPF host routing", "handed", "ifb")

	// Back, in the order of the how-to: podweir first.
	suite.Install(t)
	bring(t, cilium.Legacy)
	written(t, false)
	p.limited(t, "drop-in again", "drop-in", "host")
}

// handOver does what the doctor says: Cilium's chain with podweir's entry behind it,
// as a ConfigMap. The values of Cilium's chart come after it.
func (p policed) handOver(t *testing.T) error {
	t.Helper()
	report, err := suite.Doctor(t.Context(), p.shaped.Node)
	if err != nil {
		return err
	}
	var told string
	for _, c := range report.Checks {
		told += c.Fix + "\n"
	}
	entry := regexp.MustCompile(`jq '\.plugins \+= \[(.*?)\]'`).FindStringSubmatch(told)
	if entry == nil || !strings.Contains(told, "cni.configMap="+handedMap) {
		return fmt.Errorf("the doctor does not say how Cilium takes podweir into its chain: %s", told)
	}
	t.Logf("entry: %s", entry[1])
	raw, err := os.ReadFile(p.shaped.Node.Path(cilium.Conflist))
	if err != nil {
		return err
	}
	var chain map[string]any
	var own any
	if err := errors.Join(json.Unmarshal(raw, &chain), json.Unmarshal([]byte(entry[1]), &own)); err != nil {
		return err
	}
	chain["plugins"] = append(chain["plugins"].([]any), own)
	if raw, err = json.Marshal(chain); err != nil {
		return err
	}
	file := filepath.Join(t.TempDir(), "cni-config")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	suite.Undo(t, "-n", "kube-system", "delete", "configmap", "--ignore-not-found", handedMap)
	_, err = suite.Cluster.Kubectl(t.Context(), "", "-n", "kube-system", "create", "configmap", handedMap, "--from-file="+file)
	return err
}

// written waits until the files on every node are those of the delivery: Cilium's
// conflist with podweir in it and no other file of podweir's, or the drop-in.
func written(t *testing.T, handed bool) {
	t.Helper()
	for _, n := range suite.Members {
		clustertest.Eventually(t, 60*time.Second, "files on "+n.Name, func(ctx context.Context) error {
			raw, err := os.ReadFile(n.Path(cilium.Conflist))
			if err != nil {
				return err
			}
			out, err := n.Exec(ctx, "find", "/etc/cni/net.d", "-name", "*podweir*")
			if err == nil && (strings.Contains(string(raw), "podweir-cni") != handed || (out == "") != handed) {
				err = fmt.Errorf("files of podweir's: %q; Cilium's: %s", out, raw)
			}
			return err
		})
	}
}

// withoutAgent makes a pod while podweir's agent hangs: Cilium's chain alone limits
// it.
func (p policed) withoutAgent(t *testing.T) {
	t.Helper()
	node := p.shaped.Node
	must.OK(t, must.Err(node.Exec(t.Context(), "pkill", "-STOP", "-x", "podweir")))
	defer func() {
		if _, err := node.Exec(context.WithoutCancel(t.Context()), "pkill", "-CONT", "-x", "podweir"); err != nil {
			t.Error(err)
		}
	}()
	alone := pod(t, "alone", "alone", 0, workload.Limits("50M", "30M"))
	clustertest.Holds(t, "the plugin alone", alone, p.far, 50_000_000, 30_000_000)
}
