// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwfault

package ring

import (
	"testing"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// The peer changes the length of a record between two loads of it. The code loads the length once;
// only a build with faults can load it twice, so only such a build has a moment at which the peer
// can act.
func TestLengthIsLoadedOnce(t *testing.T) {
	p := newPair(testRing)
	p.send(t, "0123456789")
	fault.At = func() { p.memory.Store(8, layout.Word1(5000, 0)) }
	defer func() { fault.At = func() {} }()
	header, isThere, err := p.consumer.Peek()
	if err != nil || !isThere || header.Len != 10 {
		t.Errorf("%+v, %v, %v", header, isThere, err)
	}
}
