// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both queues and all lists of a region, looked at from outside.
