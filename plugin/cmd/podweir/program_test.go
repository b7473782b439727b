// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/terms"
)

// Every command that a text may tell a reader to run is printed as it is run there.
func TestCommandsOfTexts(t *testing.T) {
	notForReaders := []string{"agent", "compat", "completion", "help", "version"}
	for _, c := range newRoot().Commands() {
		if slices.Contains(terms.Commands, c.Name()) == slices.Contains(notForReaders, c.Name()) {
			t.Errorf("podweir %s: want it among terms.Commands, or among those that no text names", c.Name())
		}
	}
}
