// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package netconf reads what a container runtime gives a CNI plugin on stdin,
// pod annotations included, into one validated and defaulted configuration.
package netconf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Command is the CNI verb that the input belongs to: it decides what has to be
// there.
type Command uint8

// The commands that have an input.
const (
	// Add and Check need a prevResult and valid limits.
	Add Command = iota + 1
	Check
	// Del needs the network name alone; limits are not read.
	Del
	// GC needs the list of valid attachments; limits are not read.
	GC
	// Status reads the limits of the network, but needs no prevResult.
	Status
)

// OnError says what becomes of a pod that cannot be shaped.
type OnError uint8

// The answers to a limit that cannot be enforced.
const (
	// FailOpen starts the pod unshaped, with an error in the log.
	FailOpen OnError = iota + 1
	// FailClosed makes ADD fail.
	FailClosed
)

func (o OnError) String() string {
	if o == FailClosed {
		return "closed"
	}
	return "open"
}

// Interface is one interface of a prevResult.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	// Sandbox is the path of the network namespace, empty for an interface
	// of the host.
	Sandbox string `json:"sandbox"`
}

// Attachment is one entry of GC's list of what is still valid.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// Config is the input of one command.
type Config struct {
	// CNIVersion is one of [terms.CNIVersions].
	CNIVersion string
	// Name is the network name, part of the state key.
	Name string
	// Type is the plugin type that the runtime looked up.
	Type string
	// PrevResult is exactly what came in, byte for byte; nil if nothing did.
	PrevResult json.RawMessage
	// Interfaces are those of PrevResult.
	Interfaces []Interface
	// Told says that the entry has the capabilities by which runtimes pass the limits of
	// pods. Without them a pod may have limits that Shaping lacks.
	Told bool
	// Shaping is what is requested. Beside a [*LimitError] it lacks the directions
	// whose rate cannot be read, and has the others.
	Shaping shaping.Config
	// Unread are the directions that have no limit because no rate of theirs can be read.
	Unread []terms.Direction
	// OnError applies to every error but a [*ContractError].
	OnError OnError
	// ReplaceQdisc is the operator's word to replace a root qdisc that
	// another party put on a device.
	ReplaceQdisc bool
	LogLevel     slog.Level
	// Attachments is GC's list of what is still valid.
	Attachments []Attachment
	// Warnings are about what was tolerated: unknown keys and annotations, rates
	// that were clamped, and what Ignored has.
	Warnings []string
	// Misspelt are the warnings of unknown keys that look like known ones.
	Misspelt []string
	// Ignored are the values that are not accepted and that something else is used
	// for: they say how a limit is kept, and never cost the pod its limit, or they
	// are rates where there is another one. Shaping.Notes says what is used.
	Ignored []*FieldError
	// Capped are the rates of the pod, or of its namespace's default, that are above
	// the maximum, which is used instead.
	Capped []*FieldError
}

// FailOpen is the one decision whether a pod starts although it could not be shaped.
func (c *Config) FailOpen() bool { return c.OnError != FailClosed || c.Shaping.Observe }

// Parse reads the input of a command. It touches neither kernel nor files, so
// the answer is the same on every node.
//
// The configuration is never nil: with an error it holds everything that could
// be read, so that the caller can fail open with PrevResult, OnError and the
// log settings.
//
// Returns a [*ContractError] for a break of the CNI contract, which is never
// to be failed open, or a [*LimitError] for rates that cannot be read where there
// is no other. A bad value of anything else is ignored, see [Config.Ignored].
func Parse(command Command, stdin []byte) (*Config, error) {
	return ParseIn(nil, command, stdin)
}

// ParseIn is [Parse] for a pod of a namespace.
func ParseIn(namespace Namespace, command Command, stdin []byte) (*Config, error) {
	return parse(namespace, command, stdin, PodAnnotations{})
}

// parse is [ParseIn] with annotations that stdin does not have.
func parse(namespace Namespace, command Command, stdin []byte, annotations PodAnnotations) (*Config, error) {
	p := &parser{
		config: &Config{OnError: FailOpen, LogLevel: slog.LevelInfo}, namespace: namespace, annotations: annotations,
	}
	if err := p.contract(command, stdin); err != nil {
		return p.config, err
	}
	p.operator()
	if command == Del || command == GC {
		return p.config, nil
	}
	p.warnUnknownKeys()
	p.limits()
	if len(p.errs) != 0 {
		return p.config, &LimitError{Fields: p.errs}
	}
	return p.config, nil
}

// maxNotes bounds what a pinned record holds of mistakes: a pod can make some ten,
// a list of networks hundreds. The log has them all.
const maxNotes = 16

// fewNotes is all notes, or the first and how many there are more.
func fewNotes(notes []string) []string {
	if len(notes) <= maxNotes {
		return notes
	}
	return append(slices.Clone(notes[:maxNotes-1]), fmt.Sprintf("%d more mistakes, which are in the log", len(notes)-maxNotes+1))
}

// ParseStrict is [Parse] for input that a user has just written and can mend, on
// a command line or in an installation's settings: what Parse ignores is an error
// too.
func ParseStrict(command Command, stdin []byte) (*Config, error) {
	c, err := Parse(command, stdin)
	bad, limits := errors.AsType[*LimitError](err)
	switch {
	case len(c.Ignored) == 0 || err != nil && !limits:
		return c, err
	case !limits:
		bad = &LimitError{}
	}
	return c, &LimitError{Fields: append(slices.Clone(bad.Fields), c.Ignored...)}
}

