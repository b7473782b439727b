// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package settings has what the programs of a node and of a cluster have in common: it gives
// flags the values that the environment and a file have for them, and runs a program to its end.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flag is the one that names the file.
const Flag = "config"

// Usage is the help for it.
const Usage = "YAML file with values for flags, by their names; flags and environment come first"

// Read gives each flag of a command that is not on the command line the value of its
// environment variable, PODWEIR_EGRESS_BURST for --egress-burst, else that of the file
// that --config names. An empty variable is none.
func Read(cmd *cobra.Command) error {
	f := cmd.Flags()
	if err := environment(f); err != nil {
		return err
	}
	path, err := f.GetString(Flag)
	if err != nil {
		return err
	}
	others := map[string]bool{}
	flagsOf(cmd.Root(), others)
	return File(path, f, others)
}

func environment(f *pflag.FlagSet) error {
	var all error
	f.VisitAll(func(flag *pflag.Flag) {
		value := os.Getenv("PODWEIR_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_")))
		if flag.Name == "help" || flag.Changed || value == "" {
			return
		}
		if err := f.Set(flag.Name, value); err != nil {
			all = errors.Join(all, fmt.Errorf("environment variable of --%s: %w", flag.Name, err))
		}
	})
	return all
}

func flagsOf(cmd *cobra.Command, into map[string]bool) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) { into[flag.Name] = settable(flag.Name) })
	for _, c := range cmd.Commands() {
		flagsOf(c, into)
	}
}

func settable(name string) bool { return name != Flag && name != "help" }

// File gives the flags that have no value yet those of a file; no path is no file. A key
// is a flag of this command or of another one, which others has; any other key is an
// error.
func File(path string, f *pflag.FlagSet, others map[string]bool) error {
	if path == "" {
		return nil
	}
	values, err := values(path)
	if err != nil {
		return err
	}
	var all error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		flag := f.Lookup(key)
		switch {
		case flag == nil && others[key] || flag != nil && flag.Changed && settable(key):
		case flag == nil || !settable(key):
			all = errors.Join(all, fmt.Errorf("--config %s: %q is no setting, want one of %s", path, key, strings.Join(names(f), ", ")))
		default:
			if err := set(f, flag, values[key]); err != nil {
				all = errors.Join(all, fmt.Errorf("--config %s: %s: %w", path, key, err))
			}
		}
	}
	return all
}

// values are those of a file, none without one.
func values(path string) (map[string]any, error) {
	values := map[string]any{}
	if path == "" {
		return values, nil
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", path, err)
	}
	return values, nil
}

// Since reads a file and returns a function that says how the file has changed since: a program goes on by what it read.
func Since(path string) func() error {
	read, _ := values(path) // a program that could not read it has not begun
	return func() error {
		now, err := values(path)
		if err != nil {
			return fmt.Errorf("this program would not start again: %w", err)
		}
		both := maps.Clone(read)
		maps.Copy(both, now)
		maps.DeleteFunc(both, func(key string, _ any) bool { return reflect.DeepEqual(read[key], now[key]) })
		if len(both) == 0 {
			return nil
		}
		return fmt.Errorf("%s has other values since this program started, which count after a restart: %s", path, strings.Join(slices.Sorted(maps.Keys(both)), ", "))
	}
}

func set(f *pflag.FlagSet, flag *pflag.Flag, value any) error {
	words := []string{}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, v := range list {
		if v != nil {
			words = append(words, fmt.Sprint(v))
		}
	}
	if all, ok := flag.Value.(pflag.SliceValue); ok {
		flag.Changed = true
		return all.Replace(words)
	}
	return f.Set(flag.Name, strings.Join(words, ","))
}

func names(f *pflag.FlagSet) []string {
	var all []string
	f.VisitAll(func(flag *pflag.Flag) {
		if settable(flag.Name) {
			all = append(all, flag.Name)
		}
	})
	return all
}
