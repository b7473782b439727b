// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package errors stands in for one of package common.
package errors

// TencentCloudSDKError is what flannel looks for.
type TencentCloudSDKError struct{}

func (*TencentCloudSDKError) Error() string { return "not built" }
