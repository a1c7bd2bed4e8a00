// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"bytes"
	"testing"
)

// However the buffers are divided, each byte is taken once and in order. It is taken without a copy
// if, and only if, the wanted bytes lie in one buffer.
func TestPartsAreTakenInOrder(t *testing.T) {
	whole := []byte("0123456789abcdef")
	for first := range len(whole) + 1 {
		for second := first; second <= len(whole); second++ {
			buffers := [][]byte{nil, whole[:first], {}, whole[first:second], whole[second:], nil}
			for n := 1; n <= len(whole); n++ {
				p := parts{buffers: buffers}
				var got []byte
				for left := p.size(); left > 0; left = p.size() {
					if left > len(whole)-len(got) {
						t.Fatalf("%d bytes are left after %d of %d", left, len(got), len(whole))
					}
					take := min(n, left)
					at := len(got)
					isWhole := func(cut int) bool { return cut <= at || cut >= at+take }
					b := p.next(take)
					if (b != nil) != (isWhole(first) && isWhole(second)) {
						t.Fatalf("bytes %d to %d, cut at %d and %d: %q", at, at+take, first, second, b)
					}
					if b == nil {
						b = make([]byte, take)
						p.copyTo(b)
					}
					got = append(got, b...)
				}
				if !bytes.Equal(got, whole) {
					t.Fatalf("%q was taken, want %q", got, whole)
				}
			}
		}
	}
}
