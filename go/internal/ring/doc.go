// SPDX-License-Identifier: MIT OR Apache-2.0

// Package ring moves records and blocks between two processes through memory that one of them
// writes and the other only reads (SPEC 4 to 6).
//
//	region of this process                        region of the peer
//	record ring   Producer ────────▶ the peer     record ring   ────────▶ Consumer
//	slab          Slab (blocks)                   slab          read in place, or copied
//	release ring  Releaser ────────▶ the peer     release ring  ────────▶ Reclaimer
//	asleep        Sleeper  ────────▶ the peer     asleep        ────────▶ Waker
//
// Each type is used by one goroutine at a time, except [Waker], which several may use. No type
// waits, notifies, makes memory or starts a goroutine: the code that uses the type does.
//
// The peer is hostile: each word of its memory is loaded once, checked, then used. A broken rule is
// an error that wraps a Violation of package layout, and ends the connection. A fault of the caller
// panics.
package ring
