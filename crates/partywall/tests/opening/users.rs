// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of peers that run as another user, from the start or after they have connected.
//!
//! ```text
//!   second process: setuid ─▶ connect ─▶ echo            shares memory before the first message
//!   second process: connect ─▶ echo ─▶ setuid ─▶ echo    stays on the socket
//! ```

use nix::unistd::{Uid, setuid};
use partywall::{Admission, Begin, Channel, Config, Distrust, FallbackReason, Listener, Transport};
use partywall_testkit::{Kind, Second, argument, role, second_process, soon};

/// The id of a user that has no other processes in the test.
const OTHER_USER: u32 = 65_533;
/// Number of messages in each direction; by then a connection that may move has moved.
const MESSAGES: u64 = 64;

fn config() -> Config {
    Config::default().begin(Begin::Socket).admit(Admission::callback(|_| Ok(())))
}

/// Starts the second process, which runs as `role` says, and accepts its connection. Returns `None`
/// unless this process is root, because only root may change its user.
fn meet(role: &str) -> Option<(Second, Channel)> {
    if !Uid::effective().is_root() {
        println!("SKIPPED: only root may change its user");
        return None;
    }
    let mut listener = Listener::bind_with(Kind::Moving.address(), &config()).unwrap();
    let address = listener.local_address().to_string();
    let second = Second::spawn(&mut second_process("users::other", role, &[("address", &address)]));
    Some((second, listener.accept_deadline(soon()).unwrap()))
}

fn echo(channel: &mut Channel, count: u64) {
    for number in 0..count {
        channel.send(&number.to_le_bytes()).unwrap();
        assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), number.to_le_bytes());
    }
}

#[test]
fn connector_of_another_user_shares_memory_at_once() {
    let Some((mut second, mut channel)) = meet("other") else { return };
    assert_eq!(channel.transport(), Transport::SharedMemory);
    assert_eq!(channel.peer().distrust, Some(Distrust::OtherUser));
    assert_eq!(channel.peer().credentials.unwrap().uid, OTHER_USER);
    echo(&mut channel, MESSAGES);
    drop(channel);
    assert!(second.wait().success());
}

#[test]
fn connector_that_changes_its_user_stays_on_the_socket() {
    let Some((mut second, mut channel)) = meet("changing") else { return };
    assert_eq!(channel.transport(), Transport::Socket(FallbackReason::NotMoved));
    echo(&mut channel, MESSAGES);
    assert_eq!(channel.transport(), Transport::Socket(FallbackReason::Abandoned));
    assert_ne!(channel.peer().credentials.unwrap().uid, OTHER_USER);
    drop(channel);
    assert!(second.wait().success());
}

/// Code of the second process: echoes messages until the channel ends. It changes its user before
/// it connects, or after the first message.
#[test]
fn other() {
    let Some(role) = role() else { return };
    let becomes_other = || setuid(Uid::from_raw(OTHER_USER)).unwrap();
    if role == "other" {
        becomes_other();
    }
    let mut channel = partywall::connect_with(argument("address"), &config()).unwrap();
    let mut count = 0;
    while let Some(message) = channel.recv().unwrap() {
        count += 1;
        if count == 1 && role == "changing" {
            becomes_other();
        }
        channel.send(&message).unwrap();
    }
    assert_eq!(count, MESSAGES);
    let expected = match &*role {
        "other" => Transport::SharedMemory,
        _ => Transport::Socket(FallbackReason::Abandoned),
    };
    assert_eq!(channel.transport(), expected);
}
