// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters, under the names that users of shmipc know.
