// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// budget is what the verifier may spend on a program.
type budget struct {
	// Instructions that it walks, and bytes of stack.
	Instructions uint32 `json:"instructions"`
	Stack        uint32 `json:"stack"`
	// LoadMicroseconds is the shortest of some loads, for the reader: no test
	// fails by it. Under emulation it is many times that of a real processor.
	LoadMicroseconds int64 `json:"loadMicroseconds"`
}

// budgets are those of every program on one kernel series.
type budgets map[string]budget

const (
	// budgetFile has budgets by kernel series.
	budgetFile = "verifier-budget.json"
	// A program may grow by 10 % until someone looks and writes a new budget.
	budgetMargin = 1.1
	// Another kernel's verifier walks other ways; four times what the most
	// generous of the known ones walks is a fault.
	budgetOtherKernel = 4
	// budgetLoads is how often a program is loaded for its shortest time.
	budgetLoads = 5
)

// What the verifier spends on each program, which is most of what loading one
// for a pod costs. PODWEIR_UPDATE_BUDGET=1 writes what it finds.
func TestPrivilegedVerifierBudget(t *testing.T) {
	mark.Kernels(t, "each kernel's verifier spends differently")
	bpftest.RequireRoot(t)
	series, found := kernelSeries(t), budgets{}
	for _, name := range programNames(t) {
		found[name] = spend(t, name)
		t.Logf("Linux %s: %s: %d instructions, %d bytes of stack, loaded in %d us",
			series, name, found[name].Instructions, found[name].Stack, found[name].LoadMicroseconds)
	}
	all := readBudgets(t)
	if os.Getenv("PODWEIR_UPDATE_BUDGET") != "" {
		all[series] = found
		writeBudgets(t, all)
		return
	}
	for _, problem := range overBudget(all, series, found) {
		t.Error(problem)
	}
}

// The file has a budget for each program on each of its kernels, and for
// nothing else.
func TestVerifierBudgetFile(t *testing.T) {
	want := programNames(t)
	all := readBudgets(t)
	if len(all) == 0 {
		t.Fatalf("%s knows no kernel", budgetFile)
	}
	for series, b := range all {
		must.Match(t, fmt.Sprintf("%s, Linux %s: programs", budgetFile, series), want, slices.Sorted(maps.Keys(b)))
	}
}

func TestOverBudget(t *testing.T) {
	known := map[string]budgets{
		"6.1": {"p": {Instructions: 100, Stack: 200}},
		"6.2": {"p": {Instructions: 300, Stack: 100}},
	}
	for _, tt := range []struct {
		series string
		found  budget
		want   []string
	}{
		{"6.1", budget{110, 220, 1e9}, nil},
		{"6.1", budget{111, 200, 0}, []string{"p: the verifier walks 111 instructions on Linux 6.1, at most 110 are in the budget"}},
		{"6.1", budget{100, 221, 0}, []string{"p: uses 221 bytes of stack on Linux 6.1, at most 220 are in the budget"}},
		{"6.2", budget{111, 110, 0}, nil},
		{"7.0", budget{1200, 800, 0}, nil},
		{"7.0", budget{1201, 801, 0}, []string{
			"p: the verifier walks 1201 instructions on Linux 7.0, at most 1200 are in the budget",
			"p: uses 801 bytes of stack on Linux 7.0, at most 800 are in the budget",
		}},
	} {
		got := overBudget(known, tt.series, budgets{"p": tt.found})
		must.Match(t, fmt.Sprintf("overBudget(%s, %+v) mismatch", tt.series, tt.found), tt.want, got)
	}
	must.Len(t, "overBudget of a program that has no budget", 1, overBudget(known, "6.1", budgets{"q": {Instructions: 1}}))
}

// overBudget says what spends more than it may on a kernel series.
func overBudget(all map[string]budgets, series string, found budgets) []string {
	allowed, margin := all[series], budgetMargin
	if allowed == nil {
		allowed, margin = budgets{}, budgetOtherKernel
		for _, b := range all {
			for name, may := range b {
				most := allowed[name]
				allowed[name] = budget{
					Instructions: max(most.Instructions, may.Instructions), Stack: max(most.Stack, may.Stack),
				}
			}
		}
	}
	// Rounded, because 1.1 is no binary fraction.
	most := func(n uint32) uint32 { return uint32(math.Round(float64(n) * margin)) }
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		is, may := found[name], allowed[name]
		if limit := most(may.Instructions); is.Instructions > limit {
			problems = append(problems, fmt.Sprintf("%s: the verifier walks %d instructions on Linux %s, at most %d are in the budget",
				name, is.Instructions, series, limit))
		}
		if limit := most(may.Stack); is.Stack > limit {
			problems = append(problems, fmt.Sprintf("%s: uses %d bytes of stack on Linux %s, at most %d are in the budget",
				name, is.Stack, series, limit))
		}
	}
	return problems
}

// programNames are the programs of the shipped object, sorted.
func programNames(t *testing.T) []string {
	t.Helper()
	spec := must.Get(bpf.LoadPodweir())(t)
	return slices.Sorted(maps.Keys(spec.Programs))
}

func readBudgets(t *testing.T) map[string]budgets {
	t.Helper()
	data := must.Get(os.ReadFile(budgetFile))(t)
	all := map[string]budgets{}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatalf("%s: %v", budgetFile, err)
	}
	return all
}

func writeBudgets(t *testing.T, all map[string]budgets) {
	t.Helper()
	out := must.Get(json.MarshalIndent(all, "", "  "))(t)
	must.OK(t, os.WriteFile(budgetFile, append(out, '\n'), 0o600))
}

var (
	stackDepth = regexp.MustCompile(`stack depth ([0-9+]+)`)
	processed  = regexp.MustCompile(`processed (\d+) insns`)
)

// spend loads a program, over maps that are there already.
func spend(t *testing.T, program string) budget {
	t.Helper()
	spec := oneProgram(t, program)
	made, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: spec.Maps, ByteOrder: spec.ByteOrder})
	if err != nil {
		t.Fatalf("make the maps of %s: %v", program, err)
	}
	defer made.Close()
	p := spec.Programs[program]
	for name, m := range made.Maps {
		err := p.Instructions.AssociateMap(name, m)
		if err != nil && !errors.Is(err, asm.ErrUnreferencedSymbol) { // pw_chunk is in no program
			t.Fatal(err)
		}
	}
	log, least := "", time.Hour
	for range budgetLoads {
		start := time.Now()
		loaded, err := ebpf.NewProgramWithOptions(p, ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats})
		least = min(least, time.Since(start))
		if err != nil {
			t.Fatalf("load %s: %+v", program, err)
		}
		log = loaded.VerifierLog
		must.OK(t, loaded.Close())
	}
	out := budget{Instructions: number(t, match(t, processed, log)), LoadMicroseconds: least.Microseconds()}
	for frame := range strings.SplitSeq(match(t, stackDepth, log), "+") {
		out.Stack += number(t, frame)
	}
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
	n := must.Get(strconv.ParseUint(s, 10, 32))(t)
	return uint32(n)
}

// kernelSeries is the running kernel's major.minor.
func kernelSeries(t *testing.T) string {
	t.Helper()
	var name unix.Utsname
	must.OK(t, unix.Uname(&name))
	var major, minor int
	must.OK(t, must.Err(fmt.Sscanf(string(name.Release[:]), "%d.%d", &major, &minor)))
	return fmt.Sprintf("%d.%d", major, minor)
}
