// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
)

// Wake ends one call of Wait: the call that is under way, or else the next one. A call of Wait
// after that lasts until a record comes.
func TestWakeEndsOneWait(t *testing.T) {
	for name, transports := range map[string]Transports{
		"shm": TransportSHM, "socket": TransportSocket,
	} {
		t.Run(name, func(t *testing.T) {
			settings := readerSettings(TrustEveryone)
			settings.Transports = transports
			ends := connectedPair(t, settings)
			receiver := ends[1].Receiver
			for range 3 {
				receiver.Wake()
				mustWait(t, begunWait(receiver))
				result := begunWait(receiver)
				awaitSleep(t)
				receiver.Wake()
				mustWait(t, result)
			}
			result := begunWait(receiver)
			awaitSleep(t)
			select {
			case err := <-result:
				t.Fatalf("a wait ended without a record: %v", err)
			default:
			}
			if err := ends[0].Sender.TryMessage(0, []byte("x"), Credit{}); err != nil {
				t.Fatal(err)
			}
			if err := ends[0].Sender.Commit(); err != nil {
				t.Fatal(err)
			}
			mustWait(t, result)
			if _, isThere, err := receiver.Next(); !isThere || err != nil {
				t.Error(isThere, err)
			}
		})
	}
}

// Over shared memory a side notices that its peer is in the same process.
func TestPeerInThisProcessIsLocal(t *testing.T) {
	for i, end := range connectedPair(t, readerSettings(TrustEveryone)) {
		if !end.carrier.(*sharedCarrier).isLocal {
			t.Errorf("end %d takes its peer for another process", i)
		}
	}
	for _, peer := range []Peer{
		{HasCredentials: true, PID: os.Getppid()},
		{PID: os.Getpid()}, // which nobody has verified
	} {
		if peer.isThisProcess() {
			t.Errorf("%+v counts as this process", peer)
		}
	}
}

// wakeTime is the longest time that a call of Wait may take to end after Wake.
const wakeTime = 5 * time.Second

// connectedPair returns both ends of a connection within this process.
func connectedPair(t *testing.T, s Settings) [2]*Connection {
	t.Helper()
	listener, _ := listenForHostile(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	s.Role = layout.RoleConnector
	dialed, err := Dial(ctx, listener.Address(), &s, testTime)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []*Connection{dialed, accepted} {
			c.Interrupt()
			c.Close()
		}
	})
	return [2]*Connection{dialed, accepted}
}

// begunWait calls Wait in a goroutine, and returns a channel on which the result is sent.
func begunWait(r Receiver) <-chan error {
	result := make(chan error, 1)
	go func() { result <- r.Wait(false) }()
	return result
}

func mustWait(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(wakeTime):
		t.Fatal("a wait did not end")
	}
}

// awaitSleep waits until the goroutine that calls Wait of a receiver sleeps in Go's poller. At that
// time it has looked for what it waits for, in vain.
func awaitSleep(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	isAsleep := func() bool {
		all := string(stacks[:runtime.Stack(stacks, true)])
		for goroutine := range strings.SplitSeq(all, "\n\n") {
			state, _, _ := strings.Cut(goroutine, "\n")
			if strings.Contains(state, "[IO wait") && strings.Contains(goroutine, "Receiver).Wait(") {
				return true
			}
		}
		return false
	}
	for limit := time.Now().Add(testTime); !isAsleep(); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("no goroutine sleeps")
		}
	}
}
