// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

// Changes is for the tests of this package.
var Changes = changes
