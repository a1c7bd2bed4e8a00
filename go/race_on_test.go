// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build race

package partywall

// raceEnabled says that the race detector observes this build, and slows the tests down.
const raceEnabled = true
