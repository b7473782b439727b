// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/orders"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// errOtherwise is wrapped where a pod is not shaped as its phase says: it must
// not be measured as if it were.
var errOtherwise = errors.New("the pod is not shaped as the phase says")

// verify asks the kernel, or podweir, what shapes a pod.
func (s *Substrate) verify(ctx context.Context, pod *lab.Pod, c *spec.Cell) error {
	if c.Phase.Kind == spec.Podweir {
		reply, err := s.driver.do(ctx, &orders.Order{Status: shaped})
		if err != nil {
			return err
		}
		return isShaped(reply.Status, "default/"+pod.Name, c)
	}
	// Not by a thread of the lab: the node is none of its hosts.
	cmd := exec.CommandContext(ctx, "nsenter", "--net="+s.nodes[reference].Netns, "tc", "-j", "qdisc", "show")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("qdiscs of the node: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return hasBuckets(out, c.Phase.Kind)
}

// hasBuckets looks for the reference plugin's qdiscs on the node: a TBF for each
// direction of its only pod with limits.
func hasBuckets(qdiscs []byte, kind spec.Kind) error {
	var list []struct{ Kind string }
	if err := json.Unmarshal(qdiscs, &list); err != nil {
		return fmt.Errorf("qdiscs of the node: %w", err)
	}
	got, want := 0, 0
	for _, q := range list {
		if q.Kind == "tbf" {
			got++
		}
	}
	if kind == spec.Bandwidth {
		want = 2
	}
	if got != want {
		return fmt.Errorf("%w: %d TBF on the node, want %d", errOtherwise, got, want)
	}
	return nil
}

// status is what is read of podweir's own.
type status struct {
	Attachments []struct {
		Pod        string
		Error      string
		Drift      []json.RawMessage
		Directions []struct {
			Direction         string
			RateBitsPerSecond uint64
			Policy            string
			CapHolds          bool
		}
	}
}

// isShaped holds podweir's word of a pod against the cell.
func isShaped(raw []byte, pod string, c *spec.Cell) error {
	var s status
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("podweir's status: %w", err)
	}
	for _, a := range s.Attachments {
		if a.Pod != pod {
			continue
		}
		as := a.Error == "" && len(a.Drift) == 0 && len(a.Directions) == 2
		for _, d := range a.Directions {
			as = as && d.CapHolds && d.RateBitsPerSecond == c.Rate && d.Policy == c.Phase.Keys["policy"]
		}
		if as {
			return nil
		}
		return fmt.Errorf("%w: want %s at %d bit/s, podweir says %+v", errOtherwise, c.Phase.Keys["policy"], c.Rate, a)
	}
	return fmt.Errorf("%w: podweir does not know pod %s", errOtherwise, pod)
}
