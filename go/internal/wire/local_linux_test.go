// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Peers in one process wake each other without their eventfds, whether they wait for records or for
// room. To the kernel, these wake-ups are none.
func TestLocalPeersWakeEachOtherWithoutEventfd(t *testing.T) {
	ends := connectedPair(t, readerSettings(TrustEveryone))
	for range 100 {
		for i, end := range ends {
			result := begunWait(end.Receiver)
			awaitSleep(t)
			if err := sendOne(ends[1-i].Sender); err != nil {
				t.Fatal(err)
			}
			mustWait(t, result)
			takeAll(t, end.Receiver)
		}
	}
	sender := ends[0].Sender
	var err error
	for err == nil {
		err = sendOne(sender)
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- sender.WaitRoom() }()
	room := ends[0].carrier.(*sharedCarrier).room
	for limit := time.Now().Add(testTime); !room.isWaiting.Load(); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("no goroutine waits for room")
		}
	}
	takeAll(t, ends[1].Receiver)
	mustWait(t, result)
	for i, end := range ends {
		memory := end.carrier.(*sharedCarrier).sharedMemory
		for name, d := range map[string]*doorbell{"records": memory.records, "room": memory.room} {
			var count [8]byte
			if _, err := unix.Read(d.descriptor, count[:]); err != unix.EAGAIN {
				t.Errorf("end %d was notified of %s by its eventfd: %v, %v", i, name, count, err)
			}
		}
	}
}

func sendOne(s Sender) error {
	if err := s.TryMessage(0, make([]byte, 1000), Credit{}); err != nil {
		return err
	}
	return s.Commit()
}

func takeAll(t *testing.T, r Receiver) {
	t.Helper()
	for {
		_, isThere, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !isThere {
			return
		}
		r.Done()
	}
}

// An interrupt ends one wait on a doorbell, and leaves the time at which a later wait fails, also
// if that time is set between the two.
func TestInterruptKeepsLimitOfDoorbell(t *testing.T) {
	for name, prepare := range map[string]func(d *doorbell) error{
		"set before": func(d *doorbell) error {
			defer d.interrupt()
			return d.setLimit(time.Now().Add(50 * time.Millisecond))
		},
		"set after": func(d *doorbell) error {
			d.interrupt()
			return d.setLimit(time.Now().Add(50 * time.Millisecond))
		},
		"passed": func(d *doorbell) error {
			d.interrupt()
			return d.setLimit(time.Unix(1, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := newDoorbell()
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			looks := make(chan struct{}, 100)
			interrupts := make(chan int, 1)
			go func() {
				count := 0
				err := errInterrupted
				for err == errInterrupted {
					err = d.wait(func(uintptr) bool { looks <- struct{}{}; return false })
					count++
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the last wait ends with %v", err)
				}
				interrupts <- count - 1
			}()
			<-looks
			if err := prepare(d); err != nil {
				t.Fatal(err)
			}
			select {
			case count := <-interrupts:
				// If this goroutine is held up, a limit that is set before passes before the
				// interrupt.
				if count > 1 || count == 0 && name != "set before" {
					t.Errorf("%d waits were interrupted", count)
				}
			case <-time.After(testTime):
				t.Fatal("the limit was lost")
			}
		})
	}
}
