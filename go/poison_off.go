// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !pwpoison

package partywall

import "partywall.test/go/internal/wire"

// received returns the message m as the application gets it. In a build with the tag pwpoison, the
// message is a copy.
func received(m *wire.Message) *Message { return &Message{m} }

// checkUse does nothing in this build. In a build with the tag pwpoison it finds the use of a
// released message.
func (*Message) checkUse() {}

// poison does nothing in this build. In a build with the tag pwpoison it overwrites a released
// message.
func (*Message) poison() {}
