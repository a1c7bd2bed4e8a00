// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !pwpoison

package partywall

import "partywall.test/go/internal/wire"

// received returns a message that was received. Only a build with the tag pwpoison copies it.
func received(m *wire.Message) *Message { return &Message{m} }

// checkUse finds the use of a released message, in a build with the tag pwpoison.
func (*Message) checkUse() {}

// poison overwrites a message that is released, in a build with the tag pwpoison.
func (*Message) poison() {}
