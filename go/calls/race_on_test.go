// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build race

package calls

// raceEnabled says whether the race detector slows the tests down.
const raceEnabled = true
