// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/quote"
)

func quoteCommand(args []string, out io.Writer) error {
	set := flag.NewFlagSet("quote", flag.ContinueOnError)
	root := set.String("C", ".", "root of the checkout")
	check := set.Bool("check", false, "change nothing; fail if a figure is not what its results give")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() != 0 {
		return &usageError{"quote wants no arguments"}
	}
	changed, err := quote.Update(*root, !*check)
	if err != nil {
		return err
	}
	if *check && len(changed) > 0 {
		return fmt.Errorf("figures are not what the results give in %s: run `make figures`", strings.Join(changed, ", "))
	}
	for _, name := range changed {
		fmt.Fprintln(out, name)
	}
	return nil
}
