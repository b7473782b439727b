// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter

// AttachLegacy is Attach on a kernel without TCX.
func AttachLegacy(ns Namespace, ifName string, dir Direction) (*Meter, error) {
	return newMeter(ns, ifName, dir, true)
}
