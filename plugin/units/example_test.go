// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package units_test

import (
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/units"
)

func ExampleParseQuantity() {
	bits, err := units.ParseQuantity("10M")
	fmt.Println(units.BitRate(bits), units.BitRate(bits).ByteRate(), err)
	_, err = units.ParseQuantity("10 Mbit")
	fmt.Println(err)
	// Output:
	// 10 Mbit/s 1.25 MB/s <nil>
	// "10 Mbit" is not a non-negative Kubernetes quantity such as 10M
}

func ExampleBitRate_Duration() {
	fmt.Println(units.BitRate(10_000_000).Duration(1514))
	// Output: 1.2112ms
}

func ExampleBitRate_Bytes() {
	fmt.Println(units.BitRate(10_000_000).Bytes(10 * time.Millisecond))
	// Output: 12.5 kB
}
