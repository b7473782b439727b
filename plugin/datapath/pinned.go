// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// PinnedPrograms returns the ids of the programs that anybody pinned in a
// directory of nothing else, none if there is no such directory. It needs
// CAP_BPF.
func PinnedPrograms(dir string) ([]uint32, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pinned programs: %w", err)
	}
	var ids []uint32
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		info, err := pinnedProgram(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if info.ID != 0 { // else it was unpinned meanwhile
			ids = append(ids, info.ID)
		}
	}
	return ids, nil
}
