// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package mutate runs a fuzz target on random changes of its inputs, in one loop of
// one process. go test's fuzzer spends most of an execution on comparing coverage;
// this spends it on the target, and learns nothing from what it sees. So let go
// test's fuzzer find inputs first, and name its corpus with -mutate.corpus.
package mutate

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

var (
	count = flag.Int("mutate", 0, "executions of the fuzz target on changed inputs; 0 leaves the target to go test")
	seed  = flag.Uint64("mutate.seed", 0, "beginning of the random changes: the same inputs, count and seed repeat a run; 0 takes another each time")
	dir   = flag.String("mutate.corpus", "", "directory of further inputs, as go test's fuzzer leaves them, in a directory for each target")
)

// F is a fuzz target that is run as go test does, or by this package under -mutate.
type F struct {
	*testing.F
	inputs [][]any
}

// New returns the target of f.
func New(f *testing.F) *F {
	f.Helper()
	return &F{F: f}
}

// Add is testing.F.Add.
func (f *F) Add(args ...any) {
	f.inputs = append(f.inputs, args)
	f.F.Add(args...)
}

// Fuzz is testing.F.Fuzz for targets of []byte, string, bool and uint8.
func (f *F) Fuzz(target any) {
	f.Helper()
	if *count == 0 {
		f.F.Fuzz(target)
		return
	}
	inputs, err := f.load(reflect.TypeOf(target))
	if err != nil {
		f.Fatal(err)
	}
	// Only testing.F.Fuzz has a testing.T for the target: the first input's.
	name, ran := f.Name(), false
	f.F.Fuzz(reflect.MakeFunc(reflect.TypeOf(target), func(args []reflect.Value) []reflect.Value {
		if !ran {
			ran = true
			c := campaign{args[0].Interface().(*testing.T), name, reflect.ValueOf(target), inputs}
			c.run()
		}
		return nil
	}).Interface())
}

// load returns all inputs: what was added, testdata/fuzz and -mutate.corpus.
func (f *F) load(target reflect.Type) ([][]any, error) {
	inputs := f.inputs
	for _, of := range []string{filepath.Join("testdata", "fuzz"), *dir} {
		files, err := filepath.Glob(filepath.Join(of, f.Name(), "*"))
		if err != nil || of == "" {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			input, err := decode(target, string(text))
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, input)
		}
	}
	return inputs, nil
}

// campaign runs one target many times.
type campaign struct {
	t      *testing.T
	name   string
	target reflect.Value
	inputs [][]any
}

func (c *campaign) run() {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	c.t.Logf("%s: %d executions from %d inputs with -mutate.seed=%d", c.name, *count, len(c.inputs), first)
	r, begin := rand.New(rand.NewPCG(first, 0)), time.Now()
	for range *count {
		input, other := c.inputs[r.IntN(len(c.inputs))], c.inputs[r.IntN(len(c.inputs))]
		c.execute(change(r, input, other))
	}
	c.t.Logf("%s: no input failed, %.0f executions a second", c.name, float64(*count)/time.Since(begin).Seconds())
}

// execute ends the test if the target fails, and keeps the input where go test looks for it.
func (c *campaign) execute(input []any) {
	returned := false
	defer func() {
		if returned && !c.t.Failed() {
			return
		}
		file, err := keep(c.name, input)
		if err != nil {
			c.t.Error(err)
		}
		c.t.Logf("the failing input is in %s", file)
		if returned {
			c.t.FailNow()
		}
	}()
	args := make([]reflect.Value, 0, 5)
	args = append(args, reflect.ValueOf(c.t))
	for _, v := range input {
		args = append(args, reflect.ValueOf(v))
	}
	c.target.Call(args)
	returned = true
}
