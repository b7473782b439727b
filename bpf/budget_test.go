// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/bpftest"
)

// budget is what the verifier may spend on a program.
type budget struct {
	// Instructions that it walks, and bytes of stack.
	Instructions uint32 `json:"instructions"`
	Stack        uint32 `json:"stack"`
}

// budgets is verifier-budget.json: measured on one kernel series.
type budgets struct {
	Kernel   string            `json:"kernel"`
	Programs map[string]budget `json:"programs"`
}

const (
	budgetFile = "verifier-budget.json"
	// A program may grow by 10 % until somebody looks and writes a new budget.
	budgetMargin = 1.1
	// Another kernel's verifier walks other ways; four times as many is a fault.
	budgetOtherKernel = 4
)

// What the verifier spends on each program, which is most of what loading one
// for a pod costs. PODWEIR_UPDATE_BUDGET=1 writes what it finds.
func TestPrivilegedVerifierBudget(t *testing.T) {
	bpftest.RequireRoot(t)
	found := budgets{Kernel: kernelSeries(t), Programs: map[string]budget{}}
	spec, err := bpf.LoadPodweir()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		found.Programs[name] = spend(t, name)
	}
	if os.Getenv("PODWEIR_UPDATE_BUDGET") != "" {
		writeBudgets(t, &found)
		return
	}
	compareBudgets(t, &found)
}

func compareBudgets(t *testing.T, found *budgets) {
	t.Helper()
	data, err := os.ReadFile(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	var allowed budgets
	if err := json.Unmarshal(data, &allowed); err != nil {
		t.Fatalf("%s: %v", budgetFile, err)
	}
	margin := budgetMargin
	if found.Kernel != allowed.Kernel {
		margin = budgetOtherKernel
	}
	for _, name := range slices.Sorted(maps.Keys(found.Programs)) {
		is, may := found.Programs[name], allowed.Programs[name]
		if float64(is.Instructions) > float64(may.Instructions)*margin {
			t.Errorf("%s: the verifier walks %d instructions, the budget is %d", name, is.Instructions, may.Instructions)
		}
		if float64(is.Stack) > float64(may.Stack)*margin {
			t.Errorf("%s: uses %d bytes of stack, the budget is %d", name, is.Stack, may.Stack)
		}
	}
}

func writeBudgets(t *testing.T, found *budgets) {
	t.Helper()
	out, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(budgetFile, append(out, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	stackDepth = regexp.MustCompile(`stack depth ([0-9+]+)`)
	processed  = regexp.MustCompile(`processed (\d+) insns`)
)

func spend(t *testing.T, program string) budget {
	t.Helper()
	opts := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}
	coll, err := ebpf.NewCollectionWithOptions(oneProgram(t, program), opts)
	if err != nil {
		t.Fatalf("load %s: %+v", program, err)
	}
	defer coll.Close()
	log := coll.Programs[program].VerifierLog
	var out budget
	for frame := range strings.SplitSeq(match(t, stackDepth, log), "+") {
		out.Stack += number(t, frame)
	}
	out.Instructions = number(t, match(t, processed, log))
	return out
}

func match(t *testing.T, re *regexp.Regexp, log string) string {
	t.Helper()
	m := re.FindStringSubmatch(log)
	if m == nil {
		t.Fatalf("no %v in the verifier's log:\n%s", re, log)
	}
	return m[1]
}

func number(t *testing.T, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// kernelSeries is the running kernel's major.minor.
func kernelSeries(t *testing.T) string {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d.%d", major, minor)
}
