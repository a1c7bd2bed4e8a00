// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package fault

import "os"

var active = os.Getenv(Variable)

// [Is] calls At just before the code breaks the rule that the process disables. A test sets At in
// order to act as the peer at this moment.
var At = func() {}

// Is reports whether the named rule is disabled in this process.
func Is(name string) bool {
	if name != active {
		return false
	}
	At()
	return true
}
