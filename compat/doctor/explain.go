// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// Explain returns the page of a code, with podweir's commands as they are run where it is
// read; "" if there is no such check.
func Explain(code, run string) string {
	for _, c := range Checks() {
		if strings.EqualFold(c.Code, code) {
			return terms.Runnable(c.Explanation(), run)
		}
	}
	return ""
}

// Explanation is the page of the check, in Markdown.
func (c *Check) Explanation() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n", c.Code, c.Title)
	fmt.Fprintf(&b, "**%s**, %s.", c.Severity, c.Category)
	if len(c.Needs) > 0 {
		var links []string
		for _, n := range c.Needs {
			links = append(links, "["+n+"]("+n+".md)")
		}
		fmt.Fprintf(&b, " Needs %s.", strings.Join(links, ", "))
	}
	if c.Family != "" {
		fmt.Fprintf(&b, " Only where a CNI of the family `%s` is in force or runs.", c.Family)
	}
	fmt.Fprintf(&b, "\n\nIt looks at %s. Why: %s.\n", c.Looks, c.Why)
	if c.Touches != "" {
		fmt.Fprintf(&b, "\nOnly with `podweir doctor --probe`. It touches %s.\n", c.Touches)
	}
	fmt.Fprintf(&b, "\n**Cure**: %s\n", c.Mend)
	if len(c.Refs) > 0 {
		b.WriteString("\nSources: <" + strings.Join(c.Refs, ">, <") + ">\n")
	}
	return b.String()
}
