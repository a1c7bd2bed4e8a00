// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

func newSleeperPair(which Which) (*Sleeper, *Waker, mem.Own) {
	control := mem.Allocate(layout.PageBytes)
	return NewSleeper(control, which), NewWaker(control.Peer(), which), control
}

func TestSleeperIsNotifiedOncePerSleep(t *testing.T) {
	for _, which := range []Which{Records, Room} {
		sleeper, waker, _ := newSleeperPair(which)
		if wake := waker.Check(); wake != WakeNone {
			t.Errorf("an awake sleeper: %d", wake)
		}
		for sleep := range 5 {
			sleeper.Arm(false)
			if wake := waker.Check(); wake != WakeNotify {
				t.Errorf("sleep %d: %d, want a notification", sleep, wake)
			}
			for range 3 {
				if wake := waker.Check(); wake != WakeNone {
					t.Errorf("sleep %d: %d, want one notification", sleep, wake)
				}
				if wake := waker.CheckBeforeWait(); wake != WakeNone {
					t.Errorf("sleep %d: %d before a wait, want one notification", sleep, wake)
				}
			}
			if sleep%2 == 0 {
				sleeper.Disarm()
				if wake := waker.Check(); wake != WakeNone {
					t.Errorf("an awake sleeper: %d", wake)
				}
			}
		}
	}
}

func TestQuietSleeperIsNotifiedBeforeWaitOnly(t *testing.T) {
	sleeper, waker, _ := newSleeperPair(Records)
	for range 3 {
		sleeper.Arm(true)
		for range 2 {
			if wake := waker.Check(); wake != WakeQuiet {
				t.Errorf("%d, want quiet", wake)
			}
		}
		if wake := waker.CheckBeforeWait(); wake != WakeNotify {
			t.Errorf("%d before a wait, want a notification", wake)
		}
		if wake := waker.CheckBeforeWait(); wake != WakeNone {
			t.Errorf("%d before a wait, want one notification", wake)
		}
	}
}

func TestEpochAfterLastIsOne(t *testing.T) {
	sleeper, waker, control := newSleeperPair(Room)
	for _, epoch := range []uint64{0, epochMax - 2, epochMax - 1, epochMax} {
		last := epoch
		sleeper.epoch = epoch
		for _, quiet := range []bool{false, true} {
			sleeper.Arm(quiet)
			word := control.Load(layout.ControlAsleepRoom)
			epochOnly := word &^ layout.AsleepQuiet
			if word == layout.AsleepGone || epochOnly == 0 || epochOnly == last || epochOnly > epochMax {
				t.Errorf("after epoch %d the word is %#x", epoch, word)
			}
			if isQuiet := word != epochOnly; isQuiet != quiet {
				t.Errorf("the word %#x is quiet: %v", word, isQuiet)
			}
			last = epochOnly
		}
	}
	if wake := waker.CheckBeforeWait(); wake != WakeNotify {
		t.Errorf("%d, want a notification", wake)
	}
}

func TestGoneReaderIsNeitherNotifiedNorAwake(t *testing.T) {
	sleeper, waker, _ := newSleeperPair(Records)
	sleeper.Arm(false)
	if waker.IsGone() {
		t.Error("a sleeper is gone")
	}
	sleeper.Leave()
	for range 2 {
		if wake := waker.Check(); wake != WakeGone || waker.CheckBeforeWait() != WakeGone {
			t.Errorf("%d, want gone", wake)
		}
	}
	if !waker.IsGone() {
		t.Error("a reader that left is not gone")
	}
}

func TestGoneHasNoMeaningForRoom(t *testing.T) {
	sleeper, waker, control := newSleeperPair(Room)
	mustPanic(t, "leaving the sleeper for room", sleeper.Leave)
	control.Publish(layout.ControlAsleepRoom, layout.AsleepGone)
	if wake := waker.Check(); wake != WakeNone || waker.CheckBeforeWait() != WakeNone {
		t.Errorf("%d, want nothing", wake)
	}
	if waker.IsGone() {
		t.Error("a sender is gone")
	}
}

// SPEC 6.2: the peer's sleeper word holds values that are no epoch. The checks of the waker accept
// them, and neither panic nor report a violation.
func TestHostileWordHarmsItsOwnerAlone(t *testing.T) {
	for _, which := range []Which{Records, Room} {
		_, waker, control := newSleeperPair(which)
		for _, word := range []uint64{1 << 63, 1<<63 - 1, ^uint64(0) - 1, 1<<63 + 1, 42, 0} {
			control.Publish(uint64(which), word)
			if wake := waker.Check(); wake > WakeQuiet {
				t.Errorf("the word %#x: %d", word, wake)
			}
			waker.CheckBeforeWait()
		}
	}
}
