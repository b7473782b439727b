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

	"github.com/podweir/podweir/e2e/step"
)

// peakRSS runs ADD and returns the process's largest resident set in bytes. The
// kernel hands the peak of the memory that is replaced by exec on to the new
// process, so a child of this program would show this program's: a shell
// starts the plugin in the background and ends, and we, as the subreaper,
// inherit it.
func (i *invocation) peakRSS(dir string) float64 {
	step.OK(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	stdin := filepath.Join(dir, "rss.json")
	step.OK(os.WriteFile(stdin, i.stdin, 0o600))
	// $! goes out before the wait for the plugin's end, which is ours.
	cmd := exec.Command("/bin/sh", "-c", `"$1" <"$2" >"$3" 2>&1 & echo $!`, "sh", i.bin, stdin, stdin+".out")
	cmd.Env = append(slices.Clone(i.env), "CNI_COMMAND=ADD")
	var out []byte
	step.OK(i.node.Do(func() (err error) {
		out, err = cmd.Output()
		return err
	}))
	pid := step.Get(strconv.Atoi(strings.TrimSpace(string(out))))
	var status unix.WaitStatus
	var usage unix.Rusage
	step.Get(unix.Wait4(pid, &status, 0, &usage))
	if status.ExitStatus() != 0 {
		raw, _ := os.ReadFile(stdin + ".out")
		step.OK(fmt.Errorf("%s ADD: status %d: %s", i.bin, status.ExitStatus(), raw))
	}
	return float64(usage.Maxrss << 10)
}
