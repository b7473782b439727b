// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import (
	"regexp"
	"strings"
)

// Commands are those of podweir's program that texts tell a reader to run.
var Commands = []string{"attach", "detach", "doctor", "explain", "gc", "install", "repair", "set", "status", "top", "uninstall"}

var programRun = regexp.MustCompile("((?:^|[^a-z-])(?:kubectl |-- )?)podweir ((?:" + strings.Join(Commands, "|") + ")\\b)")

// OnPath runs the program where it is on the PATH: on a node that it was installed on by
// hand.
const OnPath = "podweir"

// ByKubectl runs the program in the agent's pod on a node, from anywhere.
const ByKubectl = "kubectl podweir exec NODE -- podweir"

// Runnable returns a text for people with podweir's commands as they are run where it is
// read: run takes the place of the program's name. What says already how stays.
func Runnable(text, run string) string {
	if run == "" || run == OnPath {
		return text
	}
	return programRun.ReplaceAllStringFunc(text, func(found string) string {
		parts := programRun.FindStringSubmatch(found)
		if strings.HasSuffix(parts[1], "kubectl ") || strings.HasSuffix(parts[1], "-- ") {
			return found // it says already how
		}
		return parts[1] + run + " " + parts[2]
	})
}
