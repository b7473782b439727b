// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import (
	"fmt"

	"github.com/podweir/podweir/plugin/units"
)

// Word is a type of the vocabulary.
type Word interface {
	~uint8
	fmt.Stringer
}

// Named is a word that JSON has by its name, for what commands and the agent tell. Records
// on the node have the number.
type Named[T Word] struct{ Is T }

// Name returns a word to be told by its name.
func Name[T Word](word T) Named[T] { return Named[T]{word} }

// String returns the name, "" if there is no word.
func (n Named[T]) String() string {
	if n.Is == 0 {
		return ""
	}
	return n.Is.String()
}

// MarshalText returns the name.
func (n Named[T]) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads a name; returns a [*units.ValueError] for what is none.
func (n *Named[T]) UnmarshalText(b []byte) error {
	const words = 32 // no type has as many
	for v := range T(words) {
		if named := Name(v); named.String() == string(b) {
			*n = named
			return nil
		}
	}
	return &units.ValueError{Value: string(b), Accepted: fmt.Sprintf("a name of %T", n.Is)}
}
