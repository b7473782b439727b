// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

// KernelOn is the judgement of PW101 for a release and a processor.
var KernelOn = kernelOn

// Outcomes are those of a report before what one problem breaks is joined.
var Outcomes = outcomes

// Together is [together].
var Together = together

// Shorten is [shorten].
var Shorten = shorten
