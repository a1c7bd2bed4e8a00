// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testTime is the longest time that a test waits for a message, a connection or an error.
const testTime = 30 * time.Second

// A way is a combination of transport, configuration and socket with which the tests open channels.
type way struct {
	name     string
	network  string
	config   Config
	isShared bool
}

func ways() []way {
	return []way{
		{"shared", "unix", Config{}, true},
		{"parked", "unix", Config{Wait: WaitPark}, true},
		{"untrusted", "unix", Config{Trust: TrustNobody}, true},
		{"unix", "unix", Config{Transport: TransportSocket}, false},
		{"tcp", "tcp", Config{}, false},
	}
}

// eachWay runs a test once for each combination of transport, configuration and socket; without
// Linux, only for those over sockets.
func eachWay(t *testing.T, test func(*testing.T, way)) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			if w.isShared && runtime.GOOS != "linux" {
				t.Skip("only Linux shares memory")
			}
			test(t, w)
		})
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

func listen(t testing.TB, w way) *ChannelListener {
	t.Helper()
	address := "tcp:127.0.0.1:0"
	if w.network == "unix" {
		address = "unix:" + filepath.Join(t.TempDir(), "s")
	}
	listener, err := ListenChannel(address, &w.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func pair(t testing.TB, w way) (dialed, accepted *Channel) {
	t.Helper()
	return connect(t, listen(t, w), w)
}

func connect(t testing.TB, listener *ChannelListener, w way) (dialed, accepted *Channel) {
	t.Helper()
	ctx := testContext(t)
	dialed, err := DialChannel(ctx, listener.Addr().String(), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close() })
	accepted, err = listener.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	for _, c := range []*Channel{dialed, accepted} {
		if c.Transport().IsShared != w.isShared {
			t.Fatalf("the transport is %v", c.Transport())
		}
		if err := c.SetDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
	}
	return dialed, accepted
}

// pattern returns n bytes, which the tests use as a message; different seeds give different bytes.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// echo sends each message that c receives back, until the peer has closed its direction. It then
// closes the direction of this side.
func echo(c *Channel) error {
	for {
		message, err := c.RecvMessage()
		if err == io.EOF {
			return c.CloseWrite()
		}
		if err != nil {
			return err
		}
		err = c.Send(message.Bytes())
		message.Release()
		if err != nil {
			return err
		}
	}
}

var testSizes = []int{
	0, 1, 47, 48, 49, 64, 1000, 1024, 1025, 4096, 16352, 16368, 16369, 65535, 65536, 65537,
	200_000, 1 << 20, 5_000_001, 8 << 20,
}

func TestEverySizeIsEchoed(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		done := make(chan error, 1)
		go func() { done <- echo(accepted) }()
		into := make([]byte, 8<<20)
		for round := range 3 {
			for _, size := range testSizes {
				sent := pattern(round, size)
				if err := dialed.Send(sent); err != nil {
					t.Fatalf("sending %d bytes: %v", size, err)
				}
				n, err := dialed.Recv(into)
				if err != nil || !bytes.Equal(into[:n], sent) {
					t.Fatalf("%d bytes came back as %d, %v", size, n, err)
				}
			}
		}
		if err := dialed.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := dialed.Recv(into); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the echo ends with %v", err)
		}
	})
}

func TestManyMessagesArriveInOrder(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		const count = 20_000
		done := make(chan error, 1)
		go func() {
			for i := range count {
				if err := dialed.Send(pattern(i, i%3000)); err != nil {
					done <- err
					return
				}
			}
			done <- dialed.CloseWrite()
		}()
		for i := range count {
			message, err := accepted.RecvMessage()
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			if !bytes.Equal(message.Bytes(), pattern(i, i%3000)) {
				t.Fatalf("message %d differs", i)
			}
			message.Release()
		}
		if _, err := accepted.RecvMessage(); err != io.EOF {
			t.Errorf("after the last message: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		var failure *Error
		if err := dialed.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := dialed.RecvMessage()
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &failure) ||
			failure.ErrorCode() != 4 || !failure.Timeout() {
			t.Errorf("a receiver without a message ends with %v", err)
		}
		// The receiver waits without a deadline at first. While it waits, the test sets a deadline
		// that has already passed.
		if err := dialed.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := dialed.RecvMessage()
			done <- err
		}()
		if err := dialed.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a receiver that is woken ends with %v", err)
		}
		if err := accepted.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			err = accepted.Send(make([]byte, 1<<20))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a sender without room ends with %v", err)
		}
		for err = nil; err == nil; {
			err = accepted.TrySend(make([]byte, 1<<20))
		}
		if !errors.Is(err, ErrFull) {
			t.Errorf("a sender that tries without room ends with %v", err)
		}
		// The messages whose sending has failed must have left nothing behind: the first message
		// that arrives is whole.
		if err := dialed.SetReadDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		if message, err := dialed.RecvMessage(); err != nil || message.Len() != 1<<20 {
			t.Errorf("the first message: %v", err)
		}
	})
}

