// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command hosted runs one row of the CNI matrix that needs a registry, on a
// hosted runner: a kind cluster with a primary CNI from its own chart or
// manifest, or a cluster of a cloud that exists. It needs docker, helm and
// kubectl, and what "make hosted" builds.
//
//	hosted -list [-json] [-job JOB]
//	hosted [-root DIR] [-dry-run] [-registry HOST] [-out DIR] [-keep] ROW
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

//go:embed hosted.yaml
var data []byte

func main() {
	var o options
	list := flag.Bool("list", false, "list rows and run none")
	asJSON := flag.Bool("json", false, "with -list: names as a JSON array, for the matrix of a workflow")
	job := flag.String("job", "", "with -list: only the rows of this job (kind, cloud)")
	flag.StringVar(&o.root, "root", ".", "directory of the checkout")
	flag.BoolVar(&o.dryRun, "dry-run", false, "print every command and run none")
	flag.StringVar(&o.registry, "registry", "", "registry that holds both images, for clusters that exist")
	flag.StringVar(&o.out, "out", "", "directory for the row's result and the logs of every component")
	flag.BoolVar(&o.keep, "keep", false, "keep the cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o, *list, *asJSON, *job, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosted:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, list, asJSON bool, job string, args []string) error {
	rows, err := parse(data)
	if err != nil {
		return fmt.Errorf("hosted.yaml: %w", err)
	}
	if list {
		return printRows(rows, job, asJSON)
	}
	if len(args) != 1 {
		return errors.New("want one row; -list names them")
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.Name == args[0] })
	if i < 0 {
		return fmt.Errorf("row %q is unknown; -list names all", args[0])
	}
	return o.row(ctx, &rows[i])
}

func printRows(rows []row, job string, asJSON bool) error {
	names := []string{}
	for _, r := range rows {
		if job == "" || job == r.Job {
			names = append(names, r.Name)
		}
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(names)
	}
	for _, n := range names {
		fmt.Println(n)
	}
	return nil
}
