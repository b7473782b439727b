// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// needed are the capabilities without which no pod can be shaped. What others
// are for is in docs/howto/install-with-helm.md.
var needed = []struct {
	bit  uint
	name string
}{
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN, for queues and filters on pods' devices"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN, to enter pods' network namespaces and load programs"},
}

// missingCapabilities says which capabilities this process lacks; nil if none, or
// if the kernel does not say.
func missingCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil //nolint:nilerr // what is missing shows where it is used
	}
	return lacks(uint64(data[1].Effective)<<32 | uint64(data[0].Effective))
}

// lacks is missingCapabilities for a set.
func lacks(effective uint64) error {
	var missing []string
	for _, c := range needed {
		if effective&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("no pod can be shaped: the agent lacks %s", strings.Join(missing, "; "))
}