func TestTryMethods(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		if _, err := dialed.TryRecv(nil); !errors.Is(err, ErrEmpty) {
			t.Errorf("nothing is there: %v", err)
		}
		sent := pattern(1, 100)
		if err := accepted.TrySend(sent); err != nil {
			t.Fatal(err)
		}
		into := make([]byte, 200)
		end := time.Now().Add(testTime)
		n, err := dialed.TryRecv(into)
		for errors.Is(err, ErrEmpty) && time.Now().Before(end) {
			runtime.Gosched()
			n, err = dialed.TryRecv(into)
		}
		if err != nil || !bytes.Equal(into[:n], sent) {
			t.Errorf("%d bytes, %v", n, err)
		}
		// A message that is longer than the buffer of Recv must not be lost: the next call of Recv
		// returns the same message.
		if err := accepted.Send(sent); err != nil {
			t.Fatal(err)
		}
		if _, err := dialed.Recv(into[:99]); !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("a buffer that is too short: %v", err)
		}
		if n, err := dialed.Recv(into); err != nil || !bytes.Equal(into[:n], sent) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

func TestReservationIsSent(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		for _, size := range []int{0, 10, 1024, 1025, 100_000, 3 << 20} {
			reservation, err := dialed.Reserve(size)
			if err != nil {
				t.Fatal(err)
			}
			sent := pattern(size, size-size/10)
			copy(reservation.Bytes(), sent)
			done := make(chan error, 1)
			go func() {
				done <- reservation.Commit(len(sent))
				reservation.Abort() // does nothing any more
			}()
			message, err := accepted.RecvMessage()
			if err != nil || !bytes.Equal(message.Bytes(), sent) {
				t.Fatalf("%d bytes: %v", size, err)
			}
			message.Release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		reservation, err := dialed.Reserve(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := dialed.Close(); err != nil {
			t.Error(err)
		}
		// The memory of a reservation stays mapped after the channel is closed, until the
		// reservation ends.
		clear(reservation.Bytes())
		if err := reservation.Commit(1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a reservation of a closed channel: %v", err)
		}
	})
}

func TestMessagesOutliveChannel(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		var messages []*Message
		for i := range 5 {
			done := make(chan error, 1)
			go func() { done <- dialed.Send(pattern(i, 50_000*i)) }()
			message, err := accepted.RecvMessage()
			if err := errors.Join(err, <-done); err != nil {
				t.Fatal(err)
			}
			messages = append(messages, message)
		}
		if err := errors.Join(dialed.Close(), accepted.Close()); err != nil {
			t.Error(err)
		}
		for i, message := range messages {
			if !bytes.Equal(message.Bytes(), pattern(i, 50_000*i)) {
				t.Errorf("message %d differs", i)
			}
			message.Release()
			message.Release()
		}
	})
}

func TestCloseEndsCallsThatWait(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		done := make(chan error, 2)
		go func() {
			_, err := dialed.RecvMessage()
			done <- err
		}()
		go func() {
			var err error
			for err == nil {
				err = dialed.Send(make([]byte, 1<<20))
			}
			done <- err
		}()
		// The peer receives one message and no more, so Send on the dialed end soon finds no room
		// and waits.
		if _, err := accepted.RecvMessage(); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- dialed.Close() }()
		for range 2 {
			if err := <-done; !errors.Is(err, net.ErrClosed) {
				t.Errorf("a call that waits ends with %v", err)
			}
		}
		go func() {
			for {
				message, err := accepted.RecvMessage()
				if err != nil {
					return
				}
				message.Release()
			}
		}()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := dialed.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if err := dialed.Send(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("sending after Close: %v", err)
		}
	})
}

func TestPeerThatClosesIsNoticed(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		if err := accepted.Send([]byte("last")); err != nil {
			t.Fatal(err)
		}
		if err := accepted.Close(); err != nil {
			t.Fatal(err)
		}
		if message, err := dialed.RecvMessage(); err != nil || string(message.Bytes()) != "last" {
			t.Fatalf("the last message: %v", err)
		}
		if _, err := dialed.RecvMessage(); err != io.EOF {
			t.Errorf("after the last message: %v", err)
		}
		var err error
		for end := time.Now().Add(testTime); err == nil && time.Now().Before(end); {
			err = dialed.Send(make([]byte, 10_000))
		}
		var failure *Error
		if !errors.Is(err, syscall.EPIPE) || !errors.As(err, &failure) || failure.ErrorCode() != 10 {
			t.Errorf("sending to a peer that is gone: %v", err)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		const goroutines, count = 4, 300
		var senders, receivers sync.WaitGroup
		var mutex sync.Mutex
		got := map[string]int{}
		for g := range goroutines {
			senders.Go(func() {
				for i := range count {
					text := fmt.Appendf(nil, "%d %d %s", g, i, pattern(i, 20*i))
					if err := dialed.Send(text); err != nil {
						t.Error(err)
						return
					}
				}
			})
			receivers.Go(func() {
				for {
					message, err := accepted.RecvMessage()
					if err == io.EOF {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					mutex.Lock()
					got[string(message.Bytes())]++
					mutex.Unlock()
					message.Release()
				}
			})
		}
		senders.Wait()
		if err := dialed.CloseWrite(); err != nil {
			t.Error(err)
		}
		receivers.Wait()
		if len(got) != goroutines*count {
			t.Errorf("%d messages arrived, want %d", len(got), goroutines*count)
		}
	})
}
