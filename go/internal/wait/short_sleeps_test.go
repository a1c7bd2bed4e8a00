// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"slices"
	"testing"
	"time"
)

// sleepsSet begins count sleeps at a regular gap from the time start on. It returns the numbers of
// those for which the timer has to be set.
func sleepsSet(s *ShortSleeps, start time.Time, gap time.Duration, count int) []int {
	var set []int
	for number := range count {
		now := start.Add(time.Duration(number) * gap)
		if s.isDue(now) {
			s.lastSet = now
			set = append(set, number)
		}
	}
	return set
}

func TestFrequentSleepsSetTheTimerBeforeItFires(t *testing.T) {
	var s ShortSleeps
	got := sleepsSet(&s, time.Now(), 100*time.Microsecond, 40)
	if want := []int{16, 21, 26, 31, 36}; !slices.Equal(got, want) {
		t.Errorf("the timer is set for the sleeps %v, want %v", got, want)
	}
}

func TestRareSleepsAndShortBurstsUseNoTimer(t *testing.T) {
	var s ShortSleeps
	now := time.Now()
	if got := sleepsSet(&s, now, frequentGap, 100); got != nil {
		t.Errorf("rare sleeps %v set the timer", got)
	}
	for range 10 {
		now = now.Add(time.Second)
		if got := sleepsSet(&s, now, time.Microsecond, frequentRow); got != nil {
			t.Errorf("sleeps %v of a short burst set the timer", got)
		}
	}
}

func TestPauseEndsARowOfSleeps(t *testing.T) {
	var s ShortSleeps
	now := time.Now()
	for range 3 {
		got := sleepsSet(&s, now, 100*time.Microsecond, 17)
		if want := []int{16}; !slices.Equal(got, want) {
			t.Errorf("the timer is set for the sleeps %v, want %v", got, want)
		}
		now = now.Add(time.Second)
	}
}

func TestShortSleepsAfterCloseOpenNoTimer(t *testing.T) {
	var s ShortSleeps
	s.set()
	s.Close()
	s.set()
	if s.timer != nil {
		t.Error("the timer is open after Close")
	}
	s.Close()
}
