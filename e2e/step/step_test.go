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
		step.Get(1, errors.New("x"))
		after = true
	})
	if after || err == nil || err.Error() != "x\nclose" {
		t.Errorf("Run() = %v, went on: %v", err, after)
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
