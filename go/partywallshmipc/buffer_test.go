// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

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

// The buffer of a reader does not grow with the bytes that were read, if their slices are released.
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
