// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build amd64 || arm64 || riscv64 || loong64 || ppc64le

package wire

// canShareWords says that a word of 64 bits is loaded and stored as a whole, in the byte order of
// the wire, as atomics between processes need.
const canShareWords = true
