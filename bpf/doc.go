// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package bpf holds the BPF programs.
//
// The source is podweir.bpf.c, with one idea per header under lib; what Go and
// C agree on is lib/abi.h. The object is committed, so that a build needs no
// clang; check-generate.sh proves that it belongs to the source. Binaries load
// package image, which is made of the object; tests load the object.
package bpf

import (
	"bytes"
	_ "embed"

	"github.com/cilium/ebpf"
)

// bpf2go also writes a loader, of which nothing is needed.
//go:generate go tool bpf2go -go-package bpf -tags linux -target bpfel -cc clang-19 -cflags "-O2 -mcpu=v3 -std=gnu11 -nostdinc -Wall -Wextra -Werror -Wshadow -Wimplicit-int-conversion -Wenum-conversion -Wimplicit-fallthrough" -no-global-types Podweir podweir.bpf.c -- -Iheaders -Ilib
//go:generate rm podweir_bpfel.go

//go:embed podweir_bpfel.o
var object []byte

// LoadPodweir parses the object.
func LoadPodweir() (*ebpf.CollectionSpec, error) {
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
}
