// SPDX-License-Identifier: MIT OR Apache-2.0

// Package partywallshmipc has types and functions with the names of shmipc-go, which use the
// streams of partywall. So a program moves from shmipc-go to partywall by changing an import:
//
//	import shmipc "partywall.test/go/partywallshmipc"
//
// A [Listener], and [Server], also serve clients that still import shmipc-go: the first eight bytes
// of a connection decide whether shmipc-go's own server gets it. A [SessionManager] connects to
// partywall alone. So servers move first.
//
//	client                      server
//	shmipc-go          ──────▶  shmipc-go, or this package
//	this package       ──────▶  this package
//
// The buffers of a stream are memory of the process: Reserve and ReadBytes copy once more than
// shmipc-go does, into and out of shared memory. The methods for metrics and for debugging, and
// HotRestart, have no counterpart here.
package partywallshmipc
