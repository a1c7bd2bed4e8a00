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

	"golang.org/x/net/nettest"
)

// testAddress returns an address for the transport of w, at which nobody listens.
func testAddress(t testing.TB, w way) string {
	if w.network == "unix" {
		return "unix:" + filepath.Join(t.TempDir(), "s")
	}
	return "tcp:127.0.0.1:0"
}

// sessions returns both ends of a new session, which are closed when the test ends.
func sessions(t testing.TB, w way) (dialed, accepted *Session) {
	t.Helper()
	listener, err := ListenSession(testAddress(t, w), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx := testContext(t)
	var group sync.WaitGroup
	group.Go(func() {
		session, err := listener.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted = session
	})
	dialed, err = DialSession(ctx, listener.Addr().String(), &w.config)
	group.Wait()
	if err != nil || accepted == nil {
		t.Fatal(err)
	}
	if dialed.Transport().IsShared != w.isShared {
		t.Fatalf("the transport is %v", dialed.Transport())
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed, accepted
}

func streams(t testing.TB, dialed, accepted *Session) (opened, answered *Stream) {
	t.Helper()
	ctx := testContext(t)
	opened, err := dialed.OpenStream(ctx, []byte("name"))
	if err != nil {
		t.Fatal(err)
	}
	answered, err = accepted.AcceptStream(ctx)
	if err != nil || string(answered.Metadata()) != "name" {
		t.Fatal(answered, err)
	}
	return opened, answered
}

func mustBe(t *testing.T, err error, code uint32, target error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.ErrorCode() != ErrorCode(code) || !errors.Is(err, target) {
		t.Errorf("%v, want code %d and %v", err, code, target)
	}
}

func asError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *Error", err)
	}
	return e
}

func TestConnOfEveryTransport(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			listener, err := Listen(testAddress(t, w), &w.config)
			if err != nil {
				return nil, nil, nil, err
			}
			dialed, err := Dial(context.Background(), listener.Addr().String(), &w.config)
			if err != nil {
				return nil, nil, nil, err
			}
			accepted, err := listener.Accept()
			if err != nil {
				return nil, nil, nil, err
			}
			stop := func() { _, _, _ = dialed.Close(), accepted.Close(), listener.Close() }
			return dialed, accepted, stop, nil
		})
	})
}

