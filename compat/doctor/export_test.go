// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

// KernelOn is the judgement of PW101 for a release and a processor.
var KernelOn = kernelOn

// InOrder is [inOrder].
var InOrder = inOrder
