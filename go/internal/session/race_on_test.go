// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build race

package session

// raceEnabled says that the race detector observes this build.
const raceEnabled = true
