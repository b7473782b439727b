// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

var verdictName = regexp.MustCompile(`\b(?:TC_ACT_[A-Z_]+|TCX_[A-Z_]+)\b`)

// verdicts: TC_ACT_OK from a shared hook ends everybody else's chain. On our own
// qdisc it means "the class is in tc_classid": it has a name of its own there,
// ownClass, and only the classifier of that qdisc may answer it. Tests play the
// other parties and may return anything.
func verdicts(t *Tree) []string {
	allowed := map[string]bool{
		"TC_ACT_UNSPEC": true, "TC_ACT_SHOT": true, "TC_ACT_REDIRECT": true, "TCX_NEXT": true, "TCX_DROP": true,
	}
	var faults []string
	for _, f := range t.Files {
		if !f.Is("bpf/*.c", "bpf/*.h", "bpf/lib/*") {
			continue
		}
		code := File{Path: f.Path, Data: blankComments(f.Data)}
		faults = append(faults, ownClassFaults(&code)...)
		code.Data = ownClassDefinition.ReplaceAll(code.Data, nil)
		n := 0
		for line := range bytes.Lines(code.Data) {
			n++
			if name := verdictName.Find(line); name != nil && !allowed[string(name)] {
				faults = append(faults, fmt.Sprintf("%s:%d: %q: on a shared hook only -1 (TC_ACT_UNSPEC) and TC_ACT_SHOT", f.Path, n, name))
			}
		}
	}
	return faults
}

var (
	ownClassDefinition = regexp.MustCompile(`#define[ \t]+PW_OWN_CLASS[ \t]+TC_ACT_OK\b`)
	ownClassUse        = regexp.MustCompile(`\breturn[^;]*\bPW_OWN_CLASS\b|\bband_classify\(`)
	zeroVerdict        = regexp.MustCompile(`\breturn[ (]+0\b`)
	cFunction          = regexp.MustCompile(`^[a-z_][\w \t*]*?\b(\w+)\(`)
	section            = regexp.MustCompile(`^SEC\("`)
)

// ownClassFaults holds the answer of our own qdisc to band_classify, the only
// caller of which are the pw_class programs, and refuses a bare 0 from a
// program.
func ownClassFaults(f *File) []string {
	var faults []string
	function, program, n := "", false, 0
	for line := range bytes.Lines(f.Data) {
		n++
		switch m := cFunction.FindSubmatch(line); {
		case section.Match(line):
			program = true
			continue
		case m != nil:
			function = string(m[1])
			continue
		case line[0] == '}':
			function, program = "", false
		}
		classifier := function == "band_classify" || strings.HasPrefix(function, "pw_class")
		if ownClassUse.Match(line) && !classifier {
			faults = append(faults, fmt.Sprintf("%s:%d: only pw_class, on our own qdisc, may answer a class", f.Path, n))
		}
		if program && zeroVerdict.Match(line) {
			faults = append(faults, fmt.Sprintf("%s:%d: a bare 0 is TC_ACT_OK; name the verdict", f.Path, n))
		}
	}
	return faults
}

var cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// blankComments removes C comments and keeps the line numbers.
func blankComments(code []byte) []byte {
	return cComment.ReplaceAllFunc(code, func(c []byte) []byte {
		return bytes.Repeat([]byte("\n"), bytes.Count(c, []byte("\n")))
	})
}
