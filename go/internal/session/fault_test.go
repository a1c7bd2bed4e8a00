// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"testing"

	"partywall.test/go/internal/fault/faulttest"
)

// The race detector is left out of the builds that this test makes. With it, the test that visits
// all states of a stream would take too long, or would send fewer messages, with which some faults
// do not show.
func TestEachFaultIsNoticed(t *testing.T) { faulttest.Check(t, faults, false) }

var faults = []faulttest.Fault{
	{Name: "credit_kept", Rule: "credit after half a window (11.4)",
		Test: "TestCreditIsSentWhenDue"},
	{Name: "stuck_unseen", Rule: "credit for a peer that has none left (11.4)",
		Test: "TestCreditIsSentWhenDue"},
	{Name: "blob_credit_unseen", Rule: "a BLOB carries credit (11.4)",
		Test: "TestBlobWithCreditWakesSenders"},
	{Name: "unread_kept", Rule: "a stream that is stopped drops the unread (11.3)",
		Test: "TestStopDropsTheUnread"},
	{Name: "ends_after_stop", Rule: "no end follows the peer's stop (11.3)",
		Test: "TestEveryOrderOfEventsIsLawful"},
	{Name: "parts_kept", Rule: "an unfinished message is dropped (5.5)",
		Test: "TestUnfinishedMessageIsForgotten"},
	{Name: "early_end", Rule: "END waits for the application (11.5)",
		Test: "TestEndWaitsForTheApplication"},
	{Name: "number_kept", Rule: "a number is free after END (11.5)",
		Test: "TestNumbersAreUsedAgainOnceEnded"},
	{Name: "metadata_shared", Rule: "metadata is copied (9.2)",
		Test: "TestMetadataIsCopied"},
	{Name: "open_after_go_away", Rule: "GO_AWAY refuses streams (11.6)",
		Test: "TestStreamAfterGoAwayIsRefused"},
	{Name: "character_cut", Rule: "a reason is cut before a character",
		Test: "TestReasonIsCutBeforeACharacter"},
	{Name: "answer_believed", Rule: "an answer was asked for (11.6)",
		Test: "TestAnswersToPings"},
}
