// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// plugin is the directory in which "make plugin" puts kubectl-podweir.
const plugin = "../../bin"

// answer is what a command wrote, and its exit status.
type answer struct {
	out, failed string
	status      int
}

// text is all that it wrote, without line breaks: those come at 80 columns.
func (a *answer) text() string { return strings.Join(strings.Fields(a.out+" "+a.failed), " ") }

// is says whether it ended with a status and wrote these texts.
func (a *answer) is(status int, texts ...string) error {
	err := fmt.Errorf("exit status %d:\n%s%s", a.status, a.out, a.failed)
	if a.status != status {
		return fmt.Errorf("want exit status %d: %w", status, err)
	}
	for _, want := range texts {
		if !strings.Contains(a.text(), want) {
			return fmt.Errorf("want %q: %w", want, err)
		}
	}
	return nil
}

// reader is a user of "kubectl podweir", by the path of a kubeconfig.
type reader string

// newReader makes a ServiceAccount in a namespace of its name, and a kubeconfig for it.
// It has no rights.
func newReader(t *testing.T, name string) reader {
	t.Helper()
	suite.Kubectl(t, "create", "namespace", name)
	suite.Undo(t, "delete", "namespace", name, "--wait=false")
	suite.Kubectl(t, "-n", name, "create", "serviceaccount", "someone")
	token := suite.Kubectl(t, "-n", name, "create", "token", "someone")
	ca := must.Get(filepath.Abs(filepath.Join(suite.Dir, "pki/apiserver.crt")))(t)
	path := filepath.Join(t.TempDir(), name+".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: u, user: {token: %s}}]
`, suite.API(), ca, token)
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return reader(path)
}

// newOperator is a reader with the rights that docs/howto/see-the-whole-cluster.md gives.
func newOperator(t *testing.T) reader {
	t.Helper()
	r := newReader(t, "operators")
	suite.Kubectl(t, "-n", namespace, "create", "rolebinding", "podweir-operators", "--role=podweir-reader", "--group=system:serviceaccounts:operators")
	suite.Undo(t, "-n", namespace, "delete", "rolebinding", "podweir-operators")
	return r
}

// asks runs "kubectl podweir".
func (r reader) asks(ctx context.Context, args ...string) (*answer, error) {
	bin, err := filepath.Abs(plugin)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(suite.Components, "kubectl"), append([]string{"podweir"}, args...)...)
	cmd.Env = []string{"PATH=" + bin, "HOME=" + filepath.Dir(string(r)), "KUBECONFIG=" + string(r)}
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	err = cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		err = nil
	}
	return &answer{out.String(), failed.String(), cmd.ProcessState.ExitCode()}, err
}

// gets fails the test unless a command ends with a status and writes these texts.
func (r reader) gets(t *testing.T, status int, command string, texts ...string) *answer {
	t.Helper()
	a := must.Get(r.asks(t.Context(), strings.Fields(command)...))(t)
	if err := a.is(status, texts...); err != nil {
		t.Errorf("kubectl podweir %s: %v", command, err)
	}
	t.Logf("kubectl podweir %s: exit status %d\n%s%s", command, a.status, a.out, a.failed)
	return a
}

// soon waits until a command ends with a status and writes these texts.
func (r reader) soon(t *testing.T, status int, command string, texts ...string) {
	t.Helper()
	clustertest.Eventually(t, 30*time.Second, "kubectl podweir "+command, func(ctx context.Context) error {
		a, err := r.asks(ctx, strings.Fields(command)...)
		if err != nil {
			return err
		}
		return a.is(status, texts...)
	})
}

// TestPrivilegedKubectl asks the agents through the API server, with the rights that the
// documentation names and with fewer, about a pod at its limit and an idle one.
func TestPrivilegedKubectl(t *testing.T) {
	suite.Install(t)
	p := run(t, "busy", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	idle := run(t, "idle", 1, workload.Limits("20M", "10M"))
	p.limited(t, 20_000_000, 10_000_000)
	idle.limited(t, 20_000_000, 10_000_000)
	operator := newOperator(t)

	operator.soon(t, 0, "doctor", "2 nodes looked at", "No problem found.")
	operator.gets(t, 0, "status", "All 2 pods with a limit are limited as they should be.", "default/busy", "default/idle")
	operator.gets(t, 0, "status --node "+p.Node.Name, "The only pod with a limit is limited as it should be.")
	load(t, p, peer, func(ctx context.Context) error {
		if err := workload.Wait(6 * time.Second)(ctx); err != nil {
			return err
		}
		a := operator.gets(t, 0, "top --count 1 --flows", "default/busy", "egress", "ingress")
		must.Have(t, "top", a.out, "!default/idle")
		operator.gets(t, 0, "explain default/busy", "egress has been at its limit of 10 Mbit/s since", "ingress has been at its limit of 20 Mbit/s since", p.IP.String())
		operator.gets(t, 0, "explain default/idle", "egress carries next to nothing of its limit of 10 Mbit/s")
		return nil
	})
	operator.gets(t, 0, "explain PW602", "PW602")
	operator.gets(t, 0, "plan", "Nothing changes for 2 pods with limits that are enforced already.")
	operator.gets(t, 1, "explain default/peer", "no node has a limit for pod default/peer")

	operator.silent(t, p.Node)
	strangers(t)
}

// silent stops the agent of a node: the node is unknown, the other one is as before.
func (r reader) silent(t *testing.T, n *cluster.Node) {
	t.Helper()
	stopAgent(t, n)
	for _, command := range []string{"status", "doctor"} {
		r.gets(t, 2, command+" --request-timeout 1s", "1 of 2 nodes answered", "UNKNOWN", n.Name)
	}
}

// strangers have fewer rights than the documentation names: each command says which is
// missing, in one line, and where the rights are described.
func strangers(t *testing.T) {
	t.Helper()
	nobody := newReader(t, "strangers")
	const role = "Role NAME-reader"
	for _, command := range []string{"status", "top --count 1", "doctor", "explain default/busy", "plan"} {
		a := nobody.gets(t, 2, command, "cannot list resource \"pods\"", "system:serviceaccount:strangers:someone", role)
		if a.out != "" || strings.Count(a.failed, "\n") != 1 {
			t.Errorf("%s: want nothing but one line on stderr", command)
		}
	}
	grant := func(role string, rights ...string) {
		suite.Kubectl(t, append([]string{"-n", namespace, "create", "role", role}, rights...)...)
		suite.Undo(t, "-n", namespace, "delete", "role", role)
		suite.Kubectl(t, "-n", namespace, "create", "rolebinding", role, "--role="+role, "--group=system:serviceaccounts:strangers")
		suite.Undo(t, "-n", namespace, "delete", "rolebinding", role)
	}
	grant("lists", "--verb=list,get", "--resource=pods,daemonsets.apps")
	nobody.soon(t, 2, "status", "make a token of the account kube-system/podweir-reader", "cannot create resource \"serviceaccounts/token\"", role)

	// What all nodes have in common is told once.
	grant("tokens", "--verb=create", "--resource=serviceaccounts/token")
	nobody.soon(t, 2, "status", "0 of 2 nodes answered", "UNKNOWN 2 nodes: n1, n2", "cannot get resource \"pods/proxy\"", role)
}
