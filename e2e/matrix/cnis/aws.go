// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/aws"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// vpc is the Amazon VPC CNI with the Network Policy Agent.
type vpc struct {
	// set are values of AWS's chart, later those that are set while pods run.
	set, later []string
	network    aws.Network
	// here is the directory of e2e/aws, made what its setup.sh made.
	here, made string
	vpc        *aws.VPC
}

// newVPC reads the version that a row has of the Network Policy Agent, and behind "to"
// the one to which it is upgraded.
func newVPC(r *row.Row) CNI {
	_, versions, _ := strings.Cut(r.Version, "Network Policy Agent ")
	first, next, upgraded := strings.Cut(versions, " to ")
	later := variantHas(r, "later")
	v := &vpc{set: []string{
		agentVersion(first),
		fmt.Sprintf("enableNetworkPolicy=%t", !later),
		fmt.Sprintf("env.ENABLE_BANDWIDTH_PLUGIN=%t", variantHas(r, "bandwidth")),
	}}
	switch {
	case upgraded:
		v.later = []string{agentVersion(next)}
	case later:
		v.later = []string{"enableNetworkPolicy=true"}
	}
	if variantHas(r, "IPv6") {
		v.network.IPv6 = true
		v.set = append(v.set, "env.ENABLE_IPv4=false", "env.ENABLE_IPv6=true", "env.ENABLE_PREFIX_DELEGATION=true",
			"init.env.ENABLE_IPv6=true", "nodeAgent.enableIpv6=true")
		return twoInterfaces{v, nil, "v4if0"}
	}
	if variantHas(r, "multi-NIC") {
		v.network.TwoCards = true
		v.set = append(v.set, "env.ENABLE_MULTI_NIC=true")
		return twoInterfaces{v, map[string]string{"k8s.amazonaws.com/nicConfig": "multi-nic-attachment"}, "mNicIf1"}
	}
	if variantHas(r, "strict") {
		v.set = append(v.set, "env.NETWORK_POLICY_ENFORCING_MODE=strict")
		return strictVPC{v}
	}
	return v
}

// twoInterfaces gives pods a second interface: those with the annotations.
type twoInterfaces struct {
	*vpc
	annotations map[string]string
	name        string
}

// Second is the interface's name, and the annotations with which a pod gets it.
func (t twoInterfaces) Second() (name string, annotations map[string]string) {
	return t.name, t.annotations
}

// Outbound says whether the interface is for connections that the pod makes.
func (t twoInterfaces) Outbound() bool { return t.network.IPv6 }

// strictVPC has a Network Policy Agent under which no policy is no traffic.
type strictVPC struct{ *vpc }

// Admit gives a pod a policy of its own.
func (v strictVPC) Admit(ctx context.Context, p *workload.Pod) error {
	return v.vpc.vpc.Apply(ctx, aws.Policy{Name: p.Name, Pods: []*workload.Pod{p}, Everybody: true})
}

// Lift puts the policy of before Restrict back, which has the same name.
func (v strictVPC) Lift(ctx context.Context, _ *cluster.Cluster, server *workload.Pod) error {
	return v.Admit(ctx, server)
}

// Images are those of AWS's chart.
func (v *vpc) Images(ctx context.Context, here string) (images []string, err error) {
	v.here = filepath.Join(here, "../aws")
	v.made, images, err = aws.Build(ctx, v.here)
	return images, err
}

// Install installs AWS's chart.
func (v *vpc) Install(ctx context.Context, c *cluster.Cluster) (err error) {
	if v.vpc, err = aws.New(ctx, c, v.here, v.made, v.network); err != nil {
		return err
	}
	return v.vpc.Install(ctx, v.set...)
}

// agentVersion is the value of AWS's chart for a version of the Network Policy Agent,
// which is not always that of AWS's own pair.
func agentVersion(v string) string { return "nodeAgent.image.tag=" + v }

