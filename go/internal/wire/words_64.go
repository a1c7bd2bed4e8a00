// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build amd64 || arm64 || riscv64 || loong64 || ppc64le

package wire

// canShareWords says that this processor loads and stores a word of 64 bits as a whole, in the byte
// order of the protocol. Shared memory needs such words.
const canShareWords = true
