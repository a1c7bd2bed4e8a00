// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that at the descriptor limit every operation that needs a descriptor returns an error that
//! names the limit.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::io::IoSlice;
use std::os::fd::AsFd;

use partywall_sys::{AcceptError, ConnectError, Doorbell, Listener, MemfdError, OwnMap, Socket};
use partywall_sys::{connect_unix_abstract, limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::deadline;

#[test]
fn every_operation_at_descriptor_limit_names_it() {
    let _alone = crate::alone();
    let name = format!("partywall-sys-limit-{}", std::process::id());
    let listener = Listener::listen_unix_abstract(&name, 4).unwrap();
    let _waiting = connect_unix_abstract(&name, deadline()).unwrap();
    let (near, far) = Socket::pair().unwrap();
    let doorbell = Doorbell::new().unwrap();
    near.send(&[IoSlice::new(b"x")], &[doorbell.as_fd()], true, false).unwrap();

    let before = getrlimit(Resource::Nofile);
    let maximum = limits::descriptors().hard;
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum }).unwrap();

    let received = far.receive(&mut [0; 8], true).unwrap();
    assert!(received.truncated && received.fds.is_empty() && received.bytes == 1);
    assert!(received.credentials.is_some());

    let error = OwnMap::create("region", 65536).unwrap_err();
    assert!(matches!(error, MemfdError::DescriptorLimit { .. }), "{error}");
    let error = listener.accept().unwrap_err();
    assert!(matches!(error, AcceptError::DescriptorLimit { .. }), "{error}");
    let error = connect_unix_abstract(&name, deadline()).unwrap_err();
    assert!(matches!(error, ConnectError::DescriptorLimit { .. }), "{error}");
    setrlimit(Resource::Nofile, before).unwrap();
}
