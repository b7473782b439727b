// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package step ends a step of a rig where something fails, as Fatal ends a test: what a rig
// does is a long row of calls, none of which can go on without the last.
package step

import "errors"

// failure is what [OK] ends a step with.
type failure struct{ error }

// OK ends the step, unless the error is nil. It is for the goroutine of [Run].
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

// Run does a step, and returns the error with which it ended, if it did.
func Run(f func()) (err error) {
	defer func() {
		ended := recover()
		if because, ok := ended.(failure); ok {
			err = because.error
		} else if ended != nil {
			panic(ended)
		}
	}()
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
