// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package flannel pins flanneld for the rows of e2e/matrix; setup.sh builds it
// and makes its image. It is a module of its own so that flannel's dependencies
// stay out of podweir's.
package flannel
