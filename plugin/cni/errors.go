// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni

import (
	"errors"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
)

// Error codes. Those below 100 have their meaning from the CNI specification;
// 100 and above are ours.
const (
	codeInvalidConfig = types.ErrInvalidNetworkConfig
	codeInvalidNetNS  = types.ErrInvalidNetNS
	codeNotAvailable  = types.ErrPluginNotAvailable
	codeShaping       = 100
	codeDrift         = 101
	codeForeign       = 102
)

func contractError(err error) error {
	if contract, ok := errors.AsType[*netconf.ContractError](err); ok {
		details := "" // what prints both would say it twice
		if contract.Err != nil {
			details = contract.Err.Error()
		}
		return types.NewError(contract.Code, contract.Msg, details)
	}
	return shapeError(err)
}

// shapeError answers that an interface could not be shaped, or is not.
func shapeError(err error) error {
	var drift *apply.DriftError
	var limit *netconf.LimitError
	var field *shaping.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &drift):
		return types.NewError(codeDrift, "interface is not shaped as it should be", err.Error())
	case errors.As(err, &limit), errors.As(err, &field):
		return types.NewError(codeInvalidConfig, "invalid podweir configuration", err.Error())
	case errors.Is(err, rtnl.ErrNoNetNS):
		return types.NewError(codeInvalidNetNS, "no network namespace", err.Error())
	case errors.Is(err, attach.ErrForeignQdisc), errors.Is(err, attach.ErrHookTaken):
		return types.NewError(codeForeign, "podweir will not replace what is not its own", err.Error())
	default:
		return types.NewError(codeShaping, "podweir could not shape the interface", err.Error())
	}
}
