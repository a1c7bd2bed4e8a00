// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be chosen, under the names that users of shmipc know.
