// SPDX-License-Identifier: MIT OR Apache-2.0

// Package fault disables one rule of the code, so that a test can be seen to fail without it.
//
//	if !fault.Is("no_pad") { … }       the rule
//	go test -tags pwfault              a build in which rules can be disabled
//	PARTYWALL_FAULT=no_pad             the one rule that a process of such a build breaks
//
// In any other build [Is] is false, and the compiler removes the guard. Package faulttest checks
// the rules of a package against its tests.
package fault

// Variable is the environment variable with the name of the one rule that a process breaks.
const Variable = "PARTYWALL_FAULT"
