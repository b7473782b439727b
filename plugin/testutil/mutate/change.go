// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mutate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
)

// tokens are what decoders of JSON, TOML, protobuf and quantities look for.
var tokens = []string{
	"{", "}", "[", "]", `"`, ",", ":", "\\", "'", "=", ".", "#", "\n", " ", "\x00", "\x7f", "\x80", "\xff", "\\u0000", "\\ud800",
	"null", "true", "0", "-1", "1e9", "4294967295", "9223372036854775808", "18446744073709551616", "0.5", "../", "Ki", "ms", "%",
}

// change returns a changed copy of input, with parts of other in it. A value is left
// as it is half of the time where there are several.
func change(r *rand.Rand, input, other []any) []any {
	out := slices.Clone(input)
	one := r.IntN(len(out))
	for i, v := range out {
		if i != one && r.IntN(2) == 0 {
			continue
		}
		switch v := v.(type) {
		case []byte:
			out[i] = changeBytes(r, v, other[i].([]byte))
		case string:
			out[i] = string(changeBytes(r, []byte(v), []byte(other[i].(string))))
		case bool:
			out[i] = r.IntN(2) == 0
		case uint8:
			out[i] = uint8(r.Uint32())
		default:
			panic(fmt.Sprintf("a target of %T is not known", v))
		}
	}
	return out
}

// changeBytes makes one to eight changes, few more often than many.
func changeBytes(r *rand.Rand, of, other []byte) []byte {
	b := bytes.Clone(of)
	for {
		b = changeOnce(r, b, other)
		if r.IntN(8) < 3 {
			return b
		}
	}
}

func changeOnce(r *rand.Rand, b, other []byte) []byte {
	from, to := span(r, len(b))
	switch kind := r.IntN(8); {
	case kind == 0 || len(b) == 0:
		return slices.Insert(b, from, []byte(tokens[r.IntN(len(tokens))])...)
	case kind == 1:
		return slices.Replace(b, from, to, []byte(tokens[r.IntN(len(tokens))])...)
	case kind == 2:
		return slices.Delete(b, from, to)
	case kind == 3:
		return slices.Insert(b, to, bytes.Clone(b[from:to])...)
	case kind == 4:
		start, end := span(r, len(other))
		return slices.Replace(b, from, to, other[start:end]...)
	case kind == 5:
		start, end := span(r, len(b))
		copy(b[from:], bytes.Clone(b[start:end]))
	case kind == 6:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	default:
		b[r.IntN(len(b))] = byte(r.Uint32())
	}
	return b
}

// span returns a part of length bytes, a short one more often than a long one.
func span(r *rand.Rand, length int) (from, to int) {
	if length == 0 {
		return 0, 0
	}
	from = r.IntN(length)
	most := length - from
	if r.IntN(4) != 0 {
		most = min(most, 8)
	}
	return from, from + r.IntN(most+1)
}
