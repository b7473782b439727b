// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// line is either of the two.
type line struct {
	Campaign *Campaign `json:"campaign,omitempty"`
	Sample   *Sample   `json:"sample,omitempty"`
}

// Read reads a file. A last line without its end, from a machine that stopped
// while it was written, is left out.
func Read(file string) (_ *Results, err error) {
	defer step.End(&err)
	raw := step.Get(os.ReadFile(file))
	r, err := parse(raw)
	step.Say(err, "%s", file)
	return r, nil
}

func parse(raw []byte) (*Results, error) {
	r := &Results{}
	n := 0
	for text := range bytes.Lines(raw) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break // what is left is no whole line
		}
		n++
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case n == 1 && l.Campaign != nil:
			r.Campaign = *l.Campaign
		case n > 1 && l.Sample != nil:
			r.put(*l.Sample)
		default:
			return nil, fmt.Errorf("line %d: the first is the campaign and the others are samples", n)
		}
	}
	if r.Campaign.Profile == "" {
		return nil, errors.New("no campaign in it")
	}
	return r, nil
}

// put adds a sample in place of an earlier try.
func (r *Results) put(s Sample) {
	id := s.ID()
	r.Samples = slices.DeleteFunc(r.Samples, func(old Sample) bool { return old.ID() == id })
	r.Samples = append(r.Samples, s)
}

// File is a campaign's file that is being written.
type File struct {
	Results *Results
	f       *os.File
}

// Open makes the file of a campaign or, if there is one that lacks some of the plan, goes
// on with it: only with the same spec and machine. Another one, or one that is complete,
// is renamed for the time at which it was begun. The caller must call Close.
func Open(name string, c Campaign, plan []spec.Run) (*File, error) {
	old, err := Read(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return create(name, c)
	case err != nil:
		return nil, err
	}
	done := old.Done()
	lacks := slices.ContainsFunc(plan, func(r spec.Run) bool { return !done[r.ID()] })
	if old.Campaign.Digest != c.Digest || old.Campaign.Machine != c.Machine || !lacks {
		aside := fmt.Sprintf("%s-%s.jsonl", strings.TrimSuffix(name, ".jsonl"), old.Campaign.Started.UTC().Format("20060102T150405"))
		if err := os.Rename(name, aside); err != nil {
			return nil, err
		}
		return create(name, c)
	}
	// What follows the last whole line is cut.
	raw, err := os.ReadFile(name)
	if err == nil {
		err = os.Truncate(name, int64(bytes.LastIndexByte(raw, '\n')+1))
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	return &File{Results: old, f: f}, err
}

func create(name string, c Campaign) (_ *File, err error) {
	defer step.End(&err)
	f := step.Get(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644))
	out := &File{Results: &Results{Campaign: c}, f: f}
	if err := out.write(line{Campaign: &c}); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return out, nil
}

// Append writes a sample; it is on the disk when Append returns. A metric
// whose name does not say its unit is an error.
func (f *File) Append(s *Sample) error {
	for name := range s.Metrics {
		if _, ok := Unit(name); !ok {
			return fmt.Errorf("sample %s: the name of its metric %q does not end with a unit", s.ID(), name)
		}
	}
	if err := f.write(line{Sample: s}); err != nil {
		return err
	}
	f.Results.put(*s)
	return nil
}

func (f *File) write(l line) (err error) {
	defer step.End(&err)
	raw := step.Get(json.Marshal(l))
	step.Get(f.f.Write(append(raw, '\n')))
	return f.f.Sync()
}

// Close ends the writing.
func (f *File) Close() error { return f.f.Close() }
