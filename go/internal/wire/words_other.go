// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le)

package wire

// canShareWords says that this system uses sockets: its words of 64 bits may not be atomic between
// processes.
const canShareWords = false
