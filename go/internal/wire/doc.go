// SPDX-License-Identifier: MIT OR Apache-2.0

// Package wire is one connection after its handshake: the records of both directions, over shared
// memory or over a socket.
//
//	net.Conn ─▶ Open ─▶ Connection ─┬─ Sender    records to the peer, and waiting for room
//	            (package handshake) └─ Receiver  records of the peer, and waiting for them
//
// Shared memory has one goroutine of its own for each connection, which reads the control socket,
// and one that waits for the end of the peer's process. Neither is on the path of a message: the
// goroutine that waits for a message polls and sleeps itself.
//
// The package knows records, not the rules of their order: those are a [Checker]'s.
package wire
