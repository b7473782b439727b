// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"fmt"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// daemonSet is the part of a CNI that is a DaemonSet with one process on each node.
type daemonSet struct {
	namespace, name string
	// file is the conflist that its pods write.
	file string
	// process matches the command line of the process, and back is the shell's condition
	// that it is ready again; "" is none.
	process, back string
}

// Ready wants a pod that is ready on every node.
func (d *daemonSet) Ready(ctx context.Context, c *cluster.Cluster) error {
	ready, err := c.Kubectl(ctx, "", "-n", d.namespace, "get", "daemonset", d.name, "-o", "jsonpath={.status.numberReady}")
	if err == nil && ready != fmt.Sprint(len(c.Members)) {
		err = fmt.Errorf("%s of %d %s are ready", ready, len(c.Members), d.name)
	}
	return err
}

// Booted has nothing to do: the kubelet starts the pod.
func (d *daemonSet) Booted(context.Context, *cluster.Node) error { return nil }

// Conflist is what the pod writes.
func (d *daemonSet) Conflist() string { return "/etc/cni/net.d/" + d.file }

// KillAgent kills the process, and returns when another one runs and is ready.
func (d *daemonSet) KillAgent(ctx context.Context, _ *cluster.Cluster, n *cluster.Node) error {
	out, err := n.Exec(ctx, "bash", "-c", `
old=$(pgrep -f "$1") && kill -KILL $old || exit
for _ in $(seq 600); do
	sleep 0.1
	new=$(pgrep -f "$1") && [ "$new" != "$old" ] && eval "${2:-true}" && exit
done 2>/dev/null
echo "$1 is not back after a minute" >&2
exit 1`, "bash", d.process, d.back)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Logs are the last words of its pods.
func (d *daemonSet) Logs(ctx context.Context, n *cluster.Node) string {
	out, err := n.Exec(ctx, "bash", "-c", "cat /var/log/pods/"+d.namespace+"_"+d.name+"-*/*/*.log | tail -n 200")
	return strings.TrimSpace(out + "\n" + errorText(err))
}

// answers is the shell's condition that a port of the node answers a path well, given as
// port/path.
func answers(at string) string {
	port, path, _ := strings.Cut(at, "/")
	return "exec 3<>/dev/tcp/127.0.0.1/" + port + ` && printf 'GET /` + path + ` HTTP/1.0\r\n\r\n' >&3 && head -n1 <&3 | grep -q ' 20[04]'`
}
