// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rtnl

// WriteSysctlHere sets a sysctl of the calling thread's namespace, as [NetNS.WriteSysctls] does on
// a thread of its own.
var WriteSysctlHere = writeSysctl
