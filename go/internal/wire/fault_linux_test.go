// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"testing"

	"partywall.test/go/internal/fault/faulttest"
)

func TestEachFaultIsNoticed(t *testing.T) { faulttest.Check(t, faults, raceEnabled) }

var faults = []faulttest.Fault{
	{Name: "unchecked_ring", Rule: "records of a ring are checked (9.3)",
		Test: "TestRingImagesFromPeer"},
	{Name: "unchecked_socket", Rule: "records of a socket are checked (9.3)",
		Test: "TestSocketImagesFromPeer"},
	{Name: "violation_survived", Rule: "a violation ends the connection (9.3)",
		Test: "TestWrongWordsOfPeerEndSender"},
	{Name: "length_believed", Rule: "memory grows with the bytes (8.2)",
		Test: "TestAnnouncedLengthIsNotBelieved"},
	{Name: "doorbell_taken", Rule: "a doorbell wakes both sleepers (6.6)",
		Test: "TestDoorbellReadWithSegmentWakesSleepers"},
	{Name: "pieces_lost", Rule: "a frame may come in pieces (6.7)",
		Test: "TestFrameInPiecesIsRead"},
	{Name: "segments_unbounded", Rule: "segments without a record are bounded (5.4)",
		Test: "TestSegmentsWithoutRecordAreBounded"},
	{Name: "segment_unreported", Rule: "a segment that was read is reported (5.4)",
		Test: "TestSegmentIsReportedOnceTheRingIsEmpty"},
	{Name: "descriptor_kept", Rule: "a descriptor comes with a frame (6.7)",
		Test: "TestDescriptorWithoutFrameIsViolation"},
	{Name: "sleep_uninterrupted", Rule: "Wake interrupts a sleep",
		Test: "TestWakeEndsOneWait"},
	{Name: "read_uninterrupted", Rule: "Wake interrupts a read",
		Test: "TestWakeEndsOneWait"},
	{Name: "early_wake_lost", Rule: "Wake ends the next Wait",
		Test: "TestWakeEndsOneWait"},
	{Name: "polls_unreported", Rule: "consumed after polls in vain (4.6)",
		Test: "TestPositionIsReportedAfterPollsInVain"},
	{Name: "interrupt_kept", Rule: "an interrupt ends one sleep",
		Test: "TestWakeEndsOneWait"},
}
