// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package stats sums up samples: mean, spread, confidence, and what of a
// difference is more than noise. It is pure.
package stats

import (
	"math"
	"slices"
)

// Confidence of every interval.
const Confidence = 0.95

// Summary describes the samples of one number.
type Summary struct {
	N              int
	Mean, Min, Max float64
	Median         float64
	Stddev         float64 // of the sample, n-1; NaN below two samples
	// ConfidenceLow and ConfidenceHigh are of the mean, by Student's t; NaN below two samples.
	ConfidenceLow, ConfidenceHigh float64
}

// Summarise returns a summary; of no samples it has N 0 and NaN else.
func Summarise(samples []float64) Summary {
	nan := math.NaN()
	s := Summary{
		N: len(samples), Mean: nan, Min: nan, Max: nan, Median: nan, Stddev: nan,
		ConfidenceLow: nan, ConfidenceHigh: nan,
	}
	if s.N == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(samples))
	s.Min, s.Max = sorted[0], sorted[s.N-1]
	s.Median = (sorted[(s.N-1)/2] + sorted[s.N/2]) / 2
	var variance float64
	s.Mean, variance = moments(sorted)
	if s.N < 2 {
		return s
	}
	s.Stddev = math.Sqrt(variance)
	radius := criticalT(float64(s.N-1)) * s.Stddev / math.Sqrt(float64(s.N))
	s.ConfidenceLow, s.ConfidenceHigh = s.Mean-radius, s.Mean+radius
	return s
}

// moments are the mean and the variance (n-1) of samples.
func moments(samples []float64) (mean, variance float64) {
	n := float64(len(samples))
	for _, v := range samples {
		mean += v / n
	}
	for _, v := range samples {
		variance += (v - mean) * (v - mean) / (n - 1)
	}
	return mean, variance
}

// criticalT is how many standard errors the interval of [Confidence] reaches to either
// side, by Student's t. With t = √degrees × tan θ the density is a power of
// cos θ, which is summed up from the middle.
func criticalT(degrees float64) float64 {
	above, _ := math.Lgamma((degrees + 1) / 2)
	below, _ := math.Lgamma(degrees / 2)
	density := math.Exp(above-below) / math.Sqrt(math.Pi)
	const steps = 20_000
	const step = math.Pi / 2 / steps
	rest := Confidence / 2
	for i := 0.0; ; i++ {
		part := density * math.Pow(math.Cos((i+0.5)*step), degrees-1) * step
		if part >= rest || i == steps-1 {
			return math.Sqrt(degrees) * math.Tan((i+rest/part)*step)
		}
		rest -= part
	}
}

// Difference is how much two sets of samples of a positive number differ.
type Difference struct {
	// Ratio is the geometric mean of the second relative to the first.
	Ratio float64
	// Low and High bound the ratio of [Confidence], by Welch's t on
	// the logarithms: the spread of both sets is in it.
	Low, High float64
}

// Different compares two sets of samples. ok is false if one has fewer than
// two, or a sample is not above 0: then there is no spread to judge by.
func Different(before, after []float64) (d Difference, ok bool) {
	m1, v1, ok1 := logMoments(before)
	m2, v2, ok2 := logMoments(after)
	if !ok1 || !ok2 {
		return d, false
	}
	n1, n2 := float64(len(before)), float64(len(after))
	e1, e2 := v1/n1, v2/n2
	delta, radius := m2-m1, 0.0
	if e1+e2 > 0 {
		degrees := (e1 + e2) * (e1 + e2) / (e1*e1/(n1-1) + e2*e2/(n2-1))
		radius = criticalT(degrees) * math.Sqrt(e1+e2)
	}
	return Difference{Ratio: math.Exp(delta), Low: math.Exp(delta - radius), High: math.Exp(delta + radius)}, true
}

func logMoments(samples []float64) (mean, variance float64, ok bool) {
	if len(samples) < 2 {
		return 0, 0, false
	}
	logs := make([]float64, len(samples))
	for i, s := range samples {
		if s <= 0 || math.IsInf(s, 0) || math.IsNaN(s) {
			return 0, 0, false
		}
		logs[i] = math.Log(s)
	}
	mean, variance = moments(logs)
	return mean, variance, true
}
