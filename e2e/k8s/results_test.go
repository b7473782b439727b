// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// noter is a plugin that adds an interface to the result, with the name "note" and
// the sandbox "noteSandbox" of its entry; the pod's own if that is empty.
const noter = `#!/bin/bash
in=$(cat)
[ "$CNI_COMMAND" = ADD ] || { [ "$CNI_COMMAND" != VERSION ] || echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit 0; }
[[ $in =~ \"note\":\"([^\"]*)\" ]] && name=${BASH_REMATCH[1]}
[[ $in =~ \"noteSandbox\":\"([^\"]*)\" ]] && sandbox=${BASH_REMATCH[1]}
result=${in#*\"prevResult\":}
for ((i = 0, depth = 0; i < ${#result}; i++)); do
	case ${result:i:1} in
	'{') depth=$((depth + 1)) ;;
	'}') depth=$((depth - 1)) ;;
	esac
	[ "$depth" -gt 0 ] || break
done
result=${result:0:i+1}
[[ $result =~ (.*\"interfaces\":\[[^]]*)(\].*) ]]
printf '%s,{"name":"%s","mac":"0","sandbox":"%s"}%s\n' "${BASH_REMATCH[1]}" "$name" "${sandbox:-$CNI_NETNS}" "${BASH_REMATCH[2]}"
`

// noted puts the noter into a node's chain, and waits until the runtime uses it with
// podweir behind it.
func noted(t *testing.T, node *cluster.Node, name, sandbox string) {
	t.Helper()
	const path = "/opt/cni/bin/noter"
	if err := node.WriteFile(path, noter); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Exec(t.Context(), "chmod", "0755", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.WriteFile(cluster.Conflist, node.Conflist()); err != nil {
			t.Error(err)
		}
	})
	const entry = `"type": "noter",`
	settings := fmt.Sprintf(` "note": %q, "noteSandbox": %q,`, name, sandbox)
	if err := node.WriteFile(cluster.Conflist, strings.Replace(node.Conflist("noter"), entry, entry+settings, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the chain with the note", func(ctx context.Context) error {
		out, err := node.Exec(ctx, "cat", "/etc/cni/net.d/00-podweir-10-lab.conflist")
		if err == nil && !strings.Contains(out, name) {
			err = errors.New(out)
		}
		return err
	})
}

// TestPrivilegedResultOfAWS annotates a running pod whose CNI result ends with a note
// of aws-cni's: an entry that names no device, with a number for a sandbox.
func TestPrivilegedResultOfAWS(t *testing.T) {
	install(t, "delivery=chain")
	node := suite.Members[0]
	noted(t, node, "dummye8cbf0e0b1b", "0")
	p := run(t, "noted", 0, nil)
	peer := run(t, "peer", 1, nil)
	p.annotate(t, limits("20M", "10M"))
	p.limited(t, 20_000_000, 10_000_000)
	measure(t, p, peer).holds(t, "a pod with aws-cni's note in its result", 20_000_000, 10_000_000)
	green(t, node)
}

// TestPrivilegedLimitOverdue has the result name an interface that the pod lacks, and a
// pod whose eth0 has another name. The agent cannot shape it: that is told by an Event, a
// metric and the doctor, as long as the pod asks for a limit.
func TestPrivilegedLimitOverdue(t *testing.T) {
	install(t, "delivery=chain")
	node := suite.Members[0]
	noted(t, node, "ghost0", "")
	p := run(t, "overdue", 0, nil)
	if out, err := p.inNetns(t.Context(), "sh", "-c", "ip link set eth0 down && ip link set eth0 name other0 && ip link set other0 up"); err != nil {
		t.Fatalf("rename eth0: %v: %s", err, out)
	}
	p.annotate(t, limits("20M", "10M"))
	if e := sees(t, p.Name, "runs without its limit", "ghost0"); e.Type != "Warning" || e.Reason != "BandwidthNotEnforced" {
		t.Errorf("the Event is %+v, want a warning BandwidthNotEnforced", e)
	}
	overdue := func(want string) {
		t.Helper()
		metrics(t, node, func(page string) error {
			if got := strings.TrimSpace(grep(page, `podweir_unshaped_pods{reason="overdue"}`)); !strings.HasSuffix(got, " "+want) {
				return fmt.Errorf("%q, want %s", got, want)
			}
			return nil
		})
	}
	overdue("1")
	out, err := podweir(t, node, "doctor")
	out = strings.Join(strings.Fields(out), " ") // its lines are broken at 80 columns
	if err == nil || !strings.Contains(out, "PW610") || !strings.Contains(out, "default/"+p.Name+" since ") {
		t.Errorf("doctor says %v\n%s\nwant PW610 and the pod", err, out)
	}
	p.annotate(t, map[string]string{egressKey: "", "kubernetes.io/ingress-bandwidth": ""})
	overdue("0")
	green(t, node)
}
