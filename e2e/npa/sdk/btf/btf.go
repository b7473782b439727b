// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package btf stands in for one of a newer aws-ebpf-sdk-go, which no module proxy has.
package btf

import "errors"

// CheckKfuncs says that the kernel has none of the functions: the SDK that is there
// cannot load programs that call them, and the agent takes those that do not.
func CheckKfuncs([]string) error { return errors.New("not built") }
