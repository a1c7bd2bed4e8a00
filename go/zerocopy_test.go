// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// A reserved message of each size class is sent, once whole and once shortened to a part of the
// reserved memory. The peer reads each message in the memory where it was written.
func TestReservationOfStreamIsSent(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		for i, size := range []int{0, 1, 1024, 1025, 60_000, 200_000} {
			r, err := opened.Reserve(size + 10)
			if err != nil {
				t.Fatal(err)
			}
			want := pattern(i, size)
			copy(r.Bytes(), want)
			if err := r.Commit(size); err != nil {
				t.Fatal(err)
			}
			r.Abort() // does nothing any more
			m, err := answered.RecvMessage()
			if err != nil || !bytes.Equal(m.Bytes(), want) {
				t.Fatalf("%d bytes: %d came, %v", size, m.Len(), err)
			}
			m.Release()
		}
	})
}

// Reservations that are ended without sending a message leave no memory in use, even if the session
// has ended before.
func TestAbortedReservationsOfStreamLeaveNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, _ := streams(t, dialed, accepted)
		for range 2000 {
			r, err := opened.Reserve(100_000)
			if err != nil {
				t.Fatal(err)
			}
			r.Abort()
		}
		kept, err := opened.Reserve(100_000)
		if err != nil {
			t.Fatal(err)
		}
		other, err := opened.Reserve(100_000)
		if err != nil {
			t.Fatal(err)
		}
		_ = dialed.Close()
		kept.Bytes()[0] = 1 // still mapped
		if err := kept.Commit(1); err == nil {
			t.Error("a message was sent after the end")
		}
		other.Abort()
		if _, err := opened.Reserve(1); err == nil {
			t.Error("memory was reserved after the end")
		}
	})
}

func TestPeekAndDiscard(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		want := pattern(1, 9000)
		for _, part := range [][]byte{want[:3], want[3:5000], want[5000:]} {
			if err := opened.Send(part); err != nil {
				t.Fatal(err)
			}
		}
		// Some of these lengths end within a message, and some span several messages.
		for _, n := range []int{0, 2, 3, 4, 6000} {
			if b, err := answered.Peek(n); err != nil || !bytes.Equal(b, want[:n]) {
				t.Fatalf("Peek(%d): %d bytes, %v", n, len(b), err)
			}
		}
		if n := answered.Buffered(); n < 6000 {
			t.Errorf("%d bytes are buffered", n)
		}
		if n, err := answered.Discard(4500); n != 4500 || err != nil {
			t.Fatal(n, err)
		}
		if err := opened.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := answered.Peek(5000); err != io.EOF || !bytes.Equal(b, want[4500:]) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if n, err := answered.Discard(5000); n != 4500 || err != io.EOF {
			t.Error(n, err)
		}
	})
}

func TestReadMessageTakesWhatReadHasLeft(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		want := pattern(1, 60_000)
		for _, part := range [][]byte{want[:3], want[3:]} {
			if err := opened.Send(part); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := answered.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var kept []*Message
		for _, want := range [][]byte{want[1:3], want[3:]} {
			m, err := answered.ReadMessage()
			if err != nil || !bytes.Equal(m.Bytes(), want) {
				t.Fatalf("%d bytes come, want %d: %v", m.Len(), len(want), err)
			}
			kept = append(kept, m)
		}
		if err := opened.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := answered.ReadMessage(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		if err := answered.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := answered.ReadMessage(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if !bytes.Equal(kept[1].Bytes(), want[3:]) {
			t.Error("a message has changed before its release")
		}
		for _, m := range kept {
			m.Release()
		}
	})
}

// failingWriter is a writer that accepts some bytes, and then fails.
type failingWriter struct {
	left int
	got  []byte
}

var errFull = errors.New("the test's writer is full")

func (w *failingWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.left -= n
	w.got = append(w.got, b[:n]...)
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

// io.Copy passes the messages of a stream to the writer without a copy of its own. Bytes that the
// writer does not accept can be read from the stream later.
func TestWriteToLeavesWhatIsNotTaken(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		want := pattern(3, 150_000)
		sent := make(chan error, 1)
		go func() {
			_, err := opened.Write(want)
			sent <- errors.Join(err, opened.CloseWrite())
		}()
		first := &failingWriter{left: 70_000}
		if n, err := io.Copy(first, answered); n != 70_000 || err != errFull {
			t.Fatal(n, err)
		}
		var rest bytes.Buffer
		if n, err := io.Copy(&rest, answered); n != 80_000 || err != nil {
			t.Fatal(n, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if !bytes.Equal(append(first.got, rest.Bytes()...), want) {
			t.Error("other bytes came than were sent")
		}
	})
}

// WriteBuffers sends the buffers as one sequence of bytes, and several short buffers in one
// message.
func TestBuffersAreGathered(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		short := [][]byte{pattern(1, 10), nil, pattern(2, 20), pattern(3, 3000)}
		if n, err := opened.WriteBuffers(short...); n != 3030 || err != nil {
			t.Fatal(n, err)
		}
		m, err := answered.RecvMessage()
		if err != nil || !bytes.Equal(m.Bytes(), bytes.Join(short, nil)) {
			t.Fatalf("%d bytes in the first message, %v", m.Len(), err)
		}
		m.Release()
		long := [][]byte{pattern(4, 5), pattern(5, 150_000), pattern(6, 65_536), pattern(7, 1)}
		sent := make(chan error, 1)
		go func() {
			_, err := opened.WriteBuffers(long...)
			sent <- err
		}()
		got := make([]byte, 5+150_000+65_536+1)
		if _, err := io.ReadFull(answered, got); err != nil || !bytes.Equal(got, bytes.Join(long, nil)) {
			t.Error("other bytes came than were sent", err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if err := opened.SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if n, err := opened.WriteBuffers(short...); n != 0 || err == nil {
			t.Error(n, err)
		}
	})
}

// SendParts sends its parts as one message. If the context has ended, no message is sent.
func TestPartsAreOneMessage(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		ended, cancel := context.WithCancel(testContext(t))
		cancel()
		for i, size := range []int{0, 1, 510, 511, 512, 65_536, 1 << 20} {
			if err := opened.SendParts(ended, pattern(i, size)); err != context.Canceled {
				t.Errorf("after the end of the context: %v", err)
			}
			first, second := pattern(i, size), pattern(i+1, 2)
			sent := make(chan error, 1)
			go func() { sent <- opened.SendParts(testContext(t), first, nil, second) }()
			message, err := answered.RecvMessage()
			if err != nil || !bytes.Equal(message.Bytes(), append(first, second...)) {
				t.Fatalf("%d bytes in parts: %v", size, err)
			}
			message.Release()
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		}
		err := opened.SendParts(testContext(t), make([]byte, 100<<20), []byte("more"))
		if !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("parts that are too long: %v", err)
		}
	})
}
