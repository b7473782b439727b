// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

// event is a line of "go test -json" (cmd/test2json of Go).
type event struct {
	Action, Package, Test, Output string
}

// ParseJSON reads the output of "go test -json", in which packages that run side by side
// are told apart. A test that a mark left out is not among them.
func ParseJSON(r io.Reader) (map[TestID]Test, error) {
	tests, features, marked := map[TestID]Test{}, map[TestID]string{}, map[TestID]bool{}
	outcomes := map[string]Outcome{"pass": Pass, "fail": Fail, "skip": Skip}
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		id := TestID{e.Package, e.Test}
		if _, feature, ok := strings.Cut(e.Output, featureMark); ok {
			features[id] = strings.TrimSpace(feature)
		}
		marked[id] = marked[id] || strings.Contains(e.Output, ": "+mark.SkipPrefix)
		if outcome, ok := outcomes[e.Action]; ok && e.Test != "" && !marked[id] {
			tests[id] = Test{outcome, features[id]}
		}
	}
	return tests, nil
}
