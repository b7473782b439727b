// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Rate is a rate with three significant digits and its unit.
func Rate(bitsPerSecond float64) string {
	number, prefix := significant(bitsPerSecond)
	return number + " " + prefix + "bit/s"
}

// Short is [Rate] for a column whose head has the unit: 9.87M.
func Short(bitsPerSecond float64) string {
	number, prefix := significant(bitsPerSecond)
	return number + prefix
}

// Milliseconds is how long a packet waited, with three significant digits. Less than the
// smallest bucket of the datapath holds is one value.
func Milliseconds(seconds float64) string {
	const least = 20e-6
	if seconds < least {
		return "below 0.02 ms"
	}
	if seconds >= 1 {
		return fmt.Sprintf("%.0f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g ms", seconds*1e3)
}

// significant returns a number with three significant digits, and the prefix of its
// unit.
func significant(v float64) (number, prefix string) {
	if math.IsNaN(v) || v < 0 {
		v = 0
	}
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	at := 0
	// 999.5 is printed as 1000: the next prefix shows it.
	for v >= 999.5 && at < len(prefixes)-1 {
		v /= 1000
		at++
	}
	digits := 0
	switch {
	case v < 9.995:
		digits = 2
	case v < 99.95:
		digits = 1
	}
	if number = fmt.Sprintf("%.*f", digits, v); digits > 0 {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number, prefixes[at]
}

// Cut shortens text to width columns. It takes from the middle: names of pods differ at
// their ends.
func Cut(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return text
	}
	if width < 2 {
		return string(r[:max(width, 0)])
	}
	front := (width - 1) / 2
	return string(r[:front]) + "…" + string(r[len(r)-(width-1-front):])
}

// Pad is text of exactly width columns.
func Pad(text string, width int) string {
	text = Cut(text, width)
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

// apart pads names to width columns. Those that would look the same when they are cut have a line for the whole name.
func apart(names []string, width int) func(name string) string {
	of := map[string]string{} // by what is left of it, the name; "" for several
	for _, name := range names {
		short := Cut(name, width)
		if other, there := of[short]; there && other != name {
			name = ""
		}
		of[short] = name
	}
	return func(name string) string {
		if other, there := of[Cut(name, width)]; there && other != name {
			return name + "\n" + strings.Repeat(" ", width)
		}
		return Pad(name, width)
	}
}

// since is a time for people, with how long ago it was.
func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	text := "since " + at.UTC().Format(time.RFC3339)
	if !now.IsZero() && now.After(at) {
		text += " (" + age(now.Sub(at)) + ")"
	}
	return text
}

func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}
