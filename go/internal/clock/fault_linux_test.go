// SPDX-License-Identifier: MIT OR Apache-2.0

package clock

import (
	"testing"

	"partywall.test/go/internal/fault/faulttest"
)

func TestEachFaultIsNoticed(t *testing.T) { faulttest.Check(t, faults, raceEnabled) }

var faults = []faulttest.Fault{
	{Name: "tick_early", Rule: "a timer is not called before its time (0044)",
		Test: "TestTicksAreCalledInOrder"},
	{Name: "second_pulse", Rule: "a pulse starts no second timer (0054)",
		Test: "TestPulseStartsNoSecondTimer"},
}
