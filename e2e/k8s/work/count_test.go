// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"testing"
)

func TestParseReceived(t *testing.T) {
	const head = "Inter-|   Receive    |  Transmit\n face |bytes    packets|bytes    packets\n"
	got, err := parseReceived(strings.NewReader(head + "    lo: 1000 1 1000 1\n  eth0: 200 2 5 1\nnet1:30 2 5 1\n"))
	if err != nil || got != 230 {
		t.Errorf("parseReceived() = %d, %v, want 230", got, err)
	}
	if _, err := parseReceived(strings.NewReader(head + "eth0: many\n")); err == nil {
		t.Error("parseReceived() of a line without a number = nil, want an error")
	}
}
