// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// bpffsPath is where systemd mounts the BPF file system on every node.
const bpffsPath = "/sys/fs/bpf"

// needBPFFS mounts the BPF file system if the machine has none (containers
// and bare VMs), and unmounts it again at the end if nothing is in it.
func (l *Lab) needBPFFS() (err error) {
	defer step.End(&err)
	var st unix.Statfs_t
	step.Say(unix.Statfs(bpffsPath, &st), "%s", bpffsPath)
	if uint32(st.Type) == unix.BPF_FS_MAGIC {
		return nil
	}
	step.Say(unix.Mount("bpf", bpffsPath, "bpf", 0, "mode=0700"), "mount bpffs on %s", bpffsPath)
	l.onClose("bpffs", func(context.Context) error {
		entries, err := os.ReadDir(bpffsPath)
		if err != nil || len(entries) > 0 {
			return err // another test uses it by now
		}
		return unix.Unmount(bpffsPath, 0)
	})
	return nil
}
