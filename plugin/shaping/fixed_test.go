// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/units"
)

// sampleRates has both ends, their neighbours, and random rates in between
// that are spread over the magnitudes.
func sampleRates() []units.BitRate {
	rates := []units.BitRate{
		units.MinRate, units.MinRate + 1, 8_000, 1e6, 10e6, 52_999_999, 53e6, 53_999_999, 54e6,
		100e6, 1e9, 1e9 + 7, 10e9, 100e9, units.MaxRate - 1, units.MaxRate,
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same sample each time
	for range 500 {
		span := math.Log(float64(units.MaxRate) / float64(units.MinRate))
		rates = append(rates, units.BitRate(float64(units.MinRate)*math.Exp(random.Float64()*span)))
	}
	return rates
}

func quotient(f shaping.FixedRate) *big.Rat {
	den := new(big.Int).Lsh(big.NewInt(1), uint(f.Shift))
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Mult), den)
}

// checkFixed fails unless got is want rounded up by less than 2^-40 of it, in
// the range that keeps the dataplane's product below 2^64.
func checkFixed(t *testing.T, what string, got shaping.FixedRate, want *big.Rat) {
	t.Helper()
	if got.Mult == 0 || got.Mult >= 1<<44 || got.Shift >= 64 {
		t.Errorf("%s = %+v, want mult below 2^44 and shift below 64", what, got)
	}
	// (2^20-1)*mult + 2^shift - 1 must not wrap.
	top := new(big.Int).Mul(big.NewInt(1<<20-1), new(big.Int).SetUint64(got.Mult))
	top.Add(top, new(big.Int).Lsh(big.NewInt(1), uint(got.Shift)))
	if top.BitLen() > 64 {
		t.Errorf("%s = %+v overflows 64 bits", what, got)
	}
	excess := new(big.Rat).Sub(quotient(got), want)
	bound := new(big.Rat).Mul(want, new(big.Rat).SetFrac64(1, 1<<40))
	if excess.Sign() < 0 || excess.Cmp(bound) >= 0 {
		f, _ := new(big.Rat).Quo(excess, want).Float64()
		t.Errorf("%s = %+v, relative error %g, want 0 to 2^-40", what, got, f)
	}
}

func TestSketchRate(t *testing.T) {
	t.Parallel()
	// ln 2 to 40 digits.
	ln2, _ := new(big.Rat).SetString("0.6931471805599453094172321214581765680755")
	for _, rate := range sampleRates() {
		for i, threshold := range []units.PerMille{5, 50, 333, 1000} {
			// estimate = rate * tau * x must be 2^24 with tau = 2^(20 + half-life) ns / ln 2.
			halfLife := uint32(10 - i)
			perSecond := new(big.Rat).SetFrac(
				new(big.Int).Mul(new(big.Int).SetUint64(uint64(rate)), big.NewInt(int64(threshold))), big.NewInt(8000))
			tau := new(big.Rat).Quo(new(big.Rat).SetFrac64(1<<(20+halfLife), 1e9), ln2)
			want := new(big.Rat).Quo(new(big.Rat).SetInt64(1<<24), new(big.Rat).Mul(perSecond, tau))
			checkFixed(t, rate.String()+" x "+threshold.String(), shaping.SketchRate(rate, threshold, halfLife), want)
		}
	}
}

// TestSketchSettlesAtThreshold runs the decay of the sketch in real numbers: a
// flow at exactly the threshold must settle at PW_EST_ONE.
func TestSketchSettlesAtThreshold(t *testing.T) {
	t.Parallel()
	const rate, packet = 10e6, 1500
	x, _ := quotient(shaping.SketchRate(rate, 50, 10)).Float64()
	threshold := float64(rate) / 8 * 0.05
	decay := math.Exp2(-packet / threshold / (float64(1<<30) / 1e9))
	estimate := 0.0
	for range 2000 { // 48 s
		estimate = estimate*decay + packet*x
	}
	// A packet more or less is 1500 bytes of the 96,800 that are remembered.
	if ratio := estimate / (1 << 24); ratio < 0.99 || ratio > 1.02 {
		t.Errorf("estimate at the threshold = %.4f of PW_EST_ONE, want 1", ratio)
	}
}
