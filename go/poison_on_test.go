// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwpoison

package partywall

import (
	"bytes"
	"testing"
)

// Code that uses a message after Release panics, or finds that the message's bytes were
// overwritten.
func TestPoisonCatchesUseAfterRelease(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := sessions(t, w)
		opened, answered := streams(t, dialed, accepted)
		for _, size := range []int{1, 5000} {
			want := pattern(1, size)
			if err := opened.Send(want); err != nil {
				t.Fatal(err)
			}
			m, err := answered.RecvMessage()
			if err != nil || !bytes.Equal(m.Bytes(), want) {
				t.Fatal(err)
			}
			kept := m.Bytes()
			m.Release()
			m.Release()
			if !bytes.Equal(kept, bytes.Repeat([]byte{poisonByte}, size)) {
				t.Error("the bytes are readable after Release")
			}
			for name, use := range map[string]func(){
				"Bytes": func() { m.Bytes() }, "Len": func() { m.Len() },
			} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%s after Release does not panic", name)
						}
					}()
					use()
				}()
			}
		}
	})
}
