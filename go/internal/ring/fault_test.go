// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"testing"

	"partywall.test/go/internal/fault/faulttest"
)

func TestEachFaultIsNoticed(t *testing.T) { faulttest.Check(t, faults, raceEnabled) }

var faults = []faulttest.Fault{
	{Name: "no_zero_next_slot", Rule: "a 0 behind each batch (4.5)",
		Test: "TestForgedWordsAreNeverRead"},
	{Name: "clean_after_abort", Rule: "no word of a dropped batch is left (4.5)",
		Test: "TestAbortedBatchLeavesNoGhost"},
	{Name: "zero_unread", Rule: "only free slots are zeroed (4.5)",
		Test: "TestRingAgreesWithQueue"},
	{Name: "early_first_word", Rule: "the first word comes last (4.5)",
		Test: "TestUnpublishedBatchIsInvisible"},
	{Name: "plain_publish", Rule: "the first word is published (4.7)",
		Test: "TestNoWakeUpIsLostBetweenTwoSides", NeedsRace: true},
	{Name: "no_closing_slot", Rule: "a slot kept for CLOSE_WRITE (4.4)",
		Test: "TestCloseFitsFullRing"},
	{Name: "no_pad", Rule: "no record wraps (4.1)",
		Test: "TestRecordBeforeEndOfRingIsPadded"},
	{Name: "consumed_unchecked", Rule: "the range of consumed (4.6)",
		Test: "TestConsumedOutsideRangeIsViolation"},
	{Name: "word_unchecked", Rule: "the position in a word (4.2)",
		Test: "TestHostileRingsAreRefused"},
	{Name: "length_loaded_twice", Rule: "a word is loaded once (4.2)",
		Test: "TestLengthIsLoadedOnce"},
	{Name: "late_report", Rule: "consumed after an eighth (4.6)",
		Test: "TestRingAgreesWithQueue"},
	{Name: "released_unchecked", Rule: "the range of released (5.3)",
		Test: "TestReleasedOutsideRangeIsViolation"},
	{Name: "same_generation", Rule: "an id is returned once (5.3)",
		Test: "TestBlockReturnedTwiceIsRefused"},
	{Name: "no_join", Rule: "free memory is whole again (5.1)",
		Test: "TestSlabAgreesWithIntervals"},
	{Name: "same_epoch", Rule: "an epoch for each sleep (6.2)",
		Test: "TestSleeperIsNotifiedOncePerSleep"},
	{Name: "notified_forgotten", Rule: "one notification a sleep (6.2)",
		Test: "TestSleeperIsNotifiedOncePerSleep"},
	{Name: "loud_quiet", Rule: "quiet sleepers (6.4)",
		Test: "TestQuietSleeperIsNotifiedBeforeWaitOnly"},
	{Name: "gone_unseen", Rule: "a reader that left (6.5)",
		Test: "TestGoneReaderIsNeitherNotifiedNorAwake"},
}
