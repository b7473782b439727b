// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
)

const (
	rssRuns  = 7
	rssShare = 1.2
)

// peakRSS runs ADD and returns the process's largest resident set in KiB. The
// kernel hands the peak of the memory that is replaced by exec on to the new
// process, so a child of this program would show this program's: a shell
// starts the plugin in the background and ends, and we, as the subreaper,
// inherit it.
func (i *invocation) peakRSS(dir string) (int64, error) {
	stdin := filepath.Join(dir, "rss.json")
	if err := os.WriteFile(stdin, i.stdin, 0o600); err != nil {
		return 0, err
	}
	// $! goes out before the wait for the plugin's end, which is ours.
	cmd := exec.Command("/bin/sh", "-c", `"$1" <"$2" >"$3" 2>&1 & echo $!`, "sh", i.bin, stdin, stdin+".out")
	cmd.Env = append(slices.Clone(i.env), "CNI_COMMAND=ADD")
	var out strings.Builder
	cmd.Stdout = &out
	if err := i.node.Do(cmd.Start); err != nil {
		return 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		return 0, err
	}
	var status unix.WaitStatus
	var usage unix.Rusage
	if _, err := unix.Wait4(pid, &status, 0, &usage); err != nil {
		return 0, fmt.Errorf("wait for %s: %w", i.bin, err)
	}
	if status.ExitStatus() != 0 {
		raw, _ := os.ReadFile(stdin + ".out")
		return 0, fmt.Errorf("%s ADD: status %d: %s", i.bin, status.ExitStatus(), raw)
	}
	return usage.Maxrss, nil
}

func benchRSS(ctx context.Context, rep *report) (err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper: %w", err)
	}
	l, err := lab.New(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	t := rep.table("Peak RSS of ADD", fmt.Sprintf("KiB, %d runs each, both directions.", rssRuns),
		"plugin", "min", "median", "max")
	medians := map[string]int64{}
	for n, c := range contenders() {
		calls, err := makePods(ctx, l, fmt.Sprintf("rss%d", n), &c, rssRuns)
		if err != nil {
			return err
		}
		var peaks []int64
		for _, call := range calls {
			kib, err := call.peakRSS(l.Dir())
			if err != nil {
				return errors.Join(err, deleteAll(ctx, calls))
			}
			peaks = append(peaks, kib)
		}
		if err := deleteAll(ctx, calls); err != nil {
			return err
		}
		slices.Sort(peaks)
		medians[c.name] = lab.Quantile(peaks, 0.5)
		t.row(c.name, fmt.Sprint(peaks[0]), fmt.Sprint(medians[c.name]), fmt.Sprint(peaks[len(peaks)-1]))
	}
	ours, theirs := medians["podweir auto"], medians["reference bandwidth"]
	rep.bar(float64(ours) <= rssShare*float64(theirs), "peak RSS of ADD",
		fmt.Sprintf("%d KiB, %.2f of the reference plugin's %d", ours, float64(ours)/float64(theirs), theirs),
		fmt.Sprintf("at most %.1f", rssShare))
	return nil
}
