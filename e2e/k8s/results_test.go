// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

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
	if err := node.WriteFile(cluster.Conflist, node.Conflist("noter")); err != nil {
		t.Fatal(err)
	}
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
