// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mutate

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// header begins a file of go test's fuzzer; a line for each value follows.
const header = "go test fuzz v1\n"

func encode(input []any) string {
	var b strings.Builder
	b.WriteString(header)
	for _, v := range input {
		switch v := v.(type) {
		case uint8:
			fmt.Fprintf(&b, "byte('\\x%02x')\n", v)
		case bool:
			fmt.Fprintf(&b, "bool(%v)\n", v)
		default:
			fmt.Fprintf(&b, "%T(%q)\n", v, v)
		}
	}
	return strings.Replace(b.String(), "[]uint8(", "[]byte(", len(input))
}

// decode reads a file for a target, whose first parameter is the testing.T.
func decode(target reflect.Type, text string) ([]any, error) {
	lines, ok := strings.CutPrefix(text, header)
	values := strings.Split(strings.TrimSpace(lines), "\n")
	if !ok || len(values) != target.NumIn()-1 {
		return nil, fmt.Errorf("%.80q is no input of %v", text, target)
	}
	var input []any
	for i, line := range values {
		_, literal, _ := strings.Cut(strings.TrimSuffix(line, ")"), "(")
		want := target.In(i + 1)
		if want.Kind() == reflect.Bool {
			literal = strconv.Quote(literal)
		}
		v, err := strconv.Unquote(literal)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.80q is no value of %v: %w", line, want, err)
		case want.Kind() == reflect.Bool:
			input = append(input, v == "true")
		case want.Kind() == reflect.Uint8:
			input = append(input, v[0])
		default:
			input = append(input, reflect.ValueOf(v).Convert(want).Interface())
		}
	}
	return input, nil
}

// keep writes an input to where every later go test runs the target on it.
func keep(name string, input []any) (string, error) {
	text := encode(input)
	to := filepath.Join("testdata", "fuzz", name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	file := filepath.Join(to, fmt.Sprintf("%x", sum[:8]))
	return file, os.WriteFile(file, []byte(text), 0o644)
}
