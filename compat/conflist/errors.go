// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrChained says that podweir is in the chain already.
	ErrChained = errors.New("podweir is in the chain already")
	// ErrChanging says that a file was written to while it was read.
	ErrChanging = errors.New("the file changes while it is read")
)

// Error says which network configuration cannot be used and why.
type Error struct {
	// File is the name of the file.
	File string
	// Thing is the key, or what else of the file is wrong; empty if the file as
	// a whole is.
	Thing string
	// Value is what is there, Accepted what may be there.
	Value, Accepted string
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string {
	text := e.File
	if e.Thing != "" {
		text += ": " + e.Thing
	}
	if e.Accepted != "" {
		text += fmt.Sprintf(": %q is not accepted, want %s", e.Value, e.Accepted)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxQuoted is how much of a value is repeated in a message, in bytes.
const maxQuoted = 80

func clipped(b []byte) string {
	if len(b) > maxQuoted {
		return strings.ToValidUTF8(string(b[:maxQuoted]), "") + "..."
	}
	return string(b)
}
