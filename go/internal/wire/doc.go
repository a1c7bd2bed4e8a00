// SPDX-License-Identifier: MIT OR Apache-2.0

// Package wire is one connection after its handshake: the records of both directions, over shared
// memory or over a socket.
//
//	net.Conn ─▶ Open ─▶ Connection ─┬─ Sender    records to the peer, and waiting for room
//	            (package handshake) └─ Receiver  records of the peer, and waiting for them
//
// A connection over shared memory has two goroutines: one reads the control socket, and one waits
// for the end of the peer's process. Neither is involved when a message comes: the goroutine that
// waits for the message polls and sleeps itself.
//
// The package knows records, but not the rules of their order, which a [Checker] has.
package wire
