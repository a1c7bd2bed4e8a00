// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package ring

import "os"

// faultVariable is the environment variable with the name of the one rule that this process breaks.
const faultVariable = "PARTYWALL_FAULT"

var activeFault = os.Getenv(faultVariable)

// atFault is called just before the rule is broken, so that a test can act as the peer at this
// moment.
var atFault = func() {}

// fault reports whether the named rule of this package is disabled, to check that a test then
// fails.
func fault(name string) bool {
	if name != activeFault {
		return false
	}
	atFault()
	return true
}
