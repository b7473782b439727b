// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package sbom lists what is linked into Go programs, as SPDX 2.3 JSON
// (https://spdx.github.io/spdx-spec/v2.3/). It reads what the linker wrote
// into the programs, so that the list is of what is there, not of what a
// go.mod asks for.
package sbom

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Program is one Go program and what is linked into it.
type Program struct {
	// Name is the file's, SHA256 in hexadecimal.
	Name, SHA256 string
	// GoVersion as "go1.26.8".
	GoVersion string
	// Main is the module of the program.
	Main debug.Module
	// Modules are all others, the replacement where one is replaced.
	Modules []debug.Module
}

// Read looks into a program.
func Read(name string) (Program, error) {
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		return Program{}, err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return Program{}, err
	}
	sum := sha256.Sum256(data)
	p := Program{Name: filepath.Base(name), SHA256: hex.EncodeToString(sum[:]), GoVersion: info.GoVersion, Main: info.Main}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		p.Modules = append(p.Modules, *dep)
	}
	return p, nil
}

// Modules lists the modules of all programs once, in order.
func Modules(programs []Program) []debug.Module {
	var out []debug.Module
	for _, p := range programs {
		out = append(out, p.Modules...)
	}
	slices.SortFunc(out, func(a, b debug.Module) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Version, b.Version))
	})
	return slices.CompactFunc(out, func(a, b debug.Module) bool { return a.Path == b.Path && a.Version == b.Version })
}

type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	ID                string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID               string        `json:"SPDXID"`
	Name             string        `json:"name"`
	Version          string        `json:"versionInfo,omitempty"`
	Purpose          string        `json:"primaryPackagePurpose"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	LicenseConcluded string        `json:"licenseConcluded"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	CopyrightText    string        `json:"copyrightText"`
	SourceInfo       string        `json:"sourceInfo,omitempty"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	ExternalRefs     []externalRef `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	unsaid     = "NOASSERTION"
)

// SPDX writes the list for the programs of one architecture. name is the
// document's, version the product's.
func SPDX(name, version string, created time.Time, programs []Program) ([]byte, error) {
	hash := sha256.New()
	for _, p := range programs {
		_, _ = fmt.Fprintln(hash, p.Name, p.SHA256)
	}
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID, Name: name,
		DocumentNamespace: fmt.Sprintf("https://github.com/podweir/podweir/spdx/%s-%x", name, hash.Sum(nil)),
		CreationInfo: creationInfo{
			Created: created.UTC().Format(time.RFC3339), Creators: []string{"Tool: podweir-tools-image"},
		},
	}
	library := func(module debug.Module) string {
		p := spdxPackage{
			ID: "SPDXRef-" + identifier(module.Path+"-"+module.Version), Name: module.Path, Version: module.Version, Purpose: "LIBRARY",
			DownloadLocation: unsaid, LicenseConcluded: unsaid, LicenseDeclared: unsaid, CopyrightText: unsaid,
			ExternalRefs: []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}},
		}
		if module.Sum != "" {
			p.SourceInfo = "go.sum " + module.Sum
		}
		if !slices.ContainsFunc(d.Packages, func(q spdxPackage) bool { return q.ID == p.ID }) {
			d.Packages = append(d.Packages, p)
		}
		return p.ID
	}
	for _, program := range programs {
		p := spdxPackage{
			ID: "SPDXRef-program-" + identifier(program.Name), Name: program.Name, Version: version, Purpose: "APPLICATION",
			DownloadLocation: unsaid, LicenseConcluded: unsaid, LicenseDeclared: "Apache-2.0", CopyrightText: unsaid,
			Checksums: []checksum{{"SHA256", program.SHA256}},
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{documentID, "DESCRIBES", p.ID})
		standard := debug.Module{Path: "stdlib", Version: strings.TrimPrefix(program.GoVersion, "go")}
		for _, module := range append([]debug.Module{standard}, program.Modules...) {
			d.Relationships = append(d.Relationships, relationship{p.ID, "DEPENDS_ON", library(module)})
		}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// notInIdentifier is what SPDX identifiers may not hold.
var notInIdentifier = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func identifier(s string) string { return notInIdentifier.ReplaceAllString(s, "-") }
