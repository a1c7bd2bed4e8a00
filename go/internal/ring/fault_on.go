// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package ring

import "os"

// faultVariable names the one rule that this process breaks.
const faultVariable = "PARTYWALL_FAULT"

var activeFault = os.Getenv(faultVariable)

// fault reports whether the named rule is disabled, to see that a test notices.
func fault(name string) bool { return name == activeFault }
