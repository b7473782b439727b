// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package sbom_test

import (
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/image/sbom"
)

type document struct {
	SPDXVersion string `json:"spdxVersion"`
	Packages    []struct {
		ID           string                              `json:"SPDXID"`
		Name         string                              `json:"name"`
		Version      string                              `json:"versionInfo"`
		ExternalRefs []struct{ ReferenceLocator string } `json:"externalRefs"`
	} `json:"packages"`
	Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string } `json:"relationships"`
}

func decode(t *testing.T, programs ...sbom.Program) document {
	t.Helper()
	text, err := sbom.SPDX("x", "1.2.3", time.Unix(0, 0), programs)
	must.OK(t, err)
	var d document
	must.OK(t, json.Unmarshal(text, &d))
	return d
}

func program() sbom.Program {
	return sbom.Program{
		Name: "podweir", SHA256: strings.Repeat("0", 64), GoVersion: "go1.26.8",
		Modules: []debug.Module{{Path: "github.com/a/b_c", Version: "v1.0.0+incompatible", Sum: "h1:x="}, {Path: "golang.org/x/sys", Version: "v0.1.0"}},
	}
}

func TestEveryModuleIsListedOnce(t *testing.T) {
	second := program()
	second.Name = "podweir-cni"
	d := decode(t, program(), second)
	var names []string
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	for _, p := range d.Packages {
		names = append(names, p.Name+" "+p.Version)
		if ids[p.ID] || strings.ContainsAny(p.ID, "/_+@") {
			t.Errorf("identifier %q is used twice or has characters that SPDX refuses", p.ID)
		}
		ids[p.ID] = true
	}
	want := []string{
		"podweir 1.2.3", "stdlib 1.26.8", "github.com/a/b_c v1.0.0+incompatible", "golang.org/x/sys v0.1.0", "podweir-cni 1.2.3",
	}
	if !slices.Equal(names, want) {
		t.Errorf("packages = %q, want %q", names, want)
	}
	if got := d.Packages[2].ExternalRefs[0].ReferenceLocator; got != "pkg:golang/github.com/a/b_c@v1.0.0+incompatible" {
		t.Errorf("purl = %q", got)
	}
	for _, r := range d.Relationships {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("relationship %v names what is not there", r)
		}
	}
	if len(d.Relationships) != 8 {
		t.Errorf("%d relationships, want 2 programs and 3 libraries of each", len(d.Relationships))
	}
}

func TestModulesAreMerged(t *testing.T) {
	got := sbom.Modules([]sbom.Program{program(), program()})
	if len(got) != 2 {
		t.Errorf("Modules() = %v, want 2", got)
	}
}

// This test is a Go program itself, without dependencies of its own.
func TestReadOfAProgram(t *testing.T) {
	own, err := os.Executable()
	must.OK(t, err)
	p, err := sbom.Read(own)
	must.OK(t, err)
	if p.GoVersion != runtime.Version() || len(p.SHA256) != 64 {
		t.Errorf("Read() = %+v, want Go %s and a checksum", p, runtime.Version())
	}
	if _, err := sbom.Read("sbom_test.go"); err == nil {
		t.Error("a file that is no program was read")
	}
}
