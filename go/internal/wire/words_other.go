// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le)

package wire

// canShareWords says that this processor may not load and store a word of 64 bits as a whole, so
// that connections use sockets.
const canShareWords = false
