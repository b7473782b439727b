// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package step_test

import (
	"errors"
	"testing"

	"github.com/podweir/podweir/e2e/step"
)

func TestStepEndsWhereSomethingFails(t *testing.T) {
	after := false
	err := step.Run(func() {
		defer step.Close(func() error { return errors.New("close") })
		step.OK(nil)
		step.Say(nil, "get")
		_, err := readOne()
		step.Say(err, "get %d", 1)
		after = true
	})
	if after || err == nil || err.Error() != "get 1: x\nclose" {
		t.Errorf("Run() = %v, went on: %v", err, after)
	}
	if n, err := readOne(); n != 1 || err == nil {
		t.Errorf("readOne() = %d, %v, want 1 and its failure", n, err)
	}
	if err := step.Run(func() { defer step.Close(func() error { return nil }) }); err != nil {
		t.Errorf("Run() of what does not fail = %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("another panic is taken for a failure")
		}
	}()
	_ = step.Run(func() {
		defer step.Close(func() error { return nil })
		panic("a fault")
	})
}

// readOne has what it read until it failed, and never gets to its end.
func readOne() (read int, err error) {
	defer step.End(&err)
	read++
	step.Get(2, errors.New("x"))
	return read + 1, nil
}
