// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/units"
)

func newTop(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Shows live rates and the heavy flows of each pod",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			interval := o.v.GetDuration("interval")
			if interval < 100*time.Millisecond {
				return fmt.Errorf("--interval %v is not accepted, want 100ms or more", interval)
			}
			return top(cmd.Context(), o, cmd.OutOrStdout(), interval, o.v.GetInt("count"))
		},
	}
	cmd.Flags().Duration("interval", 2*time.Second, "time between two pictures")
	cmd.Flags().Int("count", 0, "number of pictures, 0 for no end")
	return cmd
}

func top(ctx context.Context, o *options, out io.Writer, interval time.Duration, count int) error {
	before, err := collect(o)
	if err != nil {
		return err
	}
	last := time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for shown := 0; count == 0 || shown < count; shown++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := collect(o)
		if err != nil {
			return err
		}
		rates := status.Rates(before, now, time.Since(last))
		before, last = now, time.Now()
		if o.json() {
			err = printJSON(out, rates)
		} else {
			err = printTop(out, rates)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clearScreen homes the cursor and clears what is below it.
const clearScreen = "\x1b[H\x1b[2J"

func printTop(out io.Writer, pods []status.PodRate) error {
	if _, err := fmt.Fprint(out, clearScreen); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, "POD\tINTERFACE\tDIRECTION\tCAP\tNOW\tLIGHT\tHEAVY\tDROPPED/S\tWAITING")
	for i := range pods {
		p := &pods[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%v\t%v\t%v\t%.0f\t%v\n", p.Pod, p.Interface, p.Direction,
			units.BitRate(p.CapBitsPerSecond), rate(p.SentBitsPerSecond), rate(p.LightBitsPerSecond),
			rate(p.HeavyBitsPerSecond), p.DropsPerSecond, units.Bytes(p.WaitingBytes))
		for j := range p.HeavyFlows {
			f := &p.HeavyFlows[j]
			fmt.Fprintf(w, "\t\t  %s\t\t%v\t%v in all, last seen %v ago\n", f.Name(),
				rate(p.FlowBitsPerSecond[j]), units.Bytes(f.Bytes), f.LastSeen.Round(time.Millisecond))
		}
	}
	if len(pods) == 0 {
		fmt.Fprintln(w, "No pod of this node has a bandwidth limit of podweir's.")
	}
	return w.Flush()
}

func rate(bitsPerSecond float64) units.BitRate { return units.BitRate(max(bitsPerSecond, 0)) }
