// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"testing"

	"partywall.test/go/internal/fault/faulttest"
)

func TestEachFaultIsNoticed(t *testing.T) { faulttest.Check(t, faults, raceEnabled) }

var faults = []faulttest.Fault{
	{Name: "cancel_unsent", Rule: "a call that is given up is cancelled (CALLS 3.3)",
		Test: "TestCancelReachesHandler"},
	{Name: "late_answer_refused", Rule: "a late answer is dropped (CALLS 3.3)",
		Test: "TestLateAnswerIsDropped"},
	{Name: "id_believed", Rule: "ids rise (CALLS 5)",
		Test: "TestVectorsOfCalls"},
	{Name: "never_busy", Rule: "a call beyond both limits is refused (CALLS 4.1)",
		Test: "TestServerAtItsLimitsIsBusy"},
	{Name: "deadline_dropped", Rule: "the deadline is the handler's, too (CALLS 4.4)",
		Test: "TestDeadlineReachesHandler"},
	{Name: "end_silent", Rule: "the end fails every call without an answer (CALLS 6)",
		Test: "TestEndFailsEveryCall"},
}
