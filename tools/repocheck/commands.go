// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Command is one call of a program in a document.
type Command struct {
	// Where is the page, and the line of a code block.
	Where string
	// Program is its name without a directory; that of the plugin of kubectl is
	// "kubectl podweir". What kubectl runs in a pod counts as itself.
	Program string
	Args    []string
	// Inline says that it is in the text, where a part of a command is enough.
	Inline bool
}

var (
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	assignment = regexp.MustCompile(`^[A-Z_]+=`)
	continued  = regexp.MustCompile(`\\\n *`)
)

// Commands lists every call of a program in the code blocks of the documents and in their
// text. Of a block of plain text, which is what programs printed, it has the lines behind
// a prompt, and of a unit of systemd what that executes.
func Commands(t *Tree) []Command {
	var out []Command
	for _, f := range t.Files {
		if !f.Is("*.md") {
			continue
		}
		for _, span := range codeSpan.FindAllSubmatch(fenced.ReplaceAll(f.Data, nil), -1) {
			out = append(out, called(f.Path, string(span[1]), true)...)
		}
		for _, at := range fenced.FindAllIndex(f.Data, -1) {
			head, body, _ := strings.Cut(strings.TrimLeft(string(f.Data[at[0]:at[1]]), " "), "\n")
			n := strings.Count(string(f.Data[:at[0]]), "\n") + 1
			for line := range strings.Lines(continued.ReplaceAllStringFunc(body, func(string) string { return " \x00" })) {
				n++
				where := fmt.Sprintf("%s:%d", f.Path, n)
				n += strings.Count(line, "\x00")
				line = strings.TrimSpace(strings.ReplaceAll(line, "\x00", ""))
				typed, prompt := strings.CutPrefix(line, "$ ")
				if head == "```ini" { // a unit of systemd
					typed, prompt = strings.CutPrefix(line, "ExecStart=")
				}
				if prompt || head == "```console" || head == "```sh" || head == "```bash" {
					out = append(out, called(where, typed, false)...)
				}
			}
		}
	}
	return out
}

// called are the commands of a line.
func called(where, line string, inline bool) []Command {
	var out []Command
	for _, words := range simple(line) {
		c := Command{Where: where, Inline: inline}
		for c.Program == "" && len(words) > 0 {
			word, rest := words[0], words[1:]
			inPod := slices.Index(words, "--") + 1
			switch name := path.Base(word); {
			case name == "sudo", assignment.MatchString(word):
			case name == "kubectl" && len(rest) > 0 && rest[0] == "podweir":
				c.Program, rest = "kubectl podweir", rest[1:]
			case name == "kubectl" && inPod > 0:
				rest = words[inPod:]
			default:
				c.Program = name
			}
			words = rest
		}
		if c.Args = words; c.Program != "" {
			out = append(out, c)
		}
	}
	return out
}

// token is a comment, a word, or what ends a command; quoted is what a shell takes the quotes
// off.
var (
	token  = regexp.MustCompile(`#.*|(?:'[^']*'|"[^"]*"|<[a-z -]+>|[^\s'"|&;()<>])+|[|&;()<>]`)
	quoted = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
)

// simple splits a line into its commands and these into words, as a shell does that
// expands nothing. What stands for a word, such as <netns>, is one.
func simple(line string) [][]string {
	var out [][]string
	var words []string
	for _, t := range append(token.FindAllString(line, -1), ";") {
		switch {
		case t[0] == '#':
		case len(t) == 1 && strings.Contains("|&;()<>", t):
			if len(words) > 0 {
				out = append(out, words)
			}
			words = nil
		default:
			words = append(words, quoted.ReplaceAllString(t, "$1$2"))
		}
	}
	return out
}

var makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)

// commands checks what documents tell a reader to give to make and helm.
func commands(t *Tree) []string { return slices.Concat(makeTargets(t), chartValues(t)) }

// makeTargets checks that what the documents tell a reader to make can be made.
func makeTargets(t *Tree) []string {
	makefile := t.Get("Makefile")
	if makefile == nil {
		return []string{"Makefile: is missing"}
	}
	var targets, faults []string
	for _, m := range makeTarget.FindAllSubmatch(makefile.Data, -1) {
		targets = append(targets, string(m[1]))
	}
	isTarget := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	for _, c := range Commands(t) {
		if c.Program != "make" {
			continue
		}
		for _, arg := range c.Args {
			if isTarget.MatchString(arg) && !slices.Contains(targets, arg) {
				faults = append(faults, fmt.Sprintf("%s: make has no target %s", c.Where, arg))
			}
		}
	}
	return faults
}

// schema is what of values.schema.json says which keys there are.
type schema struct {
	Properties map[string]schema `json:"properties"`
	AnyOf      []schema          `json:"anyOf"`
	Patterns   map[string]any    `json:"patternProperties"`
	Additional any               `json:"additionalProperties"`
}

// accepts says whether a path of keys is one of the chart's, or below a map whose keys are
// the user's.
func (s *schema) accepts(keys []string) bool {
	if len(keys) == 0 {
		return true
	}
	if below, ok := s.Properties[keys[0]]; ok {
		return below.accepts(keys[1:])
	}
	matches := false
	for pattern, below := range s.Patterns {
		if ok, err := regexp.MatchString(pattern, keys[0]); ok || err != nil {
			if below == false || err != nil {
				return false
			}
			matches = true
		}
	}
	if matches {
		return true
	}
	for i := range s.AnyOf {
		if s.AnyOf[i].accepts(keys) {
			return true
		}
	}
	return len(s.AnyOf) == 0 && s.Additional != false
}

// chartValues checks the values and the files of values that documents give to helm for
// podweir's chart. Names in capitals stand for what the reader knows.
func chartValues(t *Tree) []string {
	file := t.Get("chart/values.schema.json")
	if file == nil {
		return []string{"chart/values.schema.json: is missing"}
	}
	var keys schema
	if err := json.Unmarshal(file.Data, &keys); err != nil {
		return []string{"chart/values.schema.json: " + err.Error()}
	}
	var faults []string
	for _, c := range Commands(t) {
		if c.Program != "helm" || !slices.Contains(c.Args, "chart") {
			continue
		}
		for i, arg := range c.Args[1:] {
			switch flag := c.Args[i]; flag {
			case "--set", "--set-string", "--set-json":
				key, _, _ := strings.Cut(arg, "=")
				if !keys.accepts(strings.Split(key, ".")) {
					faults = append(faults, fmt.Sprintf("%s: the chart has no value %s", c.Where, key))
				}
			case "-f", "--values":
				if strings.HasPrefix(arg, "chart/") && strings.ToLower(arg) == arg && t.Get(arg) == nil {
					faults = append(faults, fmt.Sprintf("%s: there is no file %s", c.Where, arg))
				}
			}
		}
	}
	return faults
}
