// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le)

package wire

// canShareWords says that words of 64 bits may not be atomic between processes on this processor,
// so connections use sockets.
const canShareWords = false
