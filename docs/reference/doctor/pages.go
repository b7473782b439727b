// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package pages has the pages of the doctor's checks, from which compat/doctor takes what
// a check is called, needs and matters for.
package pages

import "embed"

// Dir is where the pages are in the source tree.
const Dir = "docs/reference/doctor"

// Files are the pages, one for each code.
//
//go:embed PW*.md
var Files embed.FS
