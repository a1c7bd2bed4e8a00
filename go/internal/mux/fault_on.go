// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package mux

import "os"

// faultVariable is the environment variable with the name of the one rule that this process breaks.
const faultVariable = "PARTYWALL_FAULT"

var activeFault = os.Getenv(faultVariable)

// fault reports whether the named rule of this package is disabled, to check that a test then
// fails.
func fault(name string) bool {
	return name == activeFault
}
