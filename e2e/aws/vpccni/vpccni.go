// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package vpccni pins the programs of the Amazon VPC CNI, the chart among them,
// and the core plugins of its init image; e2e/aws/setup.sh builds them. It is a
// module of its own because the Network Policy Agent wants another version of
// AWS's EC2 client.
package vpccni
