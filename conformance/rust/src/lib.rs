// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness of the conformance tests.
