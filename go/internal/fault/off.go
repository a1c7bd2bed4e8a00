// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !pwfault

package fault

// Is reports whether the named rule is disabled, which never happens in a build without the tag
// pwfault.
func Is(string) bool { return false }
