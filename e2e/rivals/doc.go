// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package rivals limits a pod in the way that other software does: into the pod as
// Cilium's bandwidth manager, whose other direction needs fq, and in both as Calico's QoS
// controls. They are doubles: each copies the
// effect of named functions, without the agents around them, so that podweir can be
// measured beside them on one machine. What a double makes goes with its device.
package rivals
