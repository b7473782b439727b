// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package image

// Tags are those that were worked out before, none for a carrier that is a slot.
func (p *Program) Tags(carrier Carrier) [][8]byte {
	if int(carrier) >= len(p.tags) {
		return nil
	}
	return p.tags[carrier][:]
}
