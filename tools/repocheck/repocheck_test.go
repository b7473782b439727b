// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

const root = "../.."

func TestRepository(t *testing.T) {
	t.Parallel()
	tree := must.Get(Load(root))(t)
	if len(tree.Files) < 10 {
		t.Fatalf("Load(%q) found %d files: is this the top?", root, len(tree.Files))
	}
	for name, check := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, fault := range check(tree) {
				t.Error(fault)
			}
		})
	}
}

// rules are what must hold for the whole tree: each returns a line for each fault,
// "path:line: what" where a line is known.
var rules = map[string]func(*Tree) []string{"verdicts": verdicts, "links": links, "commands": commands}

func TestRulesSeeFaults(t *testing.T) {
	for name, p := range map[string]struct {
		rule, path, data string
		// want is part of the one expected fault; "" means that the file is fine.
		want string
	}{
		"accepting verdict":           {"verdicts", "bpf/lib/a.h", "/* x\n */ return TC_ACT_OK;\n", "bpf/lib/a.h:2"},
		"verdict in a comment":        {"verdicts", "bpf/lib/a.h", "/* TC_ACT_OK would end\n the chain */ // TCX_PASS too\n", ""},
		"class from a shared hook":    {"verdicts", "bpf/a.c", "SEC(\"tc\")\nint pw_band(struct __sk_buff *skb)\n{\n\treturn PW_OWN_CLASS;\n}\n", "may answer a class"},
		"classifier on a shared hook": {"verdicts", "bpf/a.c", "SEC(\"tc\")\nint pw_band(struct __sk_buff *skb)\n{\n\treturn band_classify(skb, true);\n}\n", "may answer a class"},
		"classifier of our own qdisc": {"verdicts", "bpf/a.c", "SEC(\"tc\")\nint pw_class(struct __sk_buff *skb)\n{\n\treturn band_classify(skb, true);\n}\n", ""},
		"zero from a program":         {"verdicts", "bpf/a.c", "SEC(\"tc\")\nint pw_band(struct __sk_buff *skb)\n{\n\treturn 0;\n}\n", "bare 0"},
		"zero from a helper":          {"verdicts", "bpf/a.c", "static int f(int x)\n{\n\treturn 0;\n}\n", ""},
		"the name of our own answer":  {"verdicts", "bpf/lib/verdict.h", "#define PW_OWN_CLASS TC_ACT_OK\n", ""},
		"next and drop":               {"verdicts", "bpf/a.c", "return x ? TC_ACT_UNSPEC : TC_ACT_SHOT;\n", ""},
		"foreign program in a test":   {"verdicts", "bpf/testdata/a.c", "return TC_ACT_OK;\n", ""},
		"dead link":                   {"links", "README.md", "[x](docs/none.md)\n", "not there"},
		"dead fragment":               {"links", "README.md", "# Top\n[x](#bottom)\n", "no such heading"},
		"live links":                  {"links", "README.md", "# The `top`, it is\n[x](#the-top-it-is) [y](https://example.org/z)\n", ""},
		"page that nobody links to":   {"links", "docs/howto/a.md", "", "no link"},
	} {
		got := strings.Join(rules[p.rule](&Tree{Files: []File{{Path: p.path, Data: []byte(p.data)}}}), "\n")
		must.Part(t, name, p.want, got)
	}
}
