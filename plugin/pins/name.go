// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/podweir/podweir/plugin/attach"
)

// nameMax is NAME_MAX of linux/limits.h in bytes.
const nameMax = 255

// separator stands between container and interface. Encode never gives it.
const separator = ","

const hexDigits = "0123456789abcdef"

// Encode turns any name into a file name: letters, digits, '-' and '_' stay,
// every other byte becomes %xx. So there is no dot, which bpffs refuses with
// EPERM, no '/', and nothing that means something to a glob.
//
// Returns an error wrapping [ErrName] if the name is empty or the result
// exceeds 255 bytes.
func Encode(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("an empty name %w", ErrName)
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	if b.Len() > nameMax {
		return "", fmt.Errorf("%q takes %d of %d bytes and %w", name, b.Len(), nameMax, ErrName)
	}
	return b.String(), nil
}

// Decode is the inverse of [Encode]. Returns an error wrapping [ErrName] for
// what Encode does not give, so that every name has one file name only.
func Decode(file string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(file); i++ {
		switch c := file[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '%' && i+2 < len(file):
			v, err := hex.DecodeString(file[i+1 : i+3])
			if err != nil {
				return "", fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
			}
			b.WriteByte(v[0])
			i += 2
		default:
			return "", fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
		}
	}
	if again, err := Encode(b.String()); err != nil || again != file {
		return "", fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func encodeAttachment(id attach.ID) (string, error) {
	container, err := Encode(id.ContainerID)
	if err != nil {
		return "", fmt.Errorf("container ID: %w", err)
	}
	ifname, err := Encode(id.IfName)
	if err != nil {
		return "", fmt.Errorf("interface name: %w", err)
	}
	base := container + separator + ifname
	if len(base) > nameMax {
		return "", fmt.Errorf("container ID %q with interface %q takes %d of %d bytes and %w",
			id.ContainerID, id.IfName, len(base), nameMax, ErrName)
	}
	return base, nil
}

// decodeAttachment leaves the network empty.
func decodeAttachment(file string) (attach.ID, error) {
	c, i, ok := strings.Cut(file, separator)
	if !ok {
		return attach.ID{}, fmt.Errorf("%q is not a name of podweir's: %w", file, ErrName)
	}
	container, err := Decode(c)
	if err != nil {
		return attach.ID{}, err
	}
	ifname, err := Decode(i)
	if err != nil {
		return attach.ID{}, err
	}
	return attach.ID{ContainerID: container, IfName: ifname}, nil
}
