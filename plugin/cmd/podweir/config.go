// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// flagsOf are the flags that a command and those below it have, but for those that no file
// sets.
func flagsOf(cmd *cobra.Command, into map[string]bool) map[string]bool {
	add := func(flag *pflag.Flag) {
		if flag.Name != "config" && flag.Name != "help" {
			into[flag.Name] = true
		}
	}
	cmd.LocalFlags().VisitAll(add)
	for _, c := range cmd.Commands() {
		flagsOf(c, into)
	}
	return into
}

// readConfig gives the flags that neither the command line nor the
// environment has set the values of a file. A key of the file is a flag of this command
// or of another one, which others has; any other key is an error.
func readConfig(path string, f *pflag.FlagSet, others map[string]bool) error {
	if path == "" {
		return nil
	}
	v := viper.New()
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	var all error
	for _, key := range v.AllKeys() {
		flag := f.Lookup(key)
		if flag == nil && others[key] {
			continue
		}
		if flag == nil || key == "config" || key == "help" {
			all = errors.Join(all, fmt.Errorf("--config %s: %q is no setting, want one of %s", path, key, strings.Join(settings(f), ", ")))
			continue
		}
		if flag.Changed {
			continue
		}
		if err := setFlag(f, flag, v); err != nil {
			all = errors.Join(all, fmt.Errorf("--config %s: %s: %w", path, key, err))
		}
	}
	return all
}

func setFlag(f *pflag.FlagSet, flag *pflag.Flag, v *viper.Viper) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		flag.Changed = true
		return list.Replace(v.GetStringSlice(flag.Name))
	}
	return f.Set(flag.Name, v.GetString(flag.Name))
}

// settings are the keys that the file may have.
func settings(f *pflag.FlagSet) []string {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" && flag.Name != "help" {
			names = append(names, flag.Name)
		}
	})
	return names
}
