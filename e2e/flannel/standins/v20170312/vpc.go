// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package v20170312 stands in for a module that module proxies do not have. One
// backend of flannel imports it, which the matrix never uses.
package v20170312

import "errors"

// The names are those that flannel uses.
type (
	Client struct{}
	Filter struct {
		Name   *string
		Values []*string
	}
	Route struct {
		DestinationCidrBlock, GatewayId, GatewayType, RouteType *string
		RouteId                                                 *uint64
		Enabled                                                 *bool
	}
	RouteTable struct {
		RouteTableId *string
		RouteSet     []*Route
	}
	DescribeRouteTablesRequest struct{ Filters []*Filter }
	RoutesRequest              struct {
		RouteTableId *string
		Routes       []*Route
	}
	DescribeRouteTablesResponse struct {
		Response struct{ RouteTableSet []*RouteTable }
	}
)

var errNotBuilt = errors.New("this backend is not built")

func NewClientWithSecretId(_, _, _ string) (*Client, error) { return nil, errNotBuilt }

func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}
func NewDeleteRoutesRequest() *RoutesRequest { return &RoutesRequest{} }
func NewCreateRoutesRequest() *RoutesRequest { return &RoutesRequest{} }

func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errNotBuilt
}
func (*Client) DeleteRoutes(*RoutesRequest) (any, error) { return nil, errNotBuilt }
func (*Client) CreateRoutes(*RoutesRequest) (any, error) { return nil, errNotBuilt }
