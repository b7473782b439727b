// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package components pins Helm 4, with which tools/charttest tests the chart beside
// Helm 3. It is a module of its own so that its dependencies stay out of podweir's.
package components
