// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"slices"
	"testing"

	"partywall.test/go/internal/layout"
)

// Write cuts bytes into messages. Over shared memory a short rest goes along with the message
// before it; a rest that fills a block, and every rest over a socket, is a message of its own.
func TestWriteCutsMessages(t *testing.T) {
	const inline = 1 << 10 // InlineMax of the test's settings
	shared := map[int][]int{
		1:                              {1},
		writeBytesMax:                  {writeBytesMax},
		64 << 10:                       {64 << 10},
		writeBytesMax + inline:         {writeBytesMax + inline},
		writeBytesMax + inline + 1:     {writeBytesMax, inline + 1},
		2*writeBytesMax + 1:            {writeBytesMax, writeBytesMax + 1},
		2*writeBytesMax + inline + 100: {writeBytesMax, writeBytesMax, inline + 100},
	}
	plain := map[int][]int{
		writeBytesMax:       {writeBytesMax},
		64 << 10:            {writeBytesMax, layout.RecordHeaderBytes},
		2*writeBytesMax + 1: {writeBytesMax, writeBytesMax, 1},
	}
	for _, transport := range transports {
		t.Run(transport.name, func(t *testing.T) {
			opened, accepted := mustOpen(t, transport.connect(t))
			cuts := plain
			if transport.name == "shm" || transport.name == "untrusted" {
				cuts = shared
			}
			for size, want := range cuts {
				for name, write := range map[string]func([]byte) error{
					"Write": func(b []byte) error { _, err := opened.Write(b); return err },
					"WriteBuffers": func(b []byte) error {
						_, err := opened.WriteBuffers([][]byte{b[:len(b)/2], b[len(b)/2:]})
						return err
					},
				} {
					written := make(chan error, 1)
					go func() { written <- write(make([]byte, size)) }()
					if got := received(t, accepted, size); !slices.Equal(got, want) {
						t.Errorf("%s of %d bytes: messages of %v, want %v", name, size, got, want)
					}
					if err := <-written; err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// A peer that receives no longer messages gets the bytes of a write in as many as are needed.
func TestWriteCutsMessagesForPeer(t *testing.T) {
	for longest, want := range map[uint64]int{
		0: 1, 1000: 1000, 64 << 10: writeBytesMax, 65_999: writeBytesMax, 66_000: 66_000,
	} {
		isLong := func(n int) bool { return n > 1024 }
		if got := cutBytes(66_000, longest, isLong); got != want {
			t.Errorf("a peer that takes %d bytes gets %d", longest, got)
		}
	}
}

// A rest goes along only if it is short, even where long messages need no block.
func TestWriteCutsLongRest(t *testing.T) {
	hasBlock := func(n int) bool { return n > 15<<20 }
	for n, want := range map[int]int{
		writeBytesMax + restBytesMax:     writeBytesMax,
		15<<20 + 100:                     writeBytesMax,
		15<<20 + writeBytesMax:           writeBytesMax,
		writeBytesMax + restBytesMax + 1: writeBytesMax,
	} {
		if got := cutBytes(n, 1<<30, hasBlock); got != want {
			t.Errorf("a message of %d bytes is cut at %d", n, got)
		}
	}
	isLong := func(n int) bool { return n > 32<<10 }
	for rest, want := range map[int]int{restBytesMax: restBytesMax, restBytesMax + 1: 0} {
		if got := cutBytes(writeBytesMax+rest, 1<<30, isLong); got != writeBytesMax+want {
			t.Errorf("%d bytes with a rest of %d", got, rest)
		}
	}
}

// received receives messages of total bytes, and returns their sizes.
func received(t *testing.T, stream *Stream, total int) (sizes []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	for total > 0 {
		m, err := stream.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(m.Bytes))
		total -= len(m.Bytes)
		m.Release()
	}
	return sizes
}