// Changes roll aws-node with values that are set while pods run. Denied traffic may pass
// meanwhile, as it does without podweir.
func (v *vpc) Changes() []Change {
	if len(v.later) == 0 {
		return nil
	}
	return []Change{{What: strings.Join(v.later, ", "), Do: func(ctx context.Context) error {
		if err := v.vpc.Install(ctx, slices.Concat(v.set, v.later)...); err != nil {
			return err
		}
		return v.vpc.Wait(ctx)
	}}}
}

// Ready looks at aws-node and the Network Policy Agent.
func (v *vpc) Ready(ctx context.Context, _ *cluster.Cluster) error { return v.vpc.Ready(ctx) }

// Booted puts back what EC2 does for a node.
func (v *vpc) Booted(ctx context.Context, n *cluster.Node) error { return v.vpc.Booted(ctx, n) }

// Conflist is the file of aws-node.
func (v *vpc) Conflist() string { return aws.Conflist }

// Uninstall removes AWS's release. What it leaves on nodes goes when they are
// restarted.
func (v *vpc) Uninstall(ctx context.Context, _ *cluster.Cluster) error {
	return errors.Join(v.vpc.Uninstall(ctx), v.vpc.Close())
}

// KillAgent kills the Network Policy Agent and ipamd.
func (v *vpc) KillAgent(ctx context.Context, _ *cluster.Cluster, n *cluster.Node) error {
	for _, program := range []string{"controller", "aws-k8s-agent"} {
		if err := v.vpc.Kill(ctx, n, program); err != nil {
			return err
		}
		if err := v.vpc.Wait(ctx); err != nil {
			return fmt.Errorf("after the end of %s: %w", program, err)
		}
	}
	return nil
}

// Logs are the last words of ipamd, aws-cni and the Network Policy Agent; the file that
// was written last is the last.
func (v *vpc) Logs(ctx context.Context, n *cluster.Node) string {
	out, err := n.Exec(ctx, "bash", "-c", `ls -tr /var/log/pods/kube-system_aws-node-*/*/*.log /var/log/aws-routed-eni/*.log |
		while read -r f; do echo "==> $f"; tail -n 200 "$f"; done`)
	return strings.TrimSpace(out + "\n" + errorText(err))
}

// Batch leaves a few of a node's 49 addresses to the pods that stay: ipamd gives those
// of pods that are gone to others after IP_COOLDOWN_PERIOD.
func (v *vpc) Batch() int { return 13 }

// Restrict writes what AWS's policy controller makes of a NetworkPolicy.
func (v *vpc) Restrict(ctx context.Context, _ *cluster.Cluster, server *workload.Pod, friends ...*workload.Pod) error {
	return v.vpc.Apply(ctx, aws.Policy{Name: server.Name, Pods: []*workload.Pod{server}, Friends: friends})
}

// Lift removes it.
func (v *vpc) Lift(ctx context.Context, _ *cluster.Cluster, server *workload.Pod) error {
	return v.vpc.Withdraw(ctx, server.Name)
}

// Own says whether a line is about what AWS's programs change themselves:
//   - ipamd's or egress-cni's file of addresses;
//   - the VPC's route, which goes when a restarted ipamd gives eth1 its address again;
//   - objects of the Network Policy Agent, which its restart and its upgrade make again;
//   - the containers of aws-node, which were restarted.
func (v *vpc) Own(line string) bool {
	own := []string{
		"/run/aws-node/", "/run/cni/v6pd/", " dev eth1 onlink", "/sys/fs/bpf/globals/aws/", "handle_ingress", "handle_egress", "/rootfs overlay",
		"/opt/cni/bin/aws-eks-na-cli", "/opt/cni/bin/tc.v", "events.bpf",
	}
	if v.later != nil {
		own = append(own, "/kube-api-access-") // another pod of aws-node has another
	}
	return slices.ContainsFunc(own, func(part string) bool { return strings.Contains(line, part) })
}
