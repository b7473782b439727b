// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

// vpc is the Amazon VPC CNI with the Network Policy Agent: AWS's own programs, installed by
// AWS's own chart, without AWS. What stands in for EC2 is package imds, and for the policy
// controller of EKS [vpc.endpoint].
type vpc struct {
	lines

	// set are values of AWS's chart, later those that are set while pods run.
	set, later []string
	// ipv6 gives pods IPv6 addresses alone. Nodes have both, and the control plane and
	// Services keep IPv4. twoCards gives each of two nodes a second network interface, on a
	// network card of its own.
	ipv6, twoCards bool
	// here is the directory of e2e/aws, made what its setup.sh made.
	here, made string
	cluster    *cluster.Cluster
	metadata   map[string]*http.Server // by node
}

// awsLines are of what AWS's programs change themselves:
//   - ipamd's or egress-cni's file of addresses;
//   - the VPC's route, which goes when a restarted ipamd gives eth1 its address again;
//   - objects of the Network Policy Agent, which its restart and its upgrade make again;
//   - the containers of aws-node, which were restarted.
var awsLines = lines{
	"/run/aws-node/", "/run/cni/v6pd/", " dev eth1 onlink", "/sys/fs/bpf/globals/aws/", "handle_ingress", "handle_egress", "/rootfs overlay",
	"/opt/cni/bin/aws-eks-na-cli", "/opt/cni/bin/tc.v", "events.bpf",
}

