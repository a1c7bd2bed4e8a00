// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"weak"

	partywall "partywall.test/go"
)

// pipe returns the two ends of a stream: with the buffers of this package, and without.
func pipe(t *testing.T) (*nativeStream, *partywall.Stream) {
	t.Helper()
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	listener, err := partywall.Listen(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	stream, err := partywall.Dial(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	return newNativeStream(stream), peer.(*partywall.Stream)
}

func mustWrite(t *testing.T, stream *partywall.Stream, b []byte) {
	t.Helper()
	if _, err := stream.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestSlicesOfReaderStayValidUntilRelease(t *testing.T) {
	stream, peer := pipe(t)
	sent := counted(1, 100_000)
	mustWrite(t, peer, sent)
	reader := stream.BufferReader()
	var got [][]byte
	for i := 0; i < len(sent); i += 1000 {
		peeked, err := reader.Peek(1000)
		if err != nil {
			t.Fatal(err)
		}
		read, err := reader.ReadBytes(1000)
		if err != nil || !bytes.Equal(peeked, read) {
			t.Fatalf("byte %d: %v", i, err)
		}
		got = append(got, read)
	}
	if !bytes.Equal(bytes.Join(got, nil), sent) {
		t.Error("a slice has changed before its release")
	}
	reader.ReleasePreviousRead()
	if reader.Len() != 0 {
		t.Errorf("%d bytes are unread", reader.Len())
	}
}

// The buffer of a reader does not grow with the bytes that were read, if the program has released
// them.
func TestReaderKeepsItsBuffer(t *testing.T) {
	stream, peer := pipe(t)
	reader := stream.BufferReader()
	next := 0
	for i := range 1000 {
		mustWrite(t, peer, counted(i, 100))
		for reader.Len() < 150 && i%2 == 1 {
			if _, err := reader.Peek(150); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			continue
		}
		b, err := reader.ReadByte()
		if err != nil || b != byte(i-1) {
			t.Fatalf("byte %d: %d, %v", next, b, err)
		}
		if n, err := reader.Discard(99); n != 99 || err != nil {
			t.Fatal(n, err)
		}
		text, err := reader.ReadString(100)
		if err != nil || text != string(counted(i, 100)) {
			t.Fatalf("message %d: %v", i, err)
		}
		reader.ReleasePreviousRead()
	}
	if cap(stream.in.buf) > 2*bufferBytes {
		t.Errorf("the buffer has grown to %d bytes", cap(stream.in.buf))
	}
}

func TestReservedBytesAreSentInOrder(t *testing.T) {
	stream, peer := pipe(t)
	writer := stream.BufferWriter()
	first, err := writer.Reserve(10)
	if err != nil {
		t.Fatal(err)
	}
	second, err := writer.Reserve(bufferBytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := writer.WriteByte('!'); err != nil {
		t.Fatal(err)
	}
	copy(second, counted(2, bufferBytes)) // in whatever order they are filled
	copy(first, counted(1, 10))
	want := append(append(counted(1, 10), counted(2, bufferBytes)...), "text!"...)
	if writer.Len() != len(want) {
		t.Errorf("the buffer has %d bytes, want %d", writer.Len(), len(want))
	}
	if err := stream.Flush(true); err != nil {
		t.Fatal(err)
	}
	if writer.Len() != 0 {
		t.Errorf("%d bytes are left", writer.Len())
	}
	got := newNativeStream(peer)
	b, err := got.BufferReader().ReadBytes(len(want))
	if err != nil || !bytes.Equal(b, want) {
		t.Errorf("other bytes come: %v", err)
	}
}

func TestErrorsAreThoseOfShmipc(t *testing.T) {
	stream, peer := pipe(t)
	if err := stream.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.BufferReader().ReadBytes(1); err != ErrTimeout {
		t.Errorf("after the deadline: %v", err)
	}
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if !stream.IsOpen() {
		t.Error("a stream is closed by a deadline")
	}
	mustWrite(t, peer, []byte("ab"))
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.BufferReader().ReadBytes(3); err != ErrEndOfStream {
		t.Errorf("after the end: %v", err)
	}
	if text, err := stream.BufferReader().ReadString(2); text != "ab" || err != nil {
		t.Errorf("before the end come %q, %v", text, err)
	}
	if stream.IsOpen() {
		t.Error("a stream is open after its end")
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Write([]byte("c")); err != ErrStreamClosed {
		t.Errorf("a write to a closed stream: %v", err)
	}
}

func mustSend(t *testing.T, stream *partywall.Stream, parts ...[]byte) {
	t.Helper()
	for _, part := range parts {
		if err := stream.Send(part); err != nil {
			t.Fatal(err)
		}
	}
}

// mustRead reads as many bytes as want has, fails the test unless they are the same, and returns
// the bytes where the reader has them.
func mustRead(t *testing.T, reader BufferReader, want []byte) []byte {
	t.Helper()
	got, err := reader.ReadBytes(len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes come, want %d: %v", len(got), len(want), err)
	}
	return got
}

// Long messages are not copied, and stay in use until ReleasePreviousRead. Short messages between
// them are copied.
func TestLongMessagesAreReadWhereTheyLie(t *testing.T) {
	stream, peer := pipe(t)
	reader := &stream.in
	sent := [][]byte{
		counted(1, messageMin), counted(2, 100), counted(3, 2*messageMin), counted(4, messageMin-1),
	}
	for range 3 {
		mustSend(t, peer, sent...)
		var got [][]byte
		for i, want := range sent {
			got = append(got, mustRead(t, reader, want))
			if isLong := len(want) >= messageMin; reader.isMessage != isLong {
				t.Fatalf("message %d is in the reader's own memory: %v", i, isLong)
			}
		}
		if size := stream.in.borrowed.size; size != 3*messageMin {
			t.Errorf("%d bytes are borrowed, want %d", size, 3*messageMin)
		}
		for i, want := range sent {
			if !bytes.Equal(got[i], want) {
				t.Errorf("message %d has changed before its release", i)
			}
		}
		reader.ReleasePreviousRead()
		if reader.borrowed.size != 0 || len(reader.borrowed.messages) != 0 || reader.Len() != 0 {
			t.Errorf("after the release %d bytes are borrowed, %d unread", reader.borrowed.size, reader.Len())
		}
	}
}

// Reads need not end where messages do. The unread part of a message stays valid after
// ReleasePreviousRead.
func TestReadsCrossLongMessages(t *testing.T) {
	stream, peer := pipe(t)
	reader := &stream.in
	sent := counted(5, 4*messageMin)
	mustSend(t, peer, sent[:2*messageMin], sent[2*messageMin:])
	first := mustRead(t, reader, sent[:messageMin])
	reader.ReleasePreviousRead()
	if !reader.isMessage || len(reader.borrowed.messages) != 1 {
		t.Fatal("the message with unread bytes was released")
	}
	second := mustRead(t, reader, sent[messageMin:][:100])
	third := mustRead(t, reader, sent[messageMin+100:][:2*messageMin])
	if !bytes.Equal(first, sent[:messageMin]) || !bytes.Equal(second, sent[messageMin:][:100]) {
		t.Error("a slice has changed before its release")
	}
	mustRead(t, reader, sent[3*messageMin+100:])
	if !bytes.Equal(third, sent[messageMin+100:][:2*messageMin]) {
		t.Error("a slice has changed before its release")
	}
	reader.ReleasePreviousRead()
	if len(reader.borrowed.messages) != 0 {
		t.Errorf("%d messages are borrowed after the release", len(reader.borrowed.messages))
	}
}

// A program that never calls ReleasePreviousRead holds a bounded part of the peer's memory.
func TestReaderBorrowsBoundedMemory(t *testing.T) {
	stream, peer := pipe(t)
	want := counted(6, 1<<20)
	sent := make(chan error, 1)
	go func() {
		for range 12 {
			if err := peer.Send(want); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range 12 {
		mustRead(t, &stream.in, want)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if size := stream.in.borrowed.size; size != borrowedMax {
		t.Errorf("%d bytes are borrowed, want %d", size, borrowedMax)
	}
}

// Once a message is read, the reader gives its memory back to the peer if the caller has got only
// copies of its bytes.
func TestMessagesWithoutSlicesAreGivenBack(t *testing.T) {
	stream, peer := pipe(t)
	reader := &stream.in
	want := counted(7, 2*messageMin)
	ways := map[string]func() ([]byte, error){
		"ReadString": func() ([]byte, error) {
			text, err := reader.ReadString(len(want))
			return []byte(text), err
		},
		"Read": func() ([]byte, error) {
			got := make([]byte, len(want))
			if err := reader.await(len(want)); err != nil {
				return nil, err
			}
			_, err := io.ReadFull(stream, got)
			return got, err
		},
		"ReadByte": func() ([]byte, error) {
			got := make([]byte, len(want))
			if err := reader.await(len(want)); err != nil {
				return nil, err
			}
			for i := range got {
				var err error
				if got[i], err = reader.ReadByte(); err != nil {
					return nil, err
				}
			}
			return got, nil
		},
		"Discard": func() ([]byte, error) {
			n, err := reader.Discard(len(want))
			return want[:n], err
		},
	}
	for name, read := range ways {
		mustSend(t, peer, want)
		got, err := read()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes come, want %d: %v", name, len(got), len(want), err)
		}
		if n := len(reader.borrowed.messages); n != 0 || reader.borrowed.size != 0 || reader.Len() != 0 {
			t.Errorf("%s: %d messages are borrowed, %d bytes unread", name, n, reader.Len())
		}
	}
	// The returned bytes of one message stay valid while the next message is read by calls that
	// only copy.
	mustSend(t, peer, want, counted(8, 2*messageMin), counted(9, 2*messageMin))
	held := mustRead(t, reader, want)
	if _, err := reader.Discard(2 * messageMin); err != nil {
		t.Fatal(err)
	}
	mustRead(t, reader, counted(9, 2*messageMin)[:messageMin])
	if n := len(reader.borrowed.messages); n != 2 || !bytes.Equal(held, want) {
		t.Errorf("%d messages are borrowed, want 2", n)
	}
	reader.ReleasePreviousRead()
	if _, err := reader.Discard(messageMin); err != nil || len(reader.borrowed.messages) != 0 {
		t.Errorf("%d messages are borrowed: %v", len(reader.borrowed.messages), err)
	}
}

// When a reader moves the unread part of a message to another buffer, it gives the memory of the
// message back to the peer if the caller has got only copies of the read part.
func TestMessageThatIsMovedIsGivenBack(t *testing.T) {
	stream, peer := pipe(t)
	reader := &stream.in
	sent := counted(10, 4*messageMin)
	mustSend(t, peer, sent[:2*messageMin], sent[2*messageMin:])
	if err := reader.await(messageMin); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Discard(10); err != nil || !reader.isMessage {
		t.Fatalf("the message was copied: %v", err)
	}
	mustRead(t, reader, sent[10:][:3*messageMin])
	if n := len(reader.borrowed.messages); n != 0 {
		t.Errorf("%d messages are borrowed", n)
	}
	mustRead(t, reader, sent[10+3*messageMin:])
}

// A reader holds messages where they lie only up to a bound on their bytes together. A further
// message is copied.
func TestBoundOfBorrowedMemoryIsKept(t *testing.T) {
	stream, peer := pipe(t)
	sizes := []int{borrowedMax - messageMin, messageMin + 1, messageMin}
	sent := make(chan error, 1)
	go func() {
		var err error
		for _, size := range sizes {
			err = errors.Join(err, peer.Send(counted(size, size)))
		}
		sent <- err
	}()
	for i, want := range []int{borrowedMax - messageMin, borrowedMax - messageMin, borrowedMax} {
		mustRead(t, &stream.in, counted(sizes[i], sizes[i]))
		if got := stream.in.borrowed.size; got != want {
			t.Errorf("after message %d %d bytes are borrowed, want %d", i, got, want)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// What a program has read of a stream stays valid while the stream is not closed, even if the
// program keeps no reference to the stream.
func TestOpenStreamsAreNotForgotten(t *testing.T) {
	opened, _ := pipe(t)
	session := newNativeSession(opened.Stream.Session())
	open := func() weak.Pointer[nativeStream] {
		stream, err := session.open()
		if err != nil {
			t.Fatal(err)
		}
		return weak.Make(stream.(*nativeStream))
	}
	forgotten := open()
	runtime.GC()
	if forgotten.Value() == nil {
		t.Fatal("the memory of a stream that is not closed was freed")
	}
	if err := forgotten.Value().Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); forgotten.Value() != nil; {
		if time.Now().After(end) {
			t.Fatal("a stream that was closed is kept")
		}
		runtime.GC()
	}
	runtime.KeepAlive(session)
}

// Long texts are written where the peer reads them, in the order of all writes.
func TestLongTextsAreWrittenForThePeer(t *testing.T) {
	stream, peer := pipe(t)
	writer := &stream.out
	for range 3 {
		want := counted(7, messageMax+2*messageMin+20)
		for _, part := range [][]byte{want[:10], want[10:][:messageMin], want[10+messageMin:][:10]} {
			if n, err := writer.WriteBytes(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := writer.WriteString(string(want[20+messageMin:])); err != nil {
			t.Fatal(err)
		}
		shared := 0
		for _, part := range writer.borrowed.parts {
			if part.memory != nil {
				shared += len(part.bytes)
			}
		}
		if shared != len(want)-20 || writer.Len() != len(want) {
			t.Fatalf("%d bytes of %d are not copied again, want all but 20", shared, writer.Len())
		}
		flushed := make(chan error, 1)
		go func() { flushed <- stream.Flush(false) }()
		got := newNativeStream(peer)
		mustRead(t, &got.in, want)
		got.in.ReleasePreviousRead()
		if err := <-flushed; err != nil || writer.Len() != 0 || len(writer.borrowed.parts) != 0 {
			t.Fatalf("%d bytes are left: %v", writer.Len(), err)
		}
	}
}

// A Flush that fails drops all bytes of the sending buffer, and frees its memory.
func TestFlushThatFailsDropsTheBuffer(t *testing.T) {
	stream, peer := pipe(t)
	fill := func(seed int) {
		for _, part := range [][]byte{counted(seed, messageMin), counted(seed, 10), counted(seed, messageMin)} {
			if _, err := stream.out.WriteBytes(part); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(1)
	if err := stream.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := stream.Flush(false); err != ErrTimeout || stream.out.Len() != 0 {
		t.Errorf("after the deadline %v, and %d bytes are left", err, stream.out.Len())
	}
	if err := stream.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	fill(2)
	if err := stream.Flush(false); err != nil {
		t.Fatal(err)
	}
	mustRead(t, &newNativeStream(peer).in, counted(2, messageMin))
	fill(3)
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Flush(false); err != ErrStreamClosed {
		t.Errorf("a flush of a closed stream returns %v", err)
	}
	fill(4)
	if err := stream.Flush(false); err != ErrStreamClosed {
		t.Errorf("a flush of a closed stream returns %v", err)
	}
}

// The memory that a program leaves in the buffers of a stream that it forgets is freed, also after
// the end of the session.
func TestForgottenBuffersAreFreed(t *testing.T) {
	stream, peer := pipe(t)
	mustSend(t, peer, counted(1, messageMin))
	held := mustRead(t, &stream.in, counted(1, messageMin))
	if _, err := stream.out.WriteBytes(counted(2, messageMin)); err != nil {
		t.Fatal(err)
	}
	if err := stream.Stream.Session().Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(held, counted(1, messageMin)) {
		t.Error("a slice has changed before its release")
	}
	stream.in.borrowed.release()
	if b := stream.in.borrowed; b.size != 0 || len(b.messages) != 0 || len(b.parts) != 0 {
		t.Errorf("%d messages and %d parts are left", len(b.messages), len(b.parts))
	}
}
