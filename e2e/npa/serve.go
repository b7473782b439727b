// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-ebpf-sdk-go/pkg/tc"
	"github.com/aws/aws-network-policy-agent/api/v1alpha1"
	"github.com/aws/aws-network-policy-agent/pkg/ebpf"
	fwrp "github.com/aws/aws-network-policy-agent/pkg/fwruleprocessor"
	"github.com/aws/aws-network-policy-agent/pkg/utils"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Request is a line on stdin; the answer is a line on stdout.
type Request struct {
	// Do is attach, allow or clean.
	Do string
	// Namespace and Pod name a pod.
	Namespace, Pod string
	// Port is the UDP port that policy allows, in both directions.
	Port int32
}

// Answer is what came of a request.
type Answer struct {
	// Error is "" if all went well.
	Error string
}

// How the agent runs: it attaches pods that no policy selects, too, as ever
// since VPC CNI 1.19.3, and lets them talk until a policy comes.
const (
	mode             = "standard"
	nodeAddress      = "192.0.2.1" // nobody's (RFC 5737): the agent lets the node's own traffic pass
	conntrackSeconds = 300
	conntrackSize    = 16384
)

// serve starts the agent as its main function does and then does what it is
// told, as its RPC server and its reconciler would. It needs root, bpffs on
// /sys/fs/bpf, and its programs in the working directory.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	client, err := ebpf.NewBpfClient(ctx, nodeAddress, false, false, false, conntrackSeconds, conntrackSize, mode, false, "info")
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	if err := client.ReAttachEbpfProbes(); err != nil {
		return fmt.Errorf("re-attach: %w", err)
	}
	answers, requests := json.NewEncoder(out), json.NewDecoder(in)
	if err := answers.Encode(Answer{}); err != nil {
		return err
	}
	for {
		var r Request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a Answer
		if err := r.do(client); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (r *Request) do(client ebpf.BpfClient) error {
	id := utils.GetPodIdentifier(r.Pod, r.Namespace)
	switch r.Do {
	case "attach":
		if err := client.AttacheBPFProbes(types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}, id, 1); err != nil {
			return err
		}
		return errors.Join(
			client.UpdatePodStateEbpfMaps(id, ebpf.POD_STATE_MAP_KEY, ebpf.DEFAULT_ALLOW, true, true),
			client.UpdatePodStateEbpfMaps(id, ebpf.CLUSTER_POLICY_POD_STATE_MAP_KEY, ebpf.DEFAULT_ALLOW, true, true))
	case "allow":
		protocol := corev1.ProtocolUDP
		rules := func() []fwrp.EbpfFirewallRules {
			return []fwrp.EbpfFirewallRules{{
				IPCidr: "0.0.0.0/0", L4Info: []v1alpha1.Port{{Protocol: &protocol, Port: &r.Port}},
			}}
		}
		return errors.Join(
			client.UpdateEbpfMaps(id, rules(), rules()),
			client.UpdatePodStateEbpfMaps(id, ebpf.POD_STATE_MAP_KEY, ebpf.POLICIES_APPLIED, true, true))
	case "clean":
		return tc.New([]string{ebpf.POD_VETH_PREFIX, ebpf.BRANCH_ENI_VETH_PREFIX}).CleanupQdiscs(true, true)
	default:
		return fmt.Errorf("no such request: %q", r.Do)
	}
}
