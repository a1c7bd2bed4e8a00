// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package fault

import "os"

var active = os.Getenv(Variable)

// At is called just before the rule is broken, so that a test can act as the peer at this moment.
var At = func() {}

// Is reports whether the named rule is disabled.
func Is(name string) bool {
	if name != active {
		return false
	}
	At()
	return true
}
