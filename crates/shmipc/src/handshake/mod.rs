// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coming to terms: version 2 and version 3, as client and as server.
