// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import "testing"

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
