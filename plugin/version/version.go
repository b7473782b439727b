// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package version tells which build of podweir is running.
package version

import "runtime/debug"

// stamped is set by the Makefile with -ldflags "-X"; empty in any other build.
var stamped string

// String returns the version of this binary: what the build stamped into it,
// else the module version that "go install" recorded, else the VCS revision,
// else "devel". It never returns an empty string.
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return fromBuildInfo(info)
}

// unknown is what a build without any stamp calls itself.
const unknown = "devel"

// revisionLen is the length to which a commit hash is cut: git's own default
// for a repository of this size is 7, 12 stays unique (and is what the kernel
// asks for in its Fixes tags).
const revisionLen = 12

func fromBuildInfo(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), revisionLen)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return unknown
	}
	return unknown + "-" + revision + dirty
}
