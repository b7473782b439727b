// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import "fmt"

// brief is a row in a line of progress.
func (r *row) brief() string {
	switch {
	case r.Note != "":
		return r.Note
	case r.Caps != nil:
		n := r.Caps
		return fmt.Sprintf("worst second %.4f (limit %.4f, by counter %.4f), used %.3f, carried %.0f Mbit/s, retransmits %.0f + %.0f, stall %.0f ms, CPU %.2f",
			n.Worst, n.Limit, n.Counter, n.Used, n.Carried/mbit, n.Early, n.Late, n.StallMillis, n.CPU)
	case r.Order != nil:
		return fmt.Sprintf("%+v", *r.Order)
	case r.Kept != nil:
		return fmt.Sprintf("%+v", *r.Kept)
	case r.Memory != nil:
		return fmt.Sprintf("%.1f KiB", float64(r.Memory.Total)/1024)
	}
	return ""
}