// parser holds what the steps of [Parse] share.
type parser struct {
	config *Config
	// conf, runtime and bandwidth are the network configuration, its
	// runtimeConfig and the bandwidth in that.
	conf, runtime, bandwidth object
	annotations              PodAnnotations
	namespace                Namespace
	// unread are the parts of the runtime's words that cannot be read and may
	// have held a rate, errs the rates that are missing for it.
	unread, errs []*FieldError
	// notes become [shaping.Config.Notes].
	notes []string
	// decided become [shaping.Config.Decisions].
	decided map[terms.Direction]shaping.Decision
	rules   podRules
}

// contract reads what the specification demands.
func (p *parser) contract(command Command, stdin []byte) error {
	conf, err := decodeObject(stdin)
	if err != nil {
		return &ContractError{Code: codeDecoding, Msg: "parse the network configuration on stdin", Err: err}
	}
	p.conf = conf
	c := p.config
	c.PrevResult = conf.get("prevResult")
	for _, s := range [...]struct {
		key  string
		into *string
	}{{"cniVersion", &c.CNIVersion}, {"name", &c.Name}, {"type", &c.Type}} {
		raw := conf.get(s.key)
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, s.into); err != nil {
			return &ContractError{Code: codeInvalidConfig, Msg: "read " + s.key, Err: err}
		}
	}
	var capabilities map[string]bool
	c.Told = json.Unmarshal(conf.get("capabilities"), &capabilities) == nil && capabilities[bandwidthCapability] && capabilities[PodAnnotationsCapability]
	// The specification had no such key at first, and libcni writes "" for none.
	c.CNIVersion = cmp.Or(c.CNIVersion, terms.CNIVersions[0])
	if !slices.Contains(terms.CNIVersions, c.CNIVersion) {
		return &ContractError{
			Code: codeIncompatibleVersion,
			Msg:  "cniVersion " + quoted(c.CNIVersion) + " is not one of " + strings.Join(terms.CNIVersions, ", "),
		}
	}
	if c.Name == "" {
		return &ContractError{Code: codeInvalidConfig, Msg: "name is missing: it is the network name"}
	}
	switch command {
	case Add, Check:
		return p.prevResult()
	case GC:
		return p.validAttachments()
	case Del:
		// What is gone or odd by now must not keep an attachment alive.
		_ = json.Unmarshal(c.PrevResult, &struct{ Interfaces *[]Interface }{&c.Interfaces})
	default:
	}
	return nil
}

func (p *parser) prevResult() error {
	c := p.config
	if c.PrevResult == nil {
		return &ContractError{
			Code: codeInvalidConfig,
			Msg:  "prevResult is missing: podweir-cni must be chained after the plugin that makes the interface",
		}
	}
	result := struct{ Interfaces *[]Interface }{&c.Interfaces}
	if err := json.Unmarshal(c.PrevResult, &result); err != nil {
		return &ContractError{Code: codeDecoding, Msg: "read prevResult", Err: err}
	}
	return nil
}

// Error codes of the CNI specification 1.1.0, section "Error".
const (
	codeIncompatibleVersion uint = 1
	codeDecoding            uint = 6
	codeInvalidConfig       uint = 7
)

// ContractError is a break of the CNI contract: unparsable input, a version
// that is not spoken, or a part that the specification demands and that is not
// there. It is never failed open, because the chain around us is broken.
type ContractError struct {
	// Code is the error code of the CNI specification.
	Code uint
	// Msg says what is wrong.
	Msg string
	// Err is the cause, or nil.
	Err error
}

func (e *ContractError) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	return e.Msg + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ContractError) Unwrap() error { return e.Err }

// IsContract tells a [*ContractError] from limits that cannot be read.
func IsContract(err error) bool {
	_, is := errors.AsType[*ContractError](err)
	return is
}

// FieldError says which field or annotation has which bad value, and what is
// accepted.
type FieldError = shaping.FieldError

// LimitError lists every bad value of a configuration. Whether the pod starts
// all the same is what [Config.OnError] says.
type LimitError struct {
	Fields []*FieldError
}

func (e *LimitError) Error() string {
	texts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		texts[i] = f.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of the single fields.
func (e *LimitError) Unwrap() []error {
	out := make([]error, len(e.Fields))
	for i, f := range e.Fields {
		out[i] = f
	}
	return out
}

// ParseEntry reads podweir's entry in the chain, with the name of its network,
// together with a pod's annotations as a runtime would hand them over, and what is
// set for its namespace: for whoever shapes without being called by a runtime. Configuration and errors are those of
// [Parse]; an entry that is no JSON object is an error without a type.
func ParseEntry(entry []byte, annotations PodAnnotations, namespace Namespace) (*Config, error) {
	bad := func(err error) (*Config, error) {
		return &Config{OnError: FailOpen}, fmt.Errorf("read the node's configuration: %w", err)
	}
	conf, err := decodeObject(entry)
	if err != nil {
		return bad(err)
	}
	delete(conf, "runtimeConfig")
	stdin, err := json.Marshal(conf)
	if err != nil {
		return bad(err)
	}
	// STATUS is the command that needs no result of the plugin before.
	return parse(namespace, Status, stdin, annotations)
}
