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
// Package session holds the state of a session. Package mux adds the lock, waiting with contexts
// and deadlines, and the end of the connection. A [Conn] carries the bytes.
//
// No goroutine of its own reads the records of a session. A goroutine that waits for something
// drives the session, which means that it reads the records for all; others follow, which means
// that they sleep until the driver wakes them (decision 0038). The driver never waits for room or
// for the application (SPEC 11.7). A call that finds no room starts a goroutine that waits for
// room, and then ends.
package mux
