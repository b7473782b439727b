// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"fmt"

	"github.com/podweir/podweir/compat/conflist"
)

// podweir's file is the primary CNI's with an entry at the end and a note at the
// beginning.
func ExampleSplice() {
	original := []byte(`{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}`)
	network, err := conflist.Parse("10-flannel.conflist", original)
	if err != nil {
		fmt.Println(err)
		return
	}
	spliced, err := conflist.Splice(network, []byte(conflist.DefaultEntry))
	if err != nil {
		fmt.Println(err)
		return
	}
	name, _ := conflist.FileName("10-flannel.conflist")
	ours, _ := conflist.Parse(name, spliced)
	fmt.Println(name, ours.Types())
	// Output:
	// 00-podweir-10-flannel.conflist [flannel portmap podweir-cni]
}

// What another program put into podweir's file stays.
func ExampleJoin() {
	original := []byte(`{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}`)
	network, err := conflist.Parse("10-flannel.conflist", original)
	if err != nil {
		fmt.Println(err)
		return
	}
	now, err := conflist.Parse("00-podweir-10-flannel.conflist", []byte(`{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "podweir-cni"}, {"type": "istio-cni"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	joined, err := conflist.Join(network, []byte(conflist.DefaultEntry), now, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ours, err := conflist.Parse("00-podweir-10-flannel.conflist", joined)
	fmt.Println(ours.Types(), err)
	// Output: [flannel portmap podweir-cni istio-cni] <nil>
}

// What a runtime reads follows from its version: drop-ins from containerd 2.1 on.
func ExampleParseRuntime() {
	for _, version := range []string{"containerd://1.7.20", "containerd://2.1.3"} {
		r, err := conflist.ParseRuntime(version)
		fmt.Println(r, r.ReadsDropIns(), r.HasNRI(), err)
	}
	// Output:
	// containerd 1.7.20 no unknown <nil>
	// containerd 2.1.3 yes yes <nil>
}
