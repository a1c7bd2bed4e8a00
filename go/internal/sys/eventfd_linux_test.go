// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEventfdNotifiesUntilDrained(t *testing.T) {
	own, err := NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	duplicate, err := unix.FcntlInt(uintptr(own.Descriptor()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := EventfdOf(duplicate)
	defer peer.Close()
	if pending, err := own.Drain(); pending || err != nil {
		t.Fatalf("a new eventfd: pending %v, %v", pending, err)
	}
	for range 3 {
		if err := peer.Notify(); err != nil {
			t.Fatal(err)
		}
	}
	if err := waitReadable(own.Descriptor()); err != nil {
		t.Fatal(err)
	}
	if pending, err := own.Drain(); !pending || err != nil {
		t.Errorf("after three notifications: pending %v, %v", pending, err)
	}
	if pending, err := own.Drain(); pending || err != nil {
		t.Errorf("after draining: pending %v, %v", pending, err)
	}
}

func TestEventfdWhoseCountIsFullTakesNotification(t *testing.T) {
	eventfd, err := NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	var highest [8]byte
	binary.NativeEndian.PutUint64(highest[:], math.MaxUint64-1)
	if _, err := unix.Write(eventfd.Descriptor(), highest[:]); err != nil {
		t.Fatal(err)
	}
	if err := eventfd.Notify(); err != nil {
		t.Errorf("a notification is pending, so one more is none: %v", err)
	}
	if err := NotifyEdge(eventfd.Descriptor()); err != nil {
		t.Error(err)
	}
	var count [8]byte
	if _, err := unix.Read(eventfd.Descriptor(), count[:]); err != nil {
		t.Fatal(err)
	}
	if got := binary.NativeEndian.Uint64(count[:]); got != 1 {
		t.Errorf("the count is %d, so there was no edge", got)
	}
}

func TestNotifyOfNoEventfdFails(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer closeDescriptor(pipe[1])
	// The descriptor that stands for the peer's eventfd is the reading end of a pipe, so a
	// notification fails.
	peer := EventfdOf(pipe[0])
	defer peer.Close()
	if err := peer.Notify(); err == nil {
		t.Error("a descriptor of the peer that cannot be written took a notification")
	}
}
