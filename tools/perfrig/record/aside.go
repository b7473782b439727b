// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package record

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Aside makes room for a campaign that starts again: a file of another campaign,
// or of one that has all of the runs, is renamed for the time at which it was
// begun. A campaign that can go on stays where it is.
func Aside(name string, c Campaign, runIDs []string) error {
	old, err := Read(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if resumable(&old.Campaign, &c) == nil && !complete(old, runIDs) {
		return nil
	}
	began := old.Campaign.Started.UTC().Format("20060102T150405")
	return os.Rename(name, fmt.Sprintf("%s-%s.jsonl", strings.TrimSuffix(name, ".jsonl"), began))
}

func complete(r *Results, runIDs []string) bool {
	done := r.Done()
	for _, id := range runIDs {
		if !done[id] {
			return false
		}
	}
	return true
}
