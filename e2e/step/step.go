// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package step ends a step of a rig where something fails, as Fatal ends a test: what a rig
// does is a long row of calls, none of which can go on without the last.
package step

import (
	"errors"
	"fmt"
)

// failure is what [OK] ends a step with.
type failure struct{ error }

// OK ends the step, unless the error is nil. It is for the goroutine of [Run], or a function that begins with [End].
func OK(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get is OK for a call that has a result.
func Get[T any](v T, err error) T {
	OK(err)
	return v
}

// Err is the error of a call that returns something else, too.
func Err[T any](_ T, err error) error { return err }

// Say is OK, with what failed in front of the error.
func Say(err error, format string, args ...any) {
	if err != nil {
		OK(fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err))
	}
}

// End makes a function a step that returns the error with which it ended, if it did: to be deferred first.
func End(err *error) {
	ended := recover()
	if because, ok := ended.(failure); ok {
		*err = because.error
	} else if ended != nil {
		panic(ended)
	}
}

// Run does a step, and returns the error with which it ended, if it did.
func Run(f func()) (err error) {
	defer End(&err)
	f()
	return nil
}

// Close is to be deferred: it closes what the step opened, and adds what goes wrong to the
// error with which the step ended.
func Close(f func() error) {
	ended := recover()
	err := f()
	if because, ok := ended.(failure); ok {
		err = errors.Join(because.error, err)
	} else if ended != nil {
		panic(ended)
	}
	OK(err)
}
