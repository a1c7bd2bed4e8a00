// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of system mechanisms that do not disturb other tests of the same process.

#[path = "../support/mod.rs"]
mod support;

mod ancillary_data;
mod asymmetric_mutex;
mod biased_lock;
mod connect_deadline;
mod host;
mod hostile_descriptor;
mod peer_credentials;
mod persistent_files;
mod region_writer;
mod socket_path;
mod unread_bytes;
mod wait_deadline;
