// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"testing"

	"partywall.test/go/internal/layout"
)

// An anyChecker accepts every record. It is needed because the checker of a channel refuses a
// record with credit.
type anyChecker struct{}

func (anyChecker) Receive(layout.Header, []byte) error { return nil }

// A message that its author wrote into a reserved block carries credit, as does a message that was
// copied into a block.
func TestReservedMessageCarriesCredit(t *testing.T) {
	settings := readerSettings(TrustEveryone)
	settings.NewChecker = func(layout.Limits, *layout.Segments) Checker { return anyChecker{} }
	ends := connectedPair(t, settings)
	sender, receiver := ends[0].Sender, ends[1].Receiver
	for _, want := range []Credit{{IsThere: true, Credited: 4711}, {}} {
		reserved, err := sender.Reserve(5000)
		if err != nil || !reserved.IsShared() {
			t.Fatal(reserved, err)
		}
		if err := sender.TryReserved(reserved, 0, 4000, want); err != nil {
			t.Fatal(err)
		}
		if err := sender.Commit(); err != nil {
			t.Fatal(err)
		}
		record, isThere, err := receiver.Next()
		if !isThere || err != nil || record.Len != 4000 || record.Credit != want {
			t.Fatalf("%+v, %v, %v; want 4000 bytes and %+v", record, isThere, err, want)
		}
		receiver.Done()
	}
}
