// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"path"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

func checkMaxConfNum(f *Facts) Finding {
	if f.Node.Config.MaxConfNum == nil {
		return holds("max_conf_num is not set: one network is loaded")
	}
	n := *f.Node.Config.MaxConfNum
	own := f.Node.Conf != nil && len(f.Node.Conf.Own()) > 0
	const fix = "set max_conf_num = 1, and restart containerd"
	switch {
	case n == 1:
		return holds("max_conf_num is 1")
	case own:
		return breaks(fmt.Sprintf("max_conf_num is %d, and podweir's file is beside its original", n), "1, or another delivery",
			"podweir install, which takes another delivery; or: "+fix)
	}
	return warns(fmt.Sprintf("max_conf_num is %d: only interfaces of the first network are limited from their start", n), "1", fix)
}

func checkNRI(f *Facts) Finding {
	listens := f.Node.Listens(detect.NRISocket)
	switch {
	case f.Choice.Delivery != profiles.NRI:
		return skip("the delivery is " + string(f.Choice.Delivery))
	case listens == profiles.Yes:
		return holds("the runtime listens on " + detect.NRISocket)
	case f.Node.Config.NRI == profiles.No:
		return breaks("the runtime's configuration has NRI off", "NRI on", "disable = false for io.containerd.nri.v1.nri, or enable_nri = true for CRI-O, and restart the runtime")
	case listens == profiles.No:
		return breaks("no program listens on "+detect.NRISocket, "NRI on", "switch NRI on in the runtime's configuration, and restart it")
	}
	return unknown("whether the runtime has NRI on")
}

// dropInCapabilities are the capabilities of podweir's drop-in in the network in
// force, and its file; "" if there is none that can be read.
func (f *Facts) dropInCapabilities(network string) (raw []byte, file string) {
	for _, c := range f.Node.Conf.DropIns[network] {
		if c.Type != conflist.Type {
			continue
		}
		name := path.Join(f.Node.ConfDir, network, c.Name)
		if b, err := conflist.ReadFile(f.Root, name); err == nil {
			return b, "/" + name
		}
	}
	return nil, ""
}
