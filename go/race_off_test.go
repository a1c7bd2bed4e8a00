// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !race

package partywall

// raceEnabled says that the race detector does not observe this build, and so does not slow the
// tests down.
const raceEnabled = false
