// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command podweir-cni is the chained CNI plugin: the container runtime runs it
// for every pod.
package main

import (
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	_ "github.com/podweir/podweir/plugin/cmd/podweir-cni/single"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/version"
)

func main() {
	calm()
	room(false)
	p := cni.Plugin{Stdout: os.Stdout, Stderr: os.Stderr, Paths: engine.DefaultPaths}
	about := "podweir-cni " + version.String() + ": chained plugin that enforces pod bandwidth annotations"
	if err := skel.PluginMainFuncsWithError(p.Funcs(), cni.SupportedVersions, about); err != nil {
		// The error goes to stdout as the specification asks; if that fails
		// there is nobody left to tell.
		_ = err.Print()
		os.Exit(1)
	}
}
