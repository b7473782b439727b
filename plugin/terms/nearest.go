// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package terms

import (
	"strconv"
	"strings"
)

// Nearest is the word that a user may have meant, "" if none is near: at most a quarter
// of the letters, and at most three, are missing, superfluous, others, or swapped with the
// next. Case makes no difference.
func Nearest(word string, of []string) string {
	const longest, part, most = 64, 4, 3
	best, least := "", most+1
	for _, w := range of {
		if len(word) > longest || len(w) > longest {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(w))
		if d < least && d <= max(len(w)/part, 1) {
			best, least = w, d
		}
	}
	return best
}

// distance is how many changes of one letter, or swaps of two neighbours, make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// DidYouMean is `, did you mean "X"?` for a word that is near to another one, else "".
func DidYouMean(word string, of []string) string {
	if near := Nearest(word, of); near != "" {
		return ", did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}
