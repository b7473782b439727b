// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package show

import "strings"

// suggests stands before the commands that cobra takes a word for, one on each line.
const suggests = "\n\nDid you mean this?\n"

// OneLine is an error as a command ends with it, on one line: errors that were joined have a
// line each, and cobra has several for a command that is not there.
func OneLine(err error) string {
	text, similar, found := strings.Cut(err.Error(), suggests)
	if found {
		text += ": did you mean " + strings.Join(strings.Fields(similar), " or ") + "?"
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}
