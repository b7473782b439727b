// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

// attached is one attachment of a pod whose interfaces are there.
type attached struct {
	id      attach.ID
	records []*apply.Record
	// names are those of all its interfaces, also of those that are not there or another attachment has.
	names []string
}

// attachments finds what is attached for the pod: where a look or a pass found it, or
// among everything that is pinned.
func (l *look) attachments(node *engine.Node) ([]attached, error) {
	if have := l.among(node, l.known()); len(have) > 0 {
		return have, nil
	}
	ids, err := node.List()
	if err != nil {
		return nil, err
	}
	return l.among(node, l.notOthers(ids)), nil
}

func (r *Reconciler) owns(id attach.ID, pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[id] = pod
}

// notOthers leaves out what is known to be another pod's.
func (l *look) notOthers(ids []attach.ID) []attach.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(ids, func(id attach.ID) bool {
		owner, known := l.owners[id]
		return known && owner != l.pod.Key()
	})
}

// known are the attachments that the last look found, and behind them those of interfaces
// that came since, as the last pass read them.
func (l *look) known() []attach.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids, since []attach.ID
	if s := l.states[l.key]; s != nil {
		for i := range s.Limits {
			if id := s.Limits[i].ID; !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	for id, pod := range l.owners {
		if pod == l.pod.Key() && !slices.Contains(ids, id) {
			since = append(since, id)
		}
	}
	slices.SortFunc(since, func(a, b attach.ID) int { return strings.Compare(a.String(), b.String()) })
	return append(ids, since...)
}

// among returns those attachments that are of the pod and have their
// interfaces. One that cannot be read is none of this pod's: a pass says so.
func (l *look) among(node *engine.Node, ids []attach.ID) []attached {
	var have []attached
	for _, id := range ids {
		records, _ := node.Records(id)
		if len(records) == 0 {
			continue
		}
		l.owns(id, records[0].Pod)
		a := attached{id: id}
		for _, rec := range records {
			if rec.Pod != l.pod.Key() {
				continue
			}
			a.names = append(append(a.names, rec.Interface.PodName), rec.Held...)
			if _, err := node.Refind(rec); err == nil {
				a.records = append(a.records, rec)
			}
		}
		if len(a.records) > 0 {
			have = append(have, a)
		}
	}
	return have
}