func TestMessagesOverStreams(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		var group sync.WaitGroup
		for range 5 {
			opened, answered := streams(t, dialed, accepted)
			group.Go(func() {
				for n := 1; n <= 8<<20; n *= 4 {
					if err := opened.Send(bytes.Repeat([]byte{byte(n)}, n-1)); err != nil {
						t.Error(err)
					}
				}
				_ = opened.CloseWrite()
			})
			group.Go(func() {
				for n := 1; n <= 8<<20; n *= 4 {
					m, err := answered.RecvMessage()
					if err != nil {
						t.Error(err)
						return
					}
					if !bytes.Equal(m.Bytes(), bytes.Repeat([]byte{byte(n)}, n-1)) {
						t.Errorf("a message of %d bytes is not what was sent", n-1)
					}
					m.Release()
				}
				if _, err := answered.RecvMessage(); err != io.EOF {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}

// SPEC 17: errors of sessions and streams have the numbers of the specification, and the codes that
// the peer gave.
func TestErrorsOfSessionsAndStreams(t *testing.T) {
	dialed, accepted := sessions(t, ways()[1])
	ctx := testContext(t)
	opened, answered := streams(t, dialed, accepted)
	opened.Reset(7)
	_, err := answered.RecvMessage()
	mustBe(t, err, 407, syscall.ECONNRESET)
	if code, isThere := asError(t, err).ApplicationCode(); code != 7 || !isThere {
		t.Errorf("code %d", code)
	}
	_, err = answered.Read(make([]byte, 1))
	mustBe(t, err, 407, syscall.ECONNRESET)
	mustBe(t, opened.Send(nil), 408, syscall.EPIPE)

	opened, answered = streams(t, dialed, accepted)
	answered.Stop(8)
	for err = nil; err == nil; err = opened.Send(nil) {
	}
	mustBe(t, err, 406, syscall.EPIPE)
	_, err = answered.RecvMessage()
	mustBe(t, err, 409, net.ErrClosed)

	opened, answered = streams(t, dialed, accepted)
	accepted.GoAway(9)
	if code, err := dialed.PeerGoAway(ctx); code != 9 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	_, err = dialed.OpenStream(ctx, nil)
	mustBe(t, err, 403, err)
	if err := accepted.CloseWithCode(42, "maintenance"); err != nil {
		t.Error(err)
	}
	_, err = answered.RecvMessage()
	mustBe(t, err, 401, net.ErrClosed)
	_, err = opened.Read(make([]byte, 1))
	mustBe(t, err, 411, syscall.ECONNRESET)
	<-dialed.Done()
	mustBe(t, dialed.Err(), 411, syscall.ECONNRESET)
	if reason := asError(t, dialed.Err()).Reason(); reason != "maintenance" {
		t.Errorf("the reason is %q", reason)
	}
	_, err = dialed.OpenStream(ctx, make([]byte, 1001))
	mustBe(t, err, 411, syscall.ECONNRESET)
}

func TestPingAndDrain(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		ctx := testContext(t)
		for _, session := range []*Session{dialed, accepted} {
			if err := session.Ping(ctx); err != nil {
				t.Error(err)
			}
		}
		opened, answered := streams(t, dialed, accepted)
		_, _ = opened.Close(), answered.Close()
		for _, session := range []*Session{dialed, accepted} {
			if err := session.Drained(ctx); err != nil || session.StreamCount() != 0 {
				t.Error(session.StreamCount(), err)
			}
		}
	})
}

// Errors of the methods of net.Conn are a *net.OpError, and a passed deadline differs from the end
// of the stream.
func TestErrorsOfConnections(t *testing.T) {
	dialed, accepted := sessions(t, ways()[1])
	opened, _ := streams(t, dialed, accepted)
	if err := opened.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	_, err := opened.Read(make([]byte, 1))
	operation, isOp := err.(*net.OpError)
	if !isOp || !operation.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) ||
		operation.Net != "partywall" || operation.Op != "read" {
		t.Errorf("%#v", err)
	}
	if opened.LocalAddr().Network() != "partywall" {
		t.Errorf("the network is %s", opened.LocalAddr().Network())
	}
	_ = opened.Close()
	if _, err := opened.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	mustBe(t, opened.Send(nil), 401, net.ErrClosed)
	mustBe(t, opened.Close(), 401, net.ErrClosed)
}

// After many sessions and streams, this process has as many descriptors, mappings and goroutines as
// before.
func TestSessionsLeaveNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		count := 100
		if testing.Short() {
			count = 20
		}
		one := func() {
			dialed, accepted := sessionsOnce(t, w)
			for range 3 {
				opened, answered := streams(t, dialed, accepted)
				if err := opened.Send(bytes.Repeat([]byte("x"), 5000)); err != nil {
					t.Fatal(err)
				}
				m, err := answered.RecvMessage()
				if err != nil {
					t.Fatal(err)
				}
				m.Release()
			}
			_, _ = dialed.Close(), accepted.Close()
		}
		one()
		before := resources(t)
		for range count {
			one()
		}
		deadline := time.Now().Add(testTime)
		for after := resources(t); after.exceeds(before); after = resources(t) {
			if time.Now().After(deadline) {
				t.Fatalf("before %+v, after %+v", before, after)
			}
			runtime.Gosched()
		}
	})
}

// sessionsOnce returns both ends of a new session, which the caller closes.
func sessionsOnce(t *testing.T, w way) (dialed, accepted *Session) {
	listener, err := ListenSession(testAddress(t, w), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	accepting := make(chan error, 1)
	go func() {
		session, err := listener.Accept(ctx)
		accepted = session
		accepting <- err
	}()
	dialed, err = DialSession(ctx, listener.Addr().String(), &w.config)
	if err = errors.Join(err, <-accepting); err != nil {
		t.Fatal(err)
	}
	return dialed, accepted
}

// used counts the descriptors, mappings and goroutines of this process.
type used struct{ descriptors, mappings, goroutines int }

func (u used) exceeds(before used) bool {
	return u.descriptors > before.descriptors || u.mappings > before.mappings ||
		u.goroutines > before.goroutines
}

func resources(t *testing.T) used {
	t.Helper()
	u := used{goroutines: runtime.NumGoroutine()}
	if runtime.GOOS != "linux" {
		return u
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	u.descriptors, u.mappings = len(descriptors), bytes.Count(maps, []byte("memfd:"))
	return u
}

func ExampleSession() {
	directory, err := os.MkdirTemp("", "partywall")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	listener, err := ListenSession("unix:"+directory+"/socket", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	ctx := context.Background()
	go func() {
		session, err := listener.Accept(ctx)
		if err != nil {
			return
		}
		stream, err := session.AcceptStream(ctx)
		if err != nil {
			return
		}
		request, err := stream.RecvMessage()
		if err != nil {
			return
		}
		_ = stream.Send(append([]byte("echo of "), request.Bytes()...))
		request.Release()
		_ = stream.CloseWrite()
	}()
	session, err := DialSession(ctx, listener.Addr().String(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	stream, err := session.OpenStream(ctx, []byte("echo")) // no round trip
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := stream.Send([]byte("hello")); err != nil {
		fmt.Println(err)
		return
	}
	answer, err := stream.RecvMessage()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", answer.Bytes())
	answer.Release()
	// Output: echo of hello
}
