// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
)

// Of linux/netlink.h: the length of struct nlattr, what attributes are aligned
// to, and the bits of a type beside its flags.
const (
	nlaHeaderLen = 4
	nlaAlign     = 4
	nlaTypeMask  = 0x3fff
)

// EachAttr calls f with the type, without its flags, and the value of every
// netlink attribute in b, until f returns an error. The value is valid as long
// as b is.
func EachAttr(b []byte, f func(kind uint16, value []byte) error) error {
	e := nl.NativeEndian()
	for len(b) >= nlaHeaderLen {
		n := int(e.Uint16(b))
		if n < nlaHeaderLen || n > len(b) {
			return fmt.Errorf("netlink attribute of %d bytes, %d are there", n, len(b))
		}
		if err := f(e.Uint16(b[2:])&nlaTypeMask, b[nlaHeaderLen:n]); err != nil {
			return err
		}
		b = b[min(len(b), nlaRound(n)):]
	}
	return nil
}

// nlaRound is a length with the padding that follows it.
func nlaRound(n int) int { return (n + nlaAlign - 1) &^ (nlaAlign - 1) }

// Uint32 reads a number in the order of the machine's bytes, 0 if b is shorter.
func Uint32(b []byte) uint32 {
	const size = 4
	if len(b) < size {
		return 0
	}
	return nl.NativeEndian().Uint32(b)
}
