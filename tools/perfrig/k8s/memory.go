// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"time"

	"github.com/prometheus/procfs"
)

// interval is between two looks at the processes of a node.
const interval = time.Second

// held is the memory of a process, in bytes: all that is resident, and the part
// of it that is no file's.
type held struct{ resident, anonymous uint64 }

// peaks are the most that the programs of a node held, by their names.
type peaks map[string]held

// programs are those whose memory is told, by the names of their metrics.
var programs = map[string]string{"podweir": "agent", "kubelet": "kubelet"}

// watchMemory looks at the processes below one until the function that it
// returns is called.
func watchMemory(root int) (stop func() peaks) {
	quit, done := make(chan struct{}), make(chan peaks, 1)
	go func() {
		most := peaks{}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			most.look(root)
			select {
			case <-tick.C:
			case <-quit:
				done <- most
				return
			}
		}
	}()
	return func() peaks {
		close(quit)
		return <-done
	}
}

// look adds what the processes hold now. One that ends meanwhile is left out.
func (p peaks) look(root int) {
	all, err := procfs.AllProcs()
	if err != nil {
		return
	}
	parents, names := map[int]int{}, map[int]string{}
	for _, one := range all {
		if st, err := one.Stat(); err == nil {
			parents[one.PID], names[one.PID] = st.PPID, st.Comm
		}
	}
	for _, one := range all {
		name := programs[names[one.PID]]
		if name == "" || !below(parents, one.PID, root) {
			continue
		}
		if st, err := one.NewStatus(); err == nil {
			old := p[name]
			p[name] = held{max(old.resident, st.VmRSS), max(old.anonymous, st.RssAnon)}
		}
	}
}

// below says whether a process comes from another one.
func below(parents map[int]int, pid, root int) bool {
	for ; pid > 1; pid = parents[pid] {
		if pid == root {
			return true
		}
	}
	return false
}

// into records them.
func (p peaks) into(metrics map[string]float64) {
	for name, h := range p {
		metrics[name+"_rss_bytes"] = float64(h.resident)
		metrics[name+"_anonymous_rss_bytes"] = float64(h.anonymous)
	}
}
