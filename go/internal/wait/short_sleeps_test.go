// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"testing"
	"time"
)

// firstFrequent begins count sleeps at a regular gap from the time start on. It returns the number
// of the first that is frequent, or -1.
func firstFrequent(s *ShortSleeps, start time.Time, gap time.Duration, count int) int {
	first := -1
	for number := range count {
		if s.isFrequent(start.Add(time.Duration(number)*gap)) && first < 0 {
			first = number
		}
	}
	return first
}

func TestSleepsInARowAreFrequent(t *testing.T) {
	var s ShortSleeps
	now := time.Now()
	for range 3 {
		if got := firstFrequent(&s, now, 100*time.Microsecond, 40); got != frequentRow {
			t.Errorf("sleep %d is the first frequent one, want %d", got, frequentRow)
		}
		now = now.Add(time.Second) // the pause ends the row
	}
}

func TestRareSleepsAndShortBurstsAreNotFrequent(t *testing.T) {
	var s ShortSleeps
	now := time.Now()
	if got := firstFrequent(&s, now, frequentGap, 100); got >= 0 {
		t.Errorf("the rare sleep %d is frequent", got)
	}
	for range 10 {
		now = now.Add(time.Second)
		if got := firstFrequent(&s, now, time.Microsecond, frequentRow); got >= 0 {
			t.Errorf("sleep %d of a short burst is frequent", got)
		}
	}
}

func TestShortSleepsStartNoTimerAfterClose(t *testing.T) {
	var s ShortSleeps
	s.start()
	if s.pulse == nil && !s.isOver {
		t.Error("no timer is started")
	}
	s.Close()
	s.start()
	if s.pulse != nil {
		t.Error("a timer is started after Close")
	}
	s.Close()
}
