// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rules

import (
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
)

func templateRules() []Rule {
	return []Rule{
		{"EKS103", "no template calls lookup: the chart is turned into a manifest without a cluster", lookups},
		{"EKS104", "no template asks .Capabilities.APIVersions", apiVersions},
		{"EKS105", "of .Release only Name and Namespace", releaseFields},
		{"EKS126", "templates give the same text every time", undetermined},
	}
}

// use is one identifier or field chain in a template.
type use struct {
	file string
	line int
	// path is the function's name alone, or the field's names without "$".
	path []string
	call bool
}

// uses lists every function and field that the chart's templates name. A
// template that does not parse is Helm's to refuse (EKS108).
func (c *Chart) uses() []use {
	var out []use
	for _, name := range c.templates() {
		for _, tree := range parseTemplate(name, string(c.files[name])) {
			w := walker{file: name, text: string(c.files[name])}
			w.walk(tree.Root)
			out = append(out, w.uses...)
		}
	}
	return out
}

// templates lists every template of the chart and of the charts in it.
func (c *Chart) templates() []string {
	return slices.DeleteFunc(c.names(""), func(name string) bool {
		return !strings.HasPrefix(name, "templates/") && !strings.Contains(name, "/templates/")
	})
}

func parseTemplate(name, text string) map[string]*parse.Tree {
	tree := parse.New(name)
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "", "", trees); err != nil {
		return nil
	}
	return trees
}

type walker struct {
	file, text string
	uses       []use
}

func (w *walker) add(at parse.Pos, call bool, path ...string) {
	line := strings.Count(w.text[:min(int(at), len(w.text))], "\n") + 1
	w.uses = append(w.uses, use{file: w.file, line: line, path: path, call: call})
}

func (w *walker) walk(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				w.walk(child)
			}
		}
	case *parse.ActionNode:
		w.walk(n.Pipe)
	case *parse.IfNode:
		w.branch(&n.BranchNode)
	case *parse.RangeNode:
		w.branch(&n.BranchNode)
	case *parse.WithNode:
		w.branch(&n.BranchNode)
	case *parse.TemplateNode:
		w.walk(n.Pipe)
	case *parse.PipeNode:
		if n != nil {
			for _, command := range n.Cmds {
				for _, arg := range command.Args {
					w.walk(arg)
				}
			}
		}
	case *parse.IdentifierNode:
		w.add(n.Pos, true, n.Ident)
	case *parse.FieldNode:
		w.add(n.Pos, false, n.Ident...)
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			w.add(n.Pos, false, n.Ident[1:]...)
		}
	case *parse.ChainNode:
		w.chain(n)
	}
}

func (w *walker) branch(n *parse.BranchNode) {
	w.walk(n.Pipe)
	w.walk(n.List)
	w.walk(n.ElseList)
}

// chain sees through the brackets of (.Release).Service.
func (w *walker) chain(n *parse.ChainNode) {
	before := len(w.uses)
	w.walk(n.Node)
	if len(w.uses) == before+1 && !w.uses[before].call {
		w.uses[before].path = append(slices.Clone(w.uses[before].path), n.Field...)
	}
}

func (c *Chart) usesWhere(wrong func(use) string) []Finding {
	var out []Finding
	for _, u := range c.uses() {
		if message := wrong(u); message != "" {
			out = append(out, Finding{File: u.file, Line: u.line, Message: message})
		}
	}
	return out
}

func lookups(c *Chart) []Finding {
	return c.usesWhere(func(u use) string {
		if u.call && u.path[0] == "lookup" {
			return "calls lookup, which finds nothing when EKS makes the manifest"
		}
		return ""
	})
}

func apiVersions(c *Chart) []Finding {
	return c.usesWhere(func(u use) string {
		switch {
		case u.call || u.path[0] != "Capabilities":
			return ""
		case len(u.path) == 1:
			return "hands .Capabilities on as a whole; name the field that is used"
		case u.path[1] == "APIVersions":
			return "asks .Capabilities.APIVersions; make it a value that the user sets"
		}
		return ""
	})
}

func releaseFields(c *Chart) []Finding {
	return c.usesWhere(func(u use) string {
		switch {
		case u.call || u.path[0] != "Release":
			return ""
		case len(u.path) == 1:
			return "hands .Release on as a whole; name the field that is used"
		case u.path[1] != "Name" && u.path[1] != "Namespace":
			return fmt.Sprintf("uses .Release.%s; only .Release.Name and .Release.Namespace exist there", u.path[1])
		}
		return ""
	})
}

// changing are the functions of Helm and Sprig that answer differently each
// time.
var changing = []string{
	"randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes", "randInt", "shuffle", "uuidv4",
	"now", "ago", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey",
	"genSignedCert", "genSignedCertWithKey", "htpasswd", "bcrypt", "encryptAES", "getHostByName", "env", "expandenv",
}

func undetermined(c *Chart) []Finding {
	return c.usesWhere(func(u use) string {
		if u.call && slices.Contains(changing, u.path[0]) {
			return fmt.Sprintf("calls %s: the manifest that AWS tested would not be the one that is installed", u.path[0])
		}
		return ""
	})
}
