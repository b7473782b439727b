// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

// pins are the modules whose programs a go.mod under dir builds: the neighbours and the
// parts of Kubernetes that tests run, with the version that it pins.
func pins(ctx context.Context, dir string) ([]row.Pin, error) {
	var out []row.Pin
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "go.mod" {
			return err
		}
		var mod struct {
			Require []struct{ Path, Version string }
			Tool    []struct{ Path string }
		}
		if err := goJSON(ctx, &mod, "mod", "edit", "-json", path); err != nil {
			return err
		}
		for _, m := range mod.Require {
			builds := slices.ContainsFunc(mod.Tool, func(t struct{ Path string }) bool { return t.Path == m.Path || strings.HasPrefix(t.Path, m.Path+"/") })
			pin := row.Pin{Module: m.Path, Version: m.Version}
			if builds && !slices.Contains(out, pin) {
				out = append(out, pin)
			}
		}
		return nil
	})
	return out, err
}

// outdated asks the module proxy for the newest release of each pin, prints them and, with
// a page, keeps them beside it.
func outdated(ctx context.Context, o *options) {
	all := step.Get(pins(ctx, filepath.Join(o.root, "e2e")))
	for i := range all {
		var newest struct {
			Version string
			Time    time.Time
		}
		step.OK(goJSON(ctx, &newest, "list", "-m", "-json", all[i].Module+"@latest"))
		all[i].Newest, all[i].Date = newest.Version, newest.Time.Format(time.DateOnly)
	}
	slices.SortFunc(all, func(a, b row.Pin) int { return strings.Compare(a.Module+a.Version, b.Module+b.Version) })
	fmt.Print(row.PinTable(all))
	if o.page != "" {
		raw := step.Get(json.MarshalIndent(all, "", "  "))
		step.OK(os.WriteFile(pinFile(o.page), append(raw, '\n'), 0o644))
	}
}

func pinFile(page string) string { return filepath.Join(filepath.Dir(page), "neighbours.json") }

// readPins are those of the last `make outdated`; none if it never ran.
func readPins(page string) (pins []row.Pin, err error) {
	err = readJSON(pinFile(page), &pins)
	return pins, err
}

// goJSON runs the go command outside of any module and reads what it prints.
func goJSON(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GO111MODULE=on", "GOWORK=off", "GOFLAGS=-mod=mod")
	var failure strings.Builder
	cmd.Stderr = &failure
	raw, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(failure.String()))
	}
	return json.Unmarshal(raw, into)
}
