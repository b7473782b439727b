// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// The programs pass everything unmetered if the configuration is of another
// version than theirs.
func TestABIVersionIsThatOfThePrograms(t *testing.T) {
	const header = "../../bpf/lib/abi.h"
	text, err := os.ReadFile(header)
	must.OK(t, err)
	found := regexp.MustCompile(`(?m)^#define PW_ABI_VERSION (\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s does not define PW_ABI_VERSION", header)
	}
	if got, err := strconv.ParseUint(string(found[1]), 10, 32); err != nil || got != uint64(ABIVersion) {
		t.Errorf("PW_ABI_VERSION = %d (%v), ABIVersion = %d, want the same", got, err, ABIVersion)
	}
}
