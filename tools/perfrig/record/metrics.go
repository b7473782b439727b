// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package record

import "strings"

// units are those of metrics by the end of their names; a longer one comes before what
// it ends with.
var units = []struct{ suffix, unit string }{
	{"_bits_per_second", "bit/s"},
	{"_per_second", "/s"},
	{"_cores_per_gbit", "cores per Gbit/s"},
	{"_cores", "cores"},
	{"_share", ""},
	{"_ratio", ""},
	{"_percent", "%"},
	{"_bytes", "B"},
	{"_ms", "ms"},
	{"_ns", "ns"},
	{"_count", ""},
}

// Unit is what stands behind a metric's number. ok is false of a name that does not end
// with its unit: such a number cannot be recorded.
func Unit(metric string) (unit string, ok bool) {
	for _, u := range units {
		if strings.HasSuffix(metric, u.suffix) {
			return u.unit, true
		}
	}
	return "", false
}
