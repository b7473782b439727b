// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package units_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

func TestParseQuantity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want uint64
	}{
		"plain number":                 {"1000", 1000},
		"mega":                         {"10M", 10e6},
		"milli is not mega":            {"10m", 1},
		"milli of a large number":      {"10000000m", 10000},
		"milli rounds up":              {"1000001m", 1001},
		"micro":                        {"1000000000u", 1000},
		"nano":                         {"1000000000001n", 1001},
		"decimal":                      {"1.5M", 1.5e6},
		"decimal rounds up":            {"1000.1", 1001},
		"binary":                       {"10Mi", 10 << 20},
		"binary decimal":               {"1.5Ki", 1536},
		"exponent":                     {"1e6", 1e6},
		"capital exponent":             {"1E6", 1e6},
		"signed exponent":              {"1e+6", 1e6},
		"negative exponent":            {"1000000e-3", 1000},
		"E alone is exa":               {"1E", 1e18},
		"Ei is exbi":                   {"1Ei", 1 << 60},
		"decimal exa":                  {"0.0000001E", 1e11},
		"leading point":                {".5M", 500e3},
		"trailing point":               {"5.M", 5e6},
		"plus":                         {"+10M", 10e6},
		"zero":                         {"0", 0},
		"many digits":                  {"0000000000000000000000000010M", 10e6},
		"many fraction digits":         {"1.0000000000000000000000000000M", 1e6},
		"many digits, a little more":   {"1000.0000000000000000000000000001", 1001},
		"more than 64 bits":            {"99999999999999999999999", math.MaxUint64},
		"huge exponent":                {"1e2147483647", math.MaxUint64},
		"tiny exponent rounds up to 1": {"1e-2147483647", 1},
		"large digits, small exponent": {"100000000000000000000000e-18", 100000},
	} {
		must.Be(t, fmt.Sprintf("%s: ParseQuantity(%q)", name, tc.in), tc.want, must.Get(units.ParseQuantity(tc.in))(t))
	}
	for name, in := range map[string]string{
		"minus":                         "-10M",
		"empty":                         "",
		"space":                         " 10M",
		"space before suffix":           "10 M",
		"unit":                          "10Mbit",
		"capital K":                     "10K",
		"unknown suffix":                "10X",
		"hexadecimal":                   "0x10",
		"underscore":                    "10_000",
		"two points":                    "1.0.0M",
		"exponent and suffix":           "1e6k",
		"suffix alone":                  "M",
		"point alone":                   ".",
		"exponent of more than 32 bits": "1e9999999999",
		"infinite":                      "Inf",
	} {
		got, err := units.ParseQuantity(in)
		bad, ok := errors.AsType[*units.ValueError](err)
		if got != 0 || !ok || bad.Value != in {
			t.Errorf("%s: ParseQuantity(%q) = %d, %v, want an error that names the value", name, in, got, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]uint64{
		"64Ki": 65536, "125k": 125000, "1": 1,
		"0": 0, "-1": 0, "10X": 0, "10ms": 0, "0.1": 0, "10m": 0, "1.1": 2, "1000m": 1, "1001m": 2, "-0": 0, "": 0,
	} {
		got, err := units.ParseSize(in)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
}

func TestParsePerMille(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]units.PerMille{
		"90%": 900, "0.9": 900, "90.5%": 905, "1": 1000, "100%": 1000, "1%": 10, "0.010": 10,
		"5e-1": 0, "0.0105": 0, "0.9%": 0, "90": 0, "101%": 0, "-1%": 0, "": 0, "%": 0, "x": 0,
		"0.9000000000000000000000000001": 0, "0.9000": 900, "0.5x": 0, "0": 0,
	} {
		got, err := units.ParsePerMille(in, 10, 1000)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("ParsePerMille(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	if _, err := units.ParsePerMille("99.9%", 10, 990); err == nil ||
		err.Error() != `"99.9%" is not a share from 1% to 99% in steps of 0.1%, written as 90% or 0.9` {
		t.Errorf("ParsePerMille(99.9%%) error = %v, want value and range named", err)
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"1ms": time.Millisecond, "1s": time.Second, "50ms": 50 * time.Millisecond,
		"999us": 0, "1.001s": 0, "50": 0, "": 0, "-50ms": 0,
	} {
		got, err := units.ParseDuration(in, time.Millisecond, time.Second)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]interface{ String() string }{
		"10 Mbit/s":                units.BitRate(10e6),
		"1.234567891 Gbit/s":       units.BitRate(1234567891),
		"1 kbit/s":                 units.MinRate,
		"999 bit/s":                units.BitRate(999),
		"0 bit/s":                  units.BitRate(0),
		"400 Gbit/s":               units.MaxRate,
		"1.25 MB/s":                units.ByteRate(1250000),
		"65.536 kB":                units.Bytes(65536),
		"18.446744073709551615 EB": units.Bytes(math.MaxUint64),
		"90%":                      units.PerMille(900),
		"0.5%":                     units.PerMille(5),
		"100%":                     units.Whole,
	} {
		must.Be(t, "String()", want, v.String())
	}
}

func TestConversionsAtBothEnds(t *testing.T) {
	t.Parallel()
	type check struct {
		name      string
		got, want uint64
	}
	for _, c := range []check{
		{"lowest rate in bytes", uint64(units.MinRate.ByteRate()), 125},
		{"rate rounds down", uint64(units.BitRate(1007).ByteRate()), 125},
		{"below 8 bits nothing is left", uint64(units.BitRate(7).ByteRate()), 0},
		{"highest rate in bytes", uint64(units.MaxRate.ByteRate()), 50e9},
		{"and back", uint64(units.ByteRate(50e9).BitRate()), 400e9},
		{"bits saturate", uint64(units.ByteRate(math.MaxUint64).BitRate()), math.MaxUint64},
		{"share", uint64(units.MaxRate.Share(900)), 360e9},
		{"one byte at the lowest rate", uint64(units.MinRate.Duration(1)), 8e6},
		{"one byte at the highest rate rounds up", uint64(units.MaxRate.Duration(1)), 1},
		{"largest burst at the lowest rate", uint64(units.MinRate.Duration(units.MaxBurst)), 4e15},
		{"largest burst at the highest rate", uint64(units.MaxRate.Duration(units.MaxBurst)), 10e6},
		{"largest size saturates", uint64(units.MinRate.Duration(math.MaxUint64)), math.MaxInt64},
		{"rate of zero takes for ever", uint64(units.BitRate(0).Duration(1)), math.MaxInt64},
		{"a product of exactly 2^64 times the divisor saturates", uint64(units.ByteRate(1 << 63).Bytes(2 * time.Second)), math.MaxUint64},
		{"nothing takes no time", uint64(units.MinRate.Duration(0)), 0},
		{"bytes per second rounds up", uint64(units.ByteRate(3).Duration(1)), 333333334},
		{"bytes per second saturates", uint64(units.ByteRate(1).Duration(math.MaxUint64)), math.MaxInt64},
		{"bytes of 10 ms", uint64(units.BitRate(10e6).Bytes(10 * time.Millisecond)), 12500},
		{"bytes round down", uint64(units.MinRate.Bytes(time.Millisecond)), 0},
		{"bytes of the longest time", uint64(units.MaxRate.Bytes(math.MaxInt64)), math.MaxUint64},
		{"bytes of a negative time", uint64(units.MaxRate.Bytes(-1)), 0},
		{"bytes at a byte rate", uint64(units.ByteRate(1250000).Bytes(time.Second)), 1250000},
		{"bits to bytes rounds up", uint64(units.BytesFromBits(9)), 2},
		{"largest number of bits", uint64(units.BytesFromBits(math.MaxUint64)), 1 << 61},
	} {
		must.Be(t, c.name, c.want, c.got)
	}
}

// FuzzQuantity holds the parser against exact rational arithmetic.
func FuzzQuantity(f *testing.F) {
	for _, s := range []string{"10M", "1.5Gi", "1e6", "-3k", ".5u", "0.000000000000000001E", "10m", "9e-3", "1Ei"} {
		f.Add(s)
	}
	scales := map[string]*big.Rat{
		"": rat(1, 1), "n": rat(1, 1e9), "u": rat(1, 1e6), "m": rat(1, 1e3),
		"k": rat(1e3, 1), "M": rat(1e6, 1), "G": rat(1e9, 1), "T": rat(1e12, 1), "P": rat(1e15, 1), "E": rat(1e18, 1),
		"Ki": rat(1<<10, 1), "Mi": rat(1<<20, 1), "Gi": rat(1<<30, 1),
		"Ti": rat(1<<40, 1), "Pi": rat(1<<50, 1), "Ei": rat(1<<60, 1),
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := units.ParseQuantity(s)
		number := strings.TrimRight(s, "numkKMGTPEi")
		scale, known := scales[s[len(number):]]
		// What big.Rat reads and we do not: fractions, other bases, underscores.
		if !known || strings.ContainsAny(number, "/_xXbBoOpP") || len(s) > 40 {
			return
		}
		if e := strings.IndexAny(number, "eE"); e >= 0 && (len(number)-e > 4 || number != s) {
			return
		}
		v, ok := new(big.Rat).SetString(number)
		if !ok || v.Sign() < 0 {
			if err == nil {
				t.Errorf("ParseQuantity(%q) = %d, want an error", s, got)
			}
			return
		}
		v.Mul(v, scale)
		want := new(big.Int).Add(v.Num(), new(big.Int).Sub(v.Denom(), big.NewInt(1)))
		want.Div(want, v.Denom())
		if !want.IsUint64() {
			want.SetUint64(math.MaxUint64)
		}
		// 18 digits are kept: from 10^18 on a number is near enough.
		if want.Uint64() >= 1e18 && err == nil && got >= 1e18 {
			return
		}
		if len(number) > 18 && strings.HasSuffix(s, "i") {
			return
		}
		if err != nil || got != want.Uint64() {
			t.Errorf("ParseQuantity(%q) = %d, %v, want %v", s, got, err, want)
		}
	})
}

func rat(a, b int64) *big.Rat { return big.NewRat(a, b) }
