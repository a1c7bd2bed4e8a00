// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"testing"

	"partywall.test/go/internal/fault/faulttest"
)

func TestEachFaultIsNoticed(t *testing.T) { faulttest.Check(t, faults, raceEnabled) }

var faults = []faulttest.Fault{
	{Name: "heir_asleep", Rule: "an offer wakes the heir (0038 H4)",
		Test: "TestRoleGoesToFollower"},
	{Name: "no_heir", Rule: "a follower drives at once (0038 H4)",
		Test: "TestRoleGoesToFollower"},
	{Name: "no_tick", Rule: "a role that is free is found (0038 H3)",
		Test: "TestSessionIsKeptWhileNobodyWaits"},
	{Name: "no_supervisor", Rule: "a supervisor drives (0038 H5)",
		Test: "TestSessionIsKeptWhileNobodyWaits"},
	{Name: "driver_asleep", Rule: "the driver looks at its event (0038 H2)",
		Test: "TestStopWakesDriver"},
	{Name: "silent_deadline", Rule: "a deadline wakes the driver (0038 H2)",
		Test: "TestDeadlineWakesDriver"},
	{Name: "silent_context", Rule: "a context wakes the driver (0038 H2)",
		Test: "TestContextWakesDriver"},
	{Name: "end_ignored", Rule: "the connection is closed (0038 H6)",
		Test: "TestEndIsFoundByDriver"},
	{Name: "background_asleep", Rule: "a background driver is woken (0038 H7)",
		Test: "TestUrgentWaiterDrives"},
	{Name: "role_kept", Rule: "a background driver leaves (0038 H7)",
		Test: "TestUrgentWaiterDrives"},
	{Name: "heir_leaves_nothing", Rule: "an heir leaves the role (0038 H8)",
		Test: "TestHeirThatReturnsLeaves"},
	{Name: "timer_unmoved", Rule: "a deadline sees the new time",
		Test: "TestDeadlineMovesEarlier"},
}
