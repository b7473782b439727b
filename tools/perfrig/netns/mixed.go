// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
)

// What is asked for beside bulk: 150 requests per second for 7 s resolve the 99th percentile;
// with 4 kB they are some 5.5 Mbit/s of the pod's egress.
const (
	openLast       = 7 * time.Second
	closedLast     = 3 * time.Second
	freshPerSecond = 150
	responseBytes  = 4000
	// closedClients are those of a closed loop.
	closedClients = 10
)

// mixed loads the pod with bulk in both directions and asks it, and an unlimited
// bystander with a client of its own, for light answers on fresh connections: at a fixed
// rate, then in a closed loop.
func (r *run) mixed(ctx context.Context) {
	r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) {
		// The bystander's bytes are not to be counted as the pod's.
		onlooker := step.Get(rig.Lab.Client("onlooker"))
		// Nothing of the load outlives a failure.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		start := wiremeter.Now()
		var bulk []*lab.ElephantRun
		for _, d := range traffic.Directions {
			from, to := pod.Ends(d)
			// Longer than needed: it is stopped.
			bulk = append(bulk, step.Get(rig.Lab.StartElephant(ctx, lab.Elephant{
				From: from, To: to, Duration: 5 * (loadHead + openLast + closedLast),
			})))
		}
		step.OK(wiremeter.Until(ctx, start+loadHead))
		both := func(name string, l lab.HTTPLoad) {
			l.ResponseBytes, l.Timeout = responseBytes, giveUp
			l.From, l.To = rig.Client, &pod.Host
			ours := step.Get(rig.Lab.StartHTTP(ctx, l))
			l.From, l.To = onlooker, &rig.Free.Host
			bystander := step.Get(rig.Lab.StartHTTP(ctx, l))
			r.answers(name, step.Get(ours.Wait(ctx)))
			r.answers(name+"_bystander", step.Get(bystander.Wait(ctx)))
		}
		both("open", lab.HTTPLoad{PerSecond: freshPerSecond, Duration: openLast})
		both("closed", lab.HTTPLoad{Concurrency: closedClients, Duration: closedLast})
		r.set("closed_requests_ratio", r.into.Metrics["closed_requests_per_second"]/r.into.Metrics["closed_bystander_requests_per_second"])
		for i, d := range traffic.Directions {
			r.promise(d, step.Get(pod.Wire(d, start+loadHead, wiremeter.Now())))
			step.Get(bulk[i].Stop(ctx))
		}
	})
}
