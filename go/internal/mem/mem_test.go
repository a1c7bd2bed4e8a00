// SPDX-License-Identifier: MIT OR Apache-2.0

package mem

import (
	"bytes"
	"runtime"
	"testing"
)

func TestWordIsLittleEndianInMemory(t *testing.T) {
	own := Allocate(16)
	own.Store(0, 0x0807060504030201)
	own.Publish(8, 0x100f0e0d0c0b0a09)
	want := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	if got := own.Bytes(0, 16); !bytes.Equal(got, want) {
		t.Errorf("bytes are %v, want %v", got, want)
	}
	for _, offset := range []uint64{0, 8} {
		if own.Load(offset) != own.Peer().Load(offset) {
			t.Errorf("owner and peer disagree about the word at %d", offset)
		}
	}
}

func TestPartSharesBytes(t *testing.T) {
	own := Allocate(64)
	part := own.Part(16, 24)
	part.Write(8, []byte("text"))
	into := make([]byte, 4)
	own.Peer().Part(24, 8).Copy(into, 0)
	if string(into) != "text" {
		t.Errorf("copied %q", into)
	}
	if part.Len() != 24 || own.Peer().Part(40, 24).Len() != 24 {
		t.Error("a part has the size asked for")
	}
}

func TestAccessOutsideMemoryPanics(t *testing.T) {
	const max = ^uint64(0)
	own := Allocate(64)
	peer := own.Peer()
	cases := []struct {
		name   string
		access func()
	}{
		{"load behind the end", func() { own.Load(64) }},
		{"load across the end", func() { peer.Part(0, 60).Load(56) }},
		{"load of no word", func() { peer.Load(4) }},
		{"load at a huge offset", func() { peer.Load(max - 7) }},
		{"store behind the end", func() { own.Store(64, 1) }},
		{"publish behind the end", func() { own.Publish(72, 1) }},
		{"word of empty memory", func() { Own{}.Load(0) }},
		{"word of memory below a word", func() { own.Part(0, 4).Load(0) }},
		{"bytes behind the end", func() { own.Bytes(60, 5) }},
		{"bytes whose end wraps", func() { peer.Bytes(8, max) }},
		{"copy behind the end", func() { peer.Copy(make([]byte, 8), 57) }},
		{"write behind the end", func() { own.Write(64, []byte{1}) }},
		{"part behind the end", func() { own.Part(64, 1) }},
		{"part at no word", func() { peer.Part(4, 8) }},
		{"memory that begins at no word", func() { NewPeer(own.Bytes(1, 8)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			c.access()
		})
	}
}

func TestEmptyAccessAtEndIsAllowed(t *testing.T) {
	own := Allocate(8)
	own.Write(8, nil)
	own.Peer().Copy(nil, 8)
	if len(own.Bytes(8, 0)) != 0 || own.Part(8, 0).Len() != 0 || NewOwn(nil).Len() != 0 {
		t.Error("no bytes expected")
	}
}

// Two goroutines use memory of the heap, which the race detector observes. The detector fails the
// test if loading a published word does not order the plain writes before it.
func TestPublishOrdersEarlierWrites(t *testing.T) {
	const rounds = 1000
	own, back := Allocate(128), Allocate(8)
	done := make(chan struct{})
	go func() {
		peer, into := own.Peer(), make([]byte, 8)
		for i := uint64(1); i <= rounds; i++ {
			for peer.Load(0) != i {
				runtime.Gosched()
			}
			peer.Copy(into, 64)
			if into[0] != byte(i) {
				t.Errorf("round %d: payload %d", i, into[0])
			}
			back.Publish(0, i)
		}
		close(done)
	}()
	for i := uint64(1); i <= rounds; i++ {
		own.Write(64, []byte{byte(i)})
		own.Publish(0, i)
		for back.Peer().Load(0) != i {
			runtime.Gosched()
		}
	}
	<-done
}
