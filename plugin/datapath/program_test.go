// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/datapath/bpfcall"
)

// A kernel that lets no program read its memory gets the program without that; if it
// refuses this, too, the error is that of the whole program.
func TestLoadEither(t *testing.T) {
	reads := []byte{0x85, 0, 0, 0, 113, 0, 0, 0} // bpf_probe_read_kernel
	text := append(bytes.Clone(reads), 0x95, 0, 0, 0, 0, 0, 0, 0)
	whole, without := errors.New("whole"), errors.New("without")
	for _, tt := range []struct {
		name          string
		reads, others error // of programs that read, and of others
		want          error
		loads         []bool // whether each program that is tried reads
	}{
		{"takes it", nil, nil, nil, []bool{true}},
		{"lets nobody read", whole, nil, nil, []bool{true, false}},
		{"refuses it for another reason", whole, without, whole, []bool{true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var loads []bool
			prog, err := loadEither(text, func(text []byte) (*bpfcall.Program, error) {
				loads = append(loads, bytes.Contains(text, reads))
				if loads[len(loads)-1] {
					return &bpfcall.Program{}, tt.reads
				}
				return &bpfcall.Program{}, tt.others
			})
			if !errors.Is(err, tt.want) || (prog == nil) != (err != nil) {
				t.Errorf("loadEither = %v, %v, want error %v", prog, err, tt.want)
			}
			if !slices.Equal(loads, tt.loads) {
				t.Errorf("tried programs that read: %v, want %v", loads, tt.loads)
			}
		})
	}
}
