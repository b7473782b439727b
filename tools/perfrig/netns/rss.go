// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// peakRSS runs ADD and returns the process's largest resident set in bytes. The
// kernel hands the peak of the memory that is replaced by exec on to the new
// process, so a child of this program would show this program's: a shell
// starts the plugin in the background and ends, and we, as the subreaper,
// inherit it.
func (i *invocation) peakRSS(dir string) (int64, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("become the subreaper: %w", err)
	}
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
	return usage.Maxrss << 10, nil
}
