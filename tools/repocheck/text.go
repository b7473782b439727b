// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

func textRules() []Rule {
	return []Rule{
		{"every source file says its licence", licences},
		{"no unfinished marks", unfinished},
		{"units show in names", unitless},
		{"no names of the place where this was written", workplace},
		{"tests neither sleep nor skip by themselves", sleepsAndSkips},
		{"nothing reads the network namespace of the wrong thread", wrongNetns},
		{"verdicts on shared hooks are next or drop", verdicts},
		{"texts are in plain English", plainEnglish},
	}
}

const (
	goLicence = "SPDX-License-Identifier: Apache-2.0"
	goOwner   = "Copyright Authors of podweir"
	// The kernel asks for GPL compatibility where helpers are GPL-only; the
	// other half lets anybody reuse the headers.
	cLicence = "SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)"
	// headerLines is where a licence line may stand: behind #! or //go:build.
	headerLines = 5
)

func licences(t *Tree) []string {
	var faults []string
	for _, f := range t.Files {
		if f.Foreign() || f.Generated() {
			continue
		}
		head := bytes.Join(bytes.SplitN(f.Data, []byte("\n"), headerLines+1)[:min(headerLines, bytes.Count(f.Data, []byte("\n")))], []byte("\n"))
		var want []string
		switch {
		case f.Is("*.go", "*.sh", "Makefile", ".ci/run", "*.yml", "*.yaml"):
			want = []string{goLicence, goOwner}
		case f.Is("*.c", "*.h"):
			want = []string{cLicence}
		}
		for _, w := range want {
			if !bytes.Contains(head, []byte(w)) {
				faults = append(faults, f.Path+": the first lines lack "+w)
			}
		}
	}
	return faults
}

// The patterns below are put together from pieces so that this file, and a
// plain grep for them, stay clean.
var (
	unfinishedMark = regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME|XX` + `X|not ` + `implemented)\b|\b[Ss]t` + `ub(?:s|bed)?\b`)
	unitlessName   = regexp.MustCompile(`(?:\b|_)[bB]` + `ps(?:\b|_)|[a-z](?:B` + `ps)\b`)
	workplaceName  = regexp.MustCompile(`(?:^|[^a-z.])/wo` + `rk/|\.lib` + `rary\b|farm-` + `bench`)
	sleepOrSkip    = regexp.MustCompile(`\btime\.Sl` + `eep\(|\b(?:t|b|tb|f)\.Sk` + `ip(?:f|Now)?\(`)
	skipCall       = regexp.MustCompile(`\b(?:t|b|tb|f)\.Sk` + `ip(?:f|Now)?\(`)
	selfNetns      = regexp.MustCompile(`/proc/self/ns/` + `net`)
	verdictName    = regexp.MustCompile(`\b(?:TC_ACT_[A-Z_]+|TCX_[A-Z_]+)\b`)
)

// grepAll applies one pattern to every text file that match accepts.
func grepAll(t *Tree, match func(*File) bool, pattern *regexp.Regexp, why string) []string {
	var faults []string
	for i := range t.Files {
		if f := &t.Files[i]; f.Text() && !f.Foreign() && match(f) {
			faults = append(faults, f.grep(pattern, why)...)
		}
	}
	return faults
}

func unfinished(t *Tree) []string {
	return grepAll(t, func(*File) bool { return true }, unfinishedMark, "finish it, or file an issue")
}

func unitless(t *Tree) []string {
	source := func(f *File) bool { return f.Is("*.go", "*.c", "*.h", "*.sh", "Makefile", "*.json", "*.yaml", "*.yml") }
	return grepAll(t, source, unitlessName, "say bits or bytes: BitRate, ByteRate, bytes_per_sec")
}

func workplace(t *Tree) []string {
	return grepAll(t, func(*File) bool { return true }, workplaceName, "the repository stands for itself")
}

// sleepsAndSkips lets files with testing/synctest sleep: in its bubble that costs
// no time.
func sleepsAndSkips(t *Tree) []string {
	const why = "poll with a deadline; skip through a helper that names the kernel feature it probed"
	fake := func(f *File) bool { return bytes.Contains(f.Data, []byte("\"testing/synctest\"")) }
	faults := grepAll(t, func(f *File) bool { return f.Is("*_test.go") && !fake(f) }, sleepOrSkip, why)
	return append(faults, grepAll(t, func(f *File) bool { return f.Is("*_test.go") && fake(f) }, skipCall, why)...)
}

// wrongNetns: /proc/self is the main thread, and a Go test runs on another
// one, which may be in another namespace.
func wrongNetns(t *Tree) []string {
	return grepAll(t, func(f *File) bool { return f.Is("*.go") }, selfNetns, "use /proc/thread-self/ns/net on a locked thread")
}

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
		if !f.Is("bpf/*.c", "bpf/*.h", "bpf/lib/") {
			continue
		}
		code := File{Path: f.Path, Data: blankComments(f.Data)}
		faults = append(faults, ownClassFaults(&code)...)
		code.Data = ownClassDefinition.ReplaceAll(code.Data, nil)
		for _, fault := range code.grep(verdictName, "on a shared hook only -1 (TC_ACT_UNSPEC) and TC_ACT_SHOT") {
			if !allowed[strings.Split(fault, `"`)[1]] {
				faults = append(faults, fault)
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
