// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"slices"
	"strings"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
)

// namePrefix starts the names of podweir's programs and maps. Anybody may use it: what
// has it is looked at, and what has it not is another party's.
const namePrefix = "pw_"

// Ours says whether a program that is attached somewhere is podweir's, of whatever
// build and whatever became of its pins: it uses maps as every program of podweir's
// does that limits anything, or has the tag of a program of this build.
func Ours(id uint32, name string, tag [8]byte) bool {
	if !strings.HasPrefix(name, namePrefix) {
		return false
	}
	return usesOurMaps(id) || slices.ContainsFunc([]Carrier{ByClassID, image.ByHostEgress, image.ByHostIngress}, func(c Carrier) bool {
		return Current(name, tag, c)
	})
}

// ownMaps are those of this release, and of those before the slab.
var ownMaps = []string{mapSlab, mapHosts, mapScratch, "pw_config", "pw_state", "pw_counters"}

func usesOurMaps(id uint32) bool {
	prog, err := bpfcall.ProgramByID(id)
	if err != nil {
		return false // it is gone
	}
	defer func() { _ = prog.Close() }()
	ids, err := prog.MapIDs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ids, func(m uint32) bool {
		name, err := bpfcall.MapName(m)
		return err == nil && slices.Contains(ownMaps, name)
	})
}
