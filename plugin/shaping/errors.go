// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import "fmt"

// FieldError says that a field of the configuration has a value that cannot be
// used, or that two fields contradict each other.
type FieldError struct {
	// Field is the key or annotation, or both that contradict each other.
	Field string
	// Value is the value as it was written.
	Value string
	// Accepted is the accepted form and range.
	Accepted string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %q is not accepted, want %s", e.Field, e.Value, e.Accepted)
}
