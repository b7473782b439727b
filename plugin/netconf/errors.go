// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"errors"
	"strings"

	"github.com/podweir/podweir/plugin/shaping"
)

// Error codes of the CNI specification 1.1.0, section "Error".
const (
	codeIncompatibleVersion uint = 1
	codeDecoding            uint = 6
	codeInvalidConfig       uint = 7
)

// ContractError is a break of the CNI contract: unparsable input, a version
// that is not spoken, or a part that the specification demands and that is not
// there. It is never failed open, because the chain around us is broken.
type ContractError struct {
	// Code is the error code of the CNI specification.
	Code uint
	// Msg says what is wrong.
	Msg string
	// Err is the cause, or nil.
	Err error
}

func (e *ContractError) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ContractError) Unwrap() error { return e.Err }

// IsContract tells a [*ContractError] from limits that cannot be read.
func IsContract(err error) bool {
	_, is := errors.AsType[*ContractError](err)
	return is
}

// FieldError says which field or annotation has which bad value, and what is
// accepted.
type FieldError = shaping.FieldError

// LimitError lists every bad value of a configuration. Whether the pod starts
// all the same is what [Config.OnError] says.
type LimitError struct {
	Fields []*FieldError
}

func (e *LimitError) Error() string {
	texts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		texts[i] = f.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of the single fields.
func (e *LimitError) Unwrap() []error {
	out := make([]error, len(e.Fields))
	for i, f := range e.Fields {
		out[i] = f
	}
	return out
}
