// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package ring

import "os"

// faultVariable names the one rule that this process breaks.
const faultVariable = "PARTYWALL_FAULT"

var activeFault = os.Getenv(faultVariable)

// atFault runs before the rule is broken: a test lets its peer act there.
var atFault = func() {}

// fault reports whether the named rule is disabled, to see that a test notices.
func fault(name string) bool {
	if name != activeFault {
		return false
	}
	atFault()
	return true
}
