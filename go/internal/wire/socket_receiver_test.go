// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"bytes"
	"net"
	"syscall"
	"testing"

	"partywall.test/go/internal/layout"
)

// noConn is a socket without a connection: the tests pass received bytes to the receiver
// themselves.
type noConn struct{ net.Conn }

func (noConn) Close() error                          { return nil }
func (noConn) CloseRead() error                      { return nil }
func (noConn) CloseWrite() error                     { return nil }
func (noConn) SyscallConn() (syscall.RawConn, error) { return nil, syscall.ENOTSUP }
func detachedReceiver(limits layout.Limits) *socketReceiver {
	checker := layout.NewChannel(limits, nil)
	return newSocketReceiver(&socketCarrier{conn: noConn{}}, checker)
}

// feed passes bytes to the receiver, at most limit at a time, and returns the messages that the
// receiver finds.
func feed(r *socketReceiver, b []byte, limit int) ([][]byte, error) {
	var messages [][]byte
	for {
		record, ok, err := r.Next()
		switch {
		case err != nil:
			return messages, err
		case ok:
			if record.IsMessage() {
				message := r.Take()
				if len(message.Bytes()) != record.Len {
					panic("a message has another size than its record")
				}
				messages = append(messages, message.Bytes())
			}
			r.Done()
		case len(b) == 0:
			return messages, nil
		default:
			n := copy(r.room(), b[:min(len(b), limit)])
			if n == 0 {
				panic("the receiver has no room for what comes")
			}
			r.received(n)
			b = b[n:]
		}
	}
}

// stream returns the bytes of one direction of a socket on which these messages are sent.
func stream(messages ...[]byte) []byte {
	var b []byte
	position := uint64(0)
	for _, message := range messages {
		header := layout.Header{Position: position, Kind: layout.KindData, Len: uint32(len(message))}
		payload := message
		if len(message) > dataMax {
			header.Kind, header.Len = layout.KindBlob, layout.BlobBytes
			payload = append(layout.Blob{Length: uint64(len(message))}.Append(nil), message...)
		}
		b = append(header.AppendHeader(b), payload...)
		position = header.Next()
	}
	return b
}

func TestMessagesArriveHoweverTheyAreCut(t *testing.T) {
	var sent [][]byte
	for _, size := range []int{0, 1, 100, dataMax, dataMax + 1, 70_000, 5, 300_000} {
		sent = append(sent, bytes.Repeat([]byte{byte(size)}, size))
	}
	b := stream(sent...)
	for _, limit := range []int{1, 7, 16, 1000, 1 << 20} {
		got, err := feed(detachedReceiver(layout.Limits{MessageMax: 1 << 20}), b, limit)
		if err != nil || len(got) != len(sent) {
			t.Fatalf("cut by %d: %d messages, %v", limit, len(got), err)
		}
		for i := range sent {
			if !bytes.Equal(got[i], sent[i]) {
				t.Errorf("cut by %d: message %d differs", limit, i)
			}
		}
	}
}

func TestAnnouncedLengthIsNotBelieved(t *testing.T) {
	r := detachedReceiver(layout.Limits{MessageMax: 1 << 40})
	header := layout.Header{Kind: layout.KindBlob, Len: layout.BlobBytes}
	b := layout.Blob{Length: 1 << 39}.Append(header.AppendHeader(nil))
	if _, err := feed(r, append(b, make([]byte, 1000)...), 1<<20); err != nil {
		t.Fatal(err)
	}
	if room := len(r.room()); room > 1<<20 {
		t.Errorf("%d bytes of memory are made for 1,000 that have come", room)
	}
}

// FuzzSocketReceiver passes arbitrary bytes to a receiver, which must not panic. Its results must
// not depend on how the bytes are divided.
func FuzzSocketReceiver(f *testing.F) {
	for _, i := range images(f, "socket") {
		f.Add(i.bytes, uint16(5))
	}
	f.Add(stream([]byte("one"), nil, make([]byte, 60)), uint16(3))
	blob := layout.Header{Kind: layout.KindBlob, Len: layout.BlobBytes}.AppendHeader(nil)
	f.Add(append(layout.Blob{Length: 9}.Append(blob), "nine byte"...), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		limits := layout.Limits{MessageMax: 1 << 16}
		whole, wholeErr := feed(detachedReceiver(limits), b, 1<<20)
		parts, partsErr := feed(detachedReceiver(limits), b, max(int(limit), 1))
		if len(whole) != len(parts) || (wholeErr == nil) != (partsErr == nil) {
			t.Fatalf("%d messages and %v, in parts %d and %v",
				len(whole), wholeErr, len(parts), partsErr)
		}
		for i := range whole {
			if !bytes.Equal(whole[i], parts[i]) {
				t.Fatalf("message %d differs", i)
			}
		}
	})
}
