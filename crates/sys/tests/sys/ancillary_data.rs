// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that credentials and descriptors arrive with the bytes that they were sent with; each
//! descriptor is owned and close-on-exec.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use partywall_sys::poll::{PollFd, PollFlags, wait};
use partywall_sys::{Credentials, Doorbell, FDS_MAX, Listener, Socket};
use partywall_sys::{connect_tcp, connect_unix_path};
use rustix::io::FdFlags;
use support::{Directory, deadline};

#[test]
fn bytes_sent_before_accept_carry_credentials() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let listener = Listener::listen_unix_path(&path, 0o600, 4).unwrap();
    let client = connect_unix_path(&path, deadline()).unwrap();
    client.send(&[IoSlice::new(b"hello")], &[], true, false).unwrap();
    let server = listener.accept().unwrap().unwrap();

    let mut buf = [0; 16];
    let received = server.receive(&mut buf, true).unwrap();
    assert_eq!(&buf[..received.bytes], b"hello");
    assert_eq!(received.credentials, Some(Credentials::of_self()));
    assert!(!received.truncated);

    // Input: a plain write by the server. Expected: the client still receives the server's
    // credentials with the bytes.
    server.write(&[IoSlice::new(b"hi")], false).unwrap();
    let received = client.receive(&mut buf, true).unwrap();
    assert_eq!(received.credentials.map(|c| c.pid), Some(Credentials::of_self().pid));
    assert_eq!(client.peer_label(), format!("unix:{}", path.display()));
    assert_eq!(server.peer_label(), format!("client of unix:{}", path.display()));
    // Input: a client socket of the standard library, which is not bound to a name. Expected: its
    // label is made from the listener's path.
    let _unnamed = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let server = listener.accept().unwrap().unwrap();
    assert_eq!(server.peer_label(), format!("client of unix:{}", path.display()));
}

#[test]
fn descriptors_arrive_close_on_exec_and_refer_to_the_same_thing() {
    let (near, far) = Socket::pair().unwrap();
    let doorbells: Vec<Doorbell> = (0..FDS_MAX).map(|_| Doorbell::new().unwrap()).collect();
    let fds: Vec<BorrowedFd<'_>> = doorbells.iter().map(Doorbell::as_fd).collect();
    near.send(&[IoSlice::new(b"a"), IoSlice::new(b"b")], &fds, true, false).unwrap();

    let received = far.receive(&mut [0; 8], true).unwrap();
    assert_eq!((received.bytes, received.fds.len(), received.truncated), (2, FDS_MAX, false));
    assert_eq!(received.credentials, Some(Credentials::of_self()));
    for (fd, original) in received.fds.into_iter().zip(&doorbells) {
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC));
        Doorbell::from_peer(fd).unwrap().notify().unwrap();
        assert!(original.drain().unwrap());
    }
}

#[test]
fn excess_descriptors_are_closed_and_reported() {
    let (near, far) = Socket::pair().unwrap();
    let doorbell = Doorbell::new().unwrap();
    let many = vec![doorbell.as_fd(); 3 * FDS_MAX];
    let mut space = vec![core::mem::MaybeUninit::uninit(); 1024];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&many)));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&near, &[IoSlice::new(b"x")], &mut control, flags).unwrap();
    let received = far.receive(&mut [0; 8], true).unwrap();
    assert!(received.truncated);
    assert!(received.fds.len() <= FDS_MAX);
}

#[test]
fn descriptor_other_than_idle_eventfd_is_no_doorbell() {
    use partywall_sys::DoorbellError;
    use rustix::event::{EventfdFlags, eventfd};
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    assert!(matches!(Doorbell::from_peer(pipe), Err(DoorbellError::NotEventfd)));
    let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let error = Doorbell::from_peer(blocking).unwrap_err();
    assert!(matches!(error, DoorbellError::Blocking) && error.is_violation());
}

#[test]
fn nonblocking_calls_never_block_and_gone_peer_raises_no_signal() {
    let (near, far) = Socket::pair().unwrap();
    let nothing = near.read(&mut [0; 8], true).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    assert_eq!(near.receive(&mut [0; 8], true).unwrap_err().kind(), ErrorKind::WouldBlock);

    let block = [7; 4096];
    let full = loop {
        if let Err(error) = near.write(&[IoSlice::new(&block)], true) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    drop(far);
    let gone = near.write(&[IoSlice::new(b"x")], true).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
}

#[test]
fn half_closed_socket_still_carries_other_direction() {
    let listener = Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), 4).unwrap();
    let address = listener.local_addr().unwrap().unwrap();
    let tcp_client = connect_tcp(address, deadline()).unwrap();
    assert_eq!(tcp_client.peer_label(), format!("tcp:{address}"));
    // `connect_tcp` may return before the listener can accept the connection, so the test waits for
    // the listener.
    wait(&mut [PollFd::new(&listener, PollFlags::IN)], deadline()).unwrap();
    let tcp_server = listener.accept().unwrap().unwrap();
    for (near, far) in [Socket::pair().unwrap(), (tcp_client, tcp_server)] {
        near.write(&[IoSlice::new(b"last")], false).unwrap();
        near.shutdown_write().unwrap();
        let mut buf = [0; 8];
        assert_eq!(far.read(&mut buf, false).unwrap(), 4);
        assert_eq!(far.read(&mut buf, false).unwrap(), 0);
        far.write(&[IoSlice::new(b"answer")], false).unwrap();
        assert_eq!(near.read(&mut buf, false).unwrap(), 6);
    }
}
