// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import "github.com/prometheus/procfs"

// BusySeconds is the processor time of the machine that was not idle.
func BusySeconds() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	c := stat.CPUTotal
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal, err
}

// Processor is the name of the machine's processor, as far as it says.
func Processor() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return "unknown"
	}
	all, err := fs.CPUInfo()
	if err != nil || len(all) == 0 || all[0].ModelName == "" {
		return "unknown"
	}
	return all[0].ModelName
}
