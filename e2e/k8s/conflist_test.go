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
	"github.com/podweir/podweir/plugin/testutil/must"
)

// rewrites of the primary CNI's conflist, and how long each version stays.
const rewrites = 100

// TestPrivilegedConflistRewritten lets the primary CNI write its conflist again and again, in
// every way, while pods are made.
func TestPrivilegedConflistRewritten(t *testing.T) {
	install(t, "delivery=chain")
	node := suite.Members[0]
	peer := run(t, "peer", 1, nil)
	t.Cleanup(func() {
		if err := node.WriteFile(cluster.Conflist, node.Conflist()); err != nil {
			t.Error(err)
		}
	})
	var made []map[string]any
	for i := range 10 {
		made = append(made, manifest(fmt.Sprintf("born-%d", i), node, limits("20M", "10M")))
	}
	// %d is put where ptp has its MTU, so that a chain that lags can be told.
	versioned := strings.Replace(node.Conflist(), `"type": "ptp",`, `"type": "ptp", "mtu": MTU,`, 1)
	done := make(chan error, 1)
	go func() {
		const script = `
for i in $(seq 1 "$2"); do
	text=${3/MTU/$((1300 + i))}
	case $((i % 3)) in
	0) printf %s "$text" >"$1" ;;                         # in place
	1) printf %s "$text" >"$1.new" && mv "$1.new" "$1" ;; # by its name
	2) rm "$1" && sleep 0.05 && printf %s "$text" >"$1" ;;  # away and back
	esac
	sleep 0.1
done`
		_, err := node.Exec(t.Context(), "bash", "-c", script, "bash", cluster.Conflist, fmt.Sprint(rewrites), versioned)
		done <- err
	}()
	for i, m := range made {
		create(t, m)
		ready(t, fmt.Sprintf("born-%d", i)) // one at a time: at all times of the changes
	}
	must.OK(t, <-done)
	t.Logf("the primary CNI's conflist rewritten, pods made meanwhile: %d times, %d pods", rewrites, len(made))
	eventually(t, time.Second, "chain", func(ctx context.Context) error {
		out, err := node.Exec(ctx, "cat", "/etc/cni/net.d/00-podweir-10-lab.conflist")
		newest := strings.Contains(out, fmt.Sprint(1300+rewrites)) && strings.Contains(out, "podweir-cni")
		if err == nil && !newest {
			err = fmt.Errorf("it is not the newest: %s", out)
		}
		return err
	})
	for i := range made {
		p := ready(t, fmt.Sprintf("born-%d", i))
		p.limited(t, 20_000_000, 10_000_000)
		list, err := events(t.Context(), p.Name)
		must.OK(t, err)
		for _, e := range list {
			if e.Type == "Warning" {
				t.Errorf("%s: %s: %s", p.Name, e.Reason, e.Message)
			}
		}
	}
	last := ready(t, fmt.Sprintf("born-%d", len(made)-1))
	measure(t, last, peer).holds(t, "a pod made meanwhile", 20_000_000, 10_000_000)
}

// noter is a plugin that adds an entry of aws-cni's to the result: it names no device, and
// has a number for a sandbox.
const noter = `#!/bin/bash
in=$(cat)
[ "$CNI_COMMAND" = ADD ] || { [ "$CNI_COMMAND" != VERSION ] || echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit 0; }
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
printf '%s,{"name":"dummye8cbf0e0b1b","mac":"0","sandbox":"0"}%s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
`

// TestPrivilegedResultOfAWS annotates a running pod whose CNI result ends with a note
// of aws-cni's: an entry that names no device, with a number for a sandbox.
func TestPrivilegedResultOfAWS(t *testing.T) {
	install(t, "delivery=chain")
	node := suite.Members[0]
	const path = "/opt/cni/bin/noter"
	must.OK(t, node.WriteFile(path, noter))
	if _, err := node.Exec(t.Context(), "chmod", "0755", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.WriteFile(cluster.Conflist, node.Conflist()); err != nil {
			t.Error(err)
		}
	})
	must.OK(t, node.WriteFile(cluster.Conflist, node.Conflist("noter")))
	eventually(t, 10*time.Second, "the chain with the note", func(ctx context.Context) error {
		out, err := node.Exec(ctx, "cat", "/etc/cni/net.d/00-podweir-10-lab.conflist")
		if err == nil && !strings.Contains(out, "noter") {
			err = errors.New(out)
		}
		return err
	})
	p := run(t, "noted", 0, nil)
	peer := run(t, "peer", 1, nil)
	p.annotate(t, limits("20M", "10M"))
	p.limited(t, 20_000_000, 10_000_000)
	measure(t, p, peer).holds(t, "a pod with aws-cni's note in its result", 20_000_000, 10_000_000)
	green(t, node)
}