// newVPC reads the version that a row has of the Network Policy Agent, and behind "to"
// the one to which it is upgraded.
func newVPC(r *row.Row) CNI {
	_, versions, _ := strings.Cut(r.Version, "Network Policy Agent ")
	first, next, upgraded := strings.Cut(versions, " to ")
	later := variantHas(r, "later")
	v := &vpc{lines: awsLines, metadata: map[string]*http.Server{}, set: []string{
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
	if v.later != nil {
		v.lines = append(slices.Clone(awsLines), "/kube-api-access-") // another pod of aws-node has another
	}
	if variantHas(r, "IPv6") {
		v.ipv6 = true
		v.set = append(v.set, "env.ENABLE_IPv4=false", "env.ENABLE_IPv6=true", "env.ENABLE_PREFIX_DELEGATION=true",
			"init.env.ENABLE_IPv6=true", "nodeAgent.enableIpv6=true")
		return twoInterfaces{v, nil, "v4if0"}
	}
	if variantHas(r, "multi-NIC") {
		v.twoCards = true
		v.set = append(v.set, "env.ENABLE_MULTI_NIC=true")
		return twoInterfaces{v, map[string]string{"k8s.amazonaws.com/nicConfig": "multi-nic-attachment"}, "mNicIf1"}
	}
	if variantHas(r, "strict") {
		v.set = append(v.set, "env.NETWORK_POLICY_ENFORCING_MODE=strict")
		return strictVPC{v}
	}
	return v
}

// agentVersion is the value of AWS's chart for a version of the Network Policy Agent,
// which is not always that of AWS's own pair.
func agentVersion(v string) string { return "nodeAgent.image.tag=" + v }

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
func (t twoInterfaces) Outbound() bool { return t.ipv6 }

// strictVPC has a Network Policy Agent under which no policy is no traffic.
type strictVPC struct{ *vpc }

// Admit gives a pod a policy of its own.
func (v strictVPC) Admit(ctx context.Context, p *workload.Pod) error {
	return v.apply(ctx, p, map[string]any{"cidr": "0.0.0.0/0"})
}

// Lift puts the policy of before Restrict back, which has the same name.
func (v strictVPC) Lift(ctx context.Context, _ *cluster.Cluster, server *workload.Pod) error {
	return v.Admit(ctx, server)
}

// Images runs e2e/aws/setup.sh. They are those of AWS's chart.
func (v *vpc) Images(ctx context.Context, here string) (_ []string, err error) {
	defer step.End(&err)
	v.here = filepath.Join(here, "../aws")
	made := step.Get(cluster.Setup(ctx, v.here, 1))
	v.made = made[0]
	images, err := filepath.Glob(filepath.Join(v.made, "*.tar"))
	if err == nil && len(images) != 4 {
		err = fmt.Errorf("%s has %d images, want 4", v.made, len(images))
	}
	return images, err
}

// Install does what EC2 and EKS do for the nodes of a cluster (metadata, routes to pods, and
// the resources of the policy controller), and installs AWS's chart.
func (v *vpc) Install(ctx context.Context, c *cluster.Cluster) error {
	v.cluster = c
	errs := []error{v.connect(ctx)}
	for _, n := range c.Members {
		errs = append(errs, v.serve(ctx, n))
	}
	_, err := c.Kubectl(ctx, "", "apply", "-f", filepath.Join(v.here, "crds.yaml"))
	if err = errors.Join(append(errs, err)...); err != nil {
		return errors.Join(err, v.close())
	}
	return v.helm(ctx, v.set...)
}

// helm brings AWS's chart to these values. Where something changes, the DaemonSet is rolled.
func (v *vpc) helm(ctx context.Context, set ...string) error {
	args := []string{
		"upgrade", "--install", "aws-vpc-cni", filepath.Join(v.made, "chart"), "-n", "kube-system",
		"-f", filepath.Join(v.here, "values.yaml"),
	}
	for _, s := range set {
		args = append(args, "--set-string", s)
	}
	return step.Err(v.cluster.Helm(ctx, args...))
}

// Changes roll aws-node with values that are set while pods run. Denied traffic may pass
// meanwhile, as it does without podweir.
func (v *vpc) Changes() []Change {
	if len(v.later) == 0 {
		return nil
	}
	return []Change{{What: strings.Join(v.later, ", "), Do: func(ctx context.Context) error {
		if err := v.helm(ctx, slices.Concat(v.set, v.later)...); err != nil {
			return err
		}
		return v.wait(ctx)
	}}}
}

// Ready looks whether every aws-node is that of the last change and whether it and
// the Network Policy Agent are ready.
func (v *vpc) Ready(ctx context.Context, c *cluster.Cluster) (err error) {
	defer step.End(&err)
	var set struct {
		Metadata struct{ Generation int }
		Status   struct {
			ObservedGeneration                                              int
			DesiredNumberScheduled, UpdatedNumberScheduled, NumberAvailable int
		}
	}
	step.OK(c.Get(ctx, &set, "-n", "kube-system", "daemonset/aws-node"))
	s := set.Status
	if want := len(c.Members); s.ObservedGeneration != set.Metadata.Generation ||
		s.DesiredNumberScheduled != want || s.UpdatedNumberScheduled != want || s.NumberAvailable != want {
		return fmt.Errorf("aws-node: %+v, want %d of generation %d", s, want, set.Metadata.Generation)
	}
	for _, n := range c.Members {
		// The Network Policy Agent's container has no probe in AWS's chart.
		const ask = `exec 3<>/dev/tcp/127.0.0.1/61679 4<>/dev/tcp/127.0.0.1/8163 &&
		printf 'GET /readyz HTTP/1.0\r\n\r\n' >&4 && grep -qx ok <&4`
		_, err := n.Exec(ctx, "bash", "-c", ask)
		step.Say(err, "ipamd or the Network Policy Agent of %s", n.Name)
	}
	return nil
}

// wait waits until it is ready, also on a busy machine.
func (v *vpc) wait(ctx context.Context) error {
	return cluster.Eventually(ctx, 3*time.Minute, func(ctx context.Context) error { return v.Ready(ctx, v.cluster) })
}

// Booted puts back what EC2 does for a node.
func (v *vpc) Booted(ctx context.Context, n *cluster.Node) error {
	return errors.Join(v.connect(ctx), v.serve(ctx, n))
}

// Conflist is where aws-node puts its network, each time it starts.
func (v *vpc) Conflist() string { return "/etc/cni/net.d/10-aws.conflist" }

// Uninstall removes AWS's release. What it leaves on nodes goes when they are
// restarted.
func (v *vpc) Uninstall(ctx context.Context, c *cluster.Cluster) error {
	_, err := c.Helm(ctx, "uninstall", "aws-vpc-cni", "-n", "kube-system", "--wait")
	return errors.Join(err, v.close())
}

// KillAgent kills the Network Policy Agent, then ipamd, with which aws-node ends. The kubelet
// starts them again.
func (v *vpc) KillAgent(ctx context.Context, _ *cluster.Cluster, n *cluster.Node) (err error) {
	defer step.End(&err)
	for _, program := range []string{"controller", "aws-k8s-agent"} {
		step.Get(n.Exec(ctx, "pkill", "-KILL", "-x", program))
		step.Say(v.wait(ctx), "after the end of %s", program)
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
	var peers []any
	for _, friend := range friends {
		peers = append(peers, map[string]any{"cidr": netip.PrefixFrom(friend.IP, friend.IP.BitLen())})
	}
	return v.apply(ctx, server, peers...)
}

// Lift removes it.
func (v *vpc) Lift(ctx context.Context, c *cluster.Cluster, server *workload.Pod) error {
	return step.Err(c.Kubectl(ctx, "", "delete", "policyendpoint", policyOf(server), "--ignore-not-found"))
}

// apply lets peers, or nobody, talk to a pod, and the pod to its peers, as EKS's policy
// controller does.
func (v *vpc) apply(ctx context.Context, pod *workload.Pod, peers ...any) (err error) {
	defer step.End(&err)
	text := step.Get(json.Marshal(v.endpoint(pod, append([]any{}, peers...))))
	return step.Err(v.cluster.Kubectl(ctx, string(text), "apply", "-f", "-"))
}

// endpoint is what the policy controller makes of a NetworkPolicy with both policyTypes and
// the pod that is there.
func (v *vpc) endpoint(pod *workload.Pod, peers []any) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint",
		"metadata": map[string]any{"name": policyOf(pod), "namespace": "default"},
		"spec": map[string]any{
			"policyRef":    map[string]any{"name": pod.Name, "namespace": "default"},
			"podSelector":  map[string]any{"matchLabels": map[string]any{"policy": pod.Name}},
			"podIsolation": []string{"Ingress", "Egress"},
			"podSelectorEndpoints": []any{map[string]any{
				"hostIP": v.hostIP(pod.Node), "podIP": pod.IP, "name": pod.Name, "namespace": "default",
			}},
			"ingress": peers, "egress": peers,
		},
	}
}

// policyOf is the name of a pod's PolicyEndpoint. The controller's end in a hyphen
// and something random; the agent panics at names without a hyphen.
func policyOf(pod *workload.Pod) string { return pod.Name + "-0" }
