// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package executor

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// progress tells how far a plan is: a bar on a terminal, a line for each run
// elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	total    int
	open     []spec.Run
	done     int     // of the open ones
	planned  float64 // seconds that the runs done were to take
	took     float64 // seconds that they took
}

func newProgress(out io.Writer, total int, open []spec.Run) *progress {
	p := &progress{out: out, total: total, open: open}
	if f, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// pace corrects the plan's estimates by what runs took so far.
func (p *progress) pace() float64 {
	if p.planned == 0 {
		return 1
	}
	return p.took / p.planned
}

// expect is how long a run will take.
func (p *progress) expect(r *spec.Run) time.Duration {
	return time.Duration(max(p.pace(), 1) * r.Cell.Workload.Seconds * float64(time.Second))
}

// left is how long the rest takes.
func (p *progress) left() time.Duration {
	return time.Duration(p.pace() * spec.Seconds(p.open[p.done:]) * float64(time.Second)).Round(time.Second)
}

const barWidth = 24

func (p *progress) begin(r *spec.Run) {
	if !p.terminal {
		return
	}
	at := p.total - len(p.open) + p.done
	full := barWidth * at / max(p.total, 1)
	fmt.Fprintf(p.out, "\r\x1b[K[%s%s] %d/%d, %s left: %s", strings.Repeat("#", full),
		strings.Repeat(".", barWidth-full), at, p.total, p.left(), r.ID())
}

func (p *progress) end(s *record.Sample) {
	if s.Unavailable == "" {
		p.planned += s.Cell.Workload.Seconds
		p.took += s.Seconds
	}
	p.done++
	word := fmt.Sprintf("%.1f s", s.Seconds)
	switch {
	case s.Failed != "":
		word, _, _ = strings.Cut("FAILED: "+s.Failed, "\n")
	case s.Unavailable != "":
		word = "not here: " + s.Unavailable
	case p.terminal:
		return
	}
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "%d/%d %s: %s (others took %.2f cores; %s left)\n",
		p.total-len(p.open)+p.done, p.total, s.ID(), word, s.Foreign, p.left())
}

// finish leaves the bar's line.
func (p *progress) finish() {
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}
