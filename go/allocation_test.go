// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"io"
	"testing"
)

func TestMessagesCostNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		into := make([]byte, 10_000)
		for _, size := range []int{64, 5000} {
			message := pattern(1, size)
			allocations := testing.AllocsPerRun(200, func() {
				if err := dialed.Send(message); err != nil {
					t.Fatal(err)
				}
				if n, err := accepted.Recv(into); err != nil || n != size {
					t.Fatal(n, err)
				}
			})
			if allocations != 0 {
				t.Errorf("%d bytes: %v allocations for each message", size, allocations)
			}
		}
	})
}

// After the warm-up, a Write and the Read of its bytes allocate nothing. A doorbell that is a byte
// on the control socket would allocate in the goroutine that reads that socket, so it is left out.
func TestBytesOfStreamsCostNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	eachWay(t, func(t *testing.T, w way) {
		if w.config.Trust == TrustNobody {
			t.Skip("doorbells of an untrusted peer are received as messages")
		}
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		into := make([]byte, 5000)
		for _, size := range []int{64, 5000} {
			exchange := func() {
				if _, err := opened.Write(into[:size]); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(answered, into[:size]); err != nil {
					t.Fatal(err)
				}
			}
			// The first CREDIT that the receiver sends allocates the memory in which it writes all
			// later ones, so the warm-up is long enough for one CREDIT.
			for range 10_000 {
				exchange()
			}
			if allocations := testing.AllocsPerRun(5000, exchange); allocations != 0 {
				t.Errorf("%d bytes: %v allocations for each write and read", size, allocations)
			}
		}
	})
}
