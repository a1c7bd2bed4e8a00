// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !race

package mux

// raceEnabled says that the race detector does not observe this build.
const raceEnabled = false
