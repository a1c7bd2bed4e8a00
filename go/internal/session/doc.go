// SPDX-License-Identifier: MIT OR Apache-2.0

// Package session holds the state of one side of a session and of its streams (SPEC 11), without
// goroutines, locks, clock or I/O.
//
//	the connection's records ──▶ Session.Receive ──▶ queues of messages ──▶ Stream.Recv
//	                                   │ an Event names the stream that changed
//	                                   ▼
//	calls of the application ──▶ pending records ──▶ Session.Flush ──▶ the connection
//
// The caller guards a [Session] and its streams by one lock, reads and writes the records of the
// connection, and wakes the goroutines that an [Event] concerns. The caller writes the records of
// messages itself, after [Session.Flush] has written everything pending:
//
//	Session.Flush, Stream.MayBegin ──▶ the first record of a message ──▶ Stream.Begun
//
// The peer is hostile: [layout.Session] checks each record before it has an effect. A broken rule
// ends the session. A fault of the caller panics.
package session
