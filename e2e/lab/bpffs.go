// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// bpffsPath is where systemd mounts the BPF file system on every node.
const bpffsPath = "/sys/fs/bpf"

// needBPFFS mounts the BPF file system if the machine has none (containers
// and bare VMs), and unmounts it again at the end if nothing is in it.
func (l *Lab) needBPFFS() error {
	var st unix.Statfs_t
	if err := unix.Statfs(bpffsPath, &st); err != nil {
		return fmt.Errorf("%s: %w", bpffsPath, err)
	}
	if uint32(st.Type) == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpffsPath, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", bpffsPath, err)
	}
	l.onClose("bpffs", func(context.Context) error {
		entries, err := os.ReadDir(bpffsPath)
		if err != nil || len(entries) > 0 {
			return err // another test uses it by now
		}
		return unix.Unmount(bpffsPath, 0)
	})
	return nil
}
