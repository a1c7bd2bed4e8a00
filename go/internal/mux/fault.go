// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !pwfault

package mux

// fault reports whether the named rule of this package is disabled, to check that a test then
// fails. Only a build with the tag pwfault can disable rules, and this is the other build.
func fault(string) bool { return false }
