// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"os"
	"sync"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/datapath/kernelbtf"
)

// kernelTypes is where a kernel that was built with CONFIG_DEBUG_INFO_BTF tells its
// types.
const kernelTypes = "/sys/kernel/btf/vmlinux"

// writeLayout tells the programs how to find how much a device's queue holds.
func writeLayout(m *bpfcall.Map) error {
	var first uint32
	layout := kernelLayout()
	return m.Update(bytesOf(&first), bytesOf(&layout))
}

// kernelLayout is empty on a kernel that does not tell: the programs do without.
var kernelLayout = sync.OnceValue(readLayout)

func readLayout() (l image.Layout) {
	raw, err := os.ReadFile(kernelTypes)
	if err != nil {
		return l
	}
	types, err := kernelbtf.Parse(raw)
	if err != nil {
		return l
	}
	var stats, backlog uint32
	for _, of := range []struct {
		structure, member string
		offset            *uint32
	}{
		{"sk_buff", "dev", &l.SkbDev},
		{"net_device", "qdisc", &l.DevQdisc},
		{"Qdisc", "qstats", &stats},
		{"gnet_stats_queue", "backlog", &backlog},
	} {
		if *of.offset, err = types.Offset(of.structure, of.member); err != nil {
			return image.Layout{}
		}
	}
	l.QdiscBacklog = stats + backlog
	return l
}
