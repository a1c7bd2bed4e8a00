// SPDX-License-Identifier: MIT OR Apache-2.0

// Package mux runs sessions: it lets any number of goroutines use the streams of one connection.
//
//	goroutines ──▶ Stream.Send ─┐                        ┌─▶ Stream.Recv ──▶ goroutines
//	           ──▶ Session.Open ├─▶ session.Session ─────┤
//	                            │   behind one lock      └─▶ Session.Accept
//	                            ▼                        ▲
//	                     Conn.WriteRecord          Conn.ReadRecord
//	                     Conn.WriteMessage         in the goroutine that drives
//
// The state is that of package session. This package adds the lock, waiting with contexts and
// deadlines, and the end of the connection. The bytes are those of a [Conn].
//
// A goroutine that waits drives the session, or follows another one that does (decision 0038). The
// driver never waits for room or for the application (SPEC 11.7). Whoever finds no room starts a
// goroutine that waits for it, and for as long only.
package mux
