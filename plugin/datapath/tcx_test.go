// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnNewest: a list that moved is read again, and each attempt is for what was
// read last; anything else than a list that moved ends it.
func TestOnNewest(t *testing.T) {
	t.Parallel()
	stale := fmt.Errorf("attach: %w", unix.ESTALE)
	errOther := errors.New("something else")
	for name, tc := range map[string]struct {
		// answers are those of the attempts, the last one for all that follow.
		answers []error
		reading error
		want    error
		tries   int
	}{
		"at once":       {answers: []error{nil}, tries: 1},
		"moved twice":   {answers: []error{stale, stale, nil}, tries: 3},
		"moves forever": {answers: []error{stale}, want: unix.ESTALE, tries: attachTries},
		"refused":       {answers: []error{stale, errOther}, want: errOther, tries: 2},
		"unread":        {reading: errOther, want: errOther},
	} {
		var revision uint64
		var tried []uint64
		err := onNewest(func() (uint64, error) {
			revision += 10
			return revision, tc.reading
		}, func(r uint64) error {
			tried = append(tried, r)
			return tc.answers[min(len(tried), len(tc.answers))-1]
		})
		if !errors.Is(err, tc.want) || len(tried) != tc.tries {
			t.Errorf("%s: %v after %d attempts, want %v after %d", name, err, len(tried), tc.want, tc.tries)
		}
		for i, r := range tried {
			if want := uint64(10 * (i + 1)); r != want {
				t.Errorf("%s: attempts for revisions %v, want each for the one just read", name, tried)
				break
			}
		}
	}
}
