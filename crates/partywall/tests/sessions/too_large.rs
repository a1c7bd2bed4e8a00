// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test of pending credit, which a side returns to its peer with its next message. If that message
//! is too large to be sent, the side must still send the credit.
#![cfg(feature = "tokio")]

use partywall::StreamSendError;
use partywall_testkit::{Kind, run, session_pair};
use std::time::Duration;

const WINDOW: u64 = 1024;
/// Length of a message in bytes: three messages fill the window. The receiving side keeps the
/// credit for two of them pending, for its own next message.
const LEN: usize = 300;

async fn credit_is_sent(kind: Kind) {
    let (client, server) =
        session_pair(kind, |config| config.stream_window(WINDOW).message_max(64 << 10)).await;
    let mut ours = client.open(b"").await.unwrap();
    let mut theirs = server.accept().await.unwrap().unwrap();
    for _ in 0..3 {
        theirs.send(&[1; LEN]).await.unwrap();
    }
    assert!(matches!(theirs.try_send(&[1; LEN]), Err(StreamSendError::Full)));
    for _ in 0..2 {
        ours.recv().await.unwrap().unwrap();
    }
    let unsent = ours.send(&vec![1; 1 << 20]).await;
    assert!(matches!(unsent, Err(StreamSendError::TooLarge(_))), "{unsent:?}");
    // The peer, which waits for credit, gets it although this side sends no message.
    theirs.send(&[2; LEN]).await.unwrap();
    for first in [1, 2] {
        assert_eq!(ours.recv().await.unwrap().unwrap()[0], first);
    }
}

#[test]
fn credit_goes_alone_where_its_message_is_too_large() {
    for kind in [Kind::SharedMemory, Kind::Untrusted, Kind::Unix, Kind::Tcp] {
        run(kind.name(), Duration::from_secs(30), credit_is_sent(kind));
    }
}
