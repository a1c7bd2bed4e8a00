// SPDX-License-Identifier: MIT OR Apache-2.0
//! System mechanisms that harm no other test of the process.

#[path = "../support/mod.rs"]
mod support;

mod ancillary_data;
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
