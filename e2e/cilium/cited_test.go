// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// cited is a line of Cilium's in a comment: its file, its number and a word in it.
var cited = regexp.MustCompile(`(?m)^//\t((?:bpf|pkg)/\S+):([0-9]+) (\w+): `)

// TestCitedLines compares the lines whose effect a double copies with Cilium's source
// in the version of this module.
func TestCitedLines(t *testing.T) {
	dir := must.Get(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output())(t)
	const file = "../../plugin/cni/netkit_test.go"
	text := must.Get(os.ReadFile(file))(t)
	lines := cited.FindAllStringSubmatch(string(text), -1)
	if len(lines) == 0 {
		t.Errorf("%s cites no line", file)
	}
	for _, m := range lines {
		source := must.Get(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), m[1])))(t)
		number, _ := strconv.Atoi(m[2])
		if all := strings.Split(string(source), "\n"); number > len(all) || !strings.Contains(all[number-1], m[3]) {
			t.Errorf("%s cites %s:%s, which has no %q", file, m[1], m[2], m[3])
		}
	}
}
