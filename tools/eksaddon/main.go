// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command eksaddon checks a Helm chart against what AWS asks of an Amazon EKS
// add-on. It exits with 1 if a rule is broken and with 2 if the chart cannot
// be read.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/podweir/podweir/tools/eksaddon/rules"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitBroken     = 1
	exitUnreadable = 2
)

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("eksaddon", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "usage: eksaddon [flags] CHART-DIRECTORY")
		flags.PrintDefaults()
	}
	o := rules.Options{}
	flags.Func("values", "a values `file` that goes over the chart's own; may be given again", func(name string) error {
		o.Values = append(o.Values, name)
		return nil
	})
	flags.StringVar(&o.Namespace, "namespace", "kube-system", "the add-on's `namespace`")
	versions := flags.String("k8s", "1.33,1.34,1.35", "the Kubernetes `versions` that the add-on is declared for")
	flags.BoolVar(&o.Submission, "submission", false, "check the copy that goes to AWS: the images are in AWS Marketplace's registry")
	listRules := flags.Bool("rules", false, "list the rules, and what no rule here can check")
	if err := flags.Parse(args); err != nil {
		return exitUnreadable
	}
	o.KubeVersions = strings.Split(*versions, ",")
	if *listRules {
		for _, r := range rules.All() {
			_, _ = fmt.Fprintf(stdout, "%s  %s\n", r.Code, r.Title)
		}
		for _, text := range rules.NotChecked {
			_, _ = fmt.Fprintf(stdout, "not checked: %s\n", text)
		}
		return 0
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return exitUnreadable
	}
	findings, err := rules.Check(flags.Arg(0), o)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "eksaddon:", err)
		return exitUnreadable
	}
	status := 0
	for _, f := range findings {
		_, _ = fmt.Fprintln(stdout, f)
		if !f.Review {
			status = exitBroken
		}
	}
	return status
}
