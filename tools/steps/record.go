// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The record of a run stands between these lines of a page. tools/release.sh reads
// its rows "commit" and "result".
const (
	recordBegin = "<!-- run: begin -->\n"
	recordEnd   = "<!-- run: end -->\n"
)

// record writes date, commit and result of a run into a page. A checkout with changes
// has no commit, so its run counts for no release.
func record(ctx context.Context, page string, all *summary) error {
	commit, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	changes, err := git(ctx, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	if changes != "" {
		commit = "none: changed files in the checkout"
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := recorded(string(old), time.Now().UTC(), commit, all)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// recorded is the text of a page with the record of a run.
func recorded(page string, now time.Time, commit string, all *summary) (string, error) {
	before, rest, ok := strings.Cut(page, recordBegin)
	_, after, ended := strings.Cut(rest, recordEnd)
	if !ok || !ended {
		return "", fmt.Errorf("no lines %q and %q", strings.TrimSpace(recordBegin), strings.TrimSpace(recordEnd))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| what | value |\n| --- | --- |\n| date | %s |\n| commit | `%s` |\n| result | %s |\n", now.Format(time.DateOnly), commit, all.outcome())
	for _, group := range all.groups {
		for i := range group {
			s := &group[i]
			fmt.Fprintf(&b, "| `%s` | %s, %.0f s, %.0f s of processor |\n", s.name, s.outcome, s.took.Seconds(), s.processor.Seconds())
		}
	}
	return before + recordBegin + b.String() + recordEnd + after, nil
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
