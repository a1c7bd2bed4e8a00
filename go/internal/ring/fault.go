// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !pwfault

package ring

// fault reports whether the named rule is disabled, to see that a test notices: never in this
// build. The build tag pwfault has the other.
func fault(string) bool { return false }
