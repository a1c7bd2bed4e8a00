// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a record which arrives while the receiver polls is judged as one that came before.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::{Channel, Config, Fault, Listener, RecvError, TrustPolicy, Violation, Wait};
use partywall_layout::record_ring::{HEADER_BYTES, Kind};
use partywall_testkit::hostile::channel::{BOTH, Foe, hello};
use partywall_testkit::{Directory, Watchdog, millis, soon};
use std::time::{Duration, Instant};

/// Lets a new hostile peer `prepare` its ring, and then `publish` while the receiver of `config`
/// probably polls in a call. Passes that call's result to `judge`. Repeats all this until the
/// receiver has found the record by polling.
fn publish_while_polling<R>(
    config: &Config,
    prepare: impl Fn(&mut Foe),
    publish: impl Fn(&mut Foe) + Sync,
    receive: impl Fn(&mut Channel) -> R,
    judge: impl Fn(R, Foe, &mut Channel),
) {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("a record while the receiver polls", Duration::from_secs(60));
    let until = soon();
    loop {
        let place = Directory::new();
        let mut listener = Listener::bind_with(place.address("home"), config).unwrap();
        let (mut foe, mut channel) = Foe::meet(&mut listener, &place.path("home"), &hello(BOTH));
        prepare(&mut foe);
        let received = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(millis(1));
                publish(&mut foe);
            });
            receive(&mut channel)
        });
        judge(received, foe, &mut channel);
        if channel.receiver().stats().spin_hits > 0 {
            return;
        }
        assert!(Instant::now() < until, "no record was found by polling");
    }
}

fn spinning() -> Config {
    Config::default().wait(Wait::Spin)
}

fn violation(result: Result<Option<partywall::Message>, RecvError>) -> Violation {
    match result {
        Err(RecvError::Fault(Fault::Violation { violation, .. })) => violation,
        other => panic!("no violation: {other:?}"),
    }
}

#[test]
fn a_message_within_another_is_a_violation() {
    publish_while_polling(
        &spinning(),
        |foe| foe.publish(Kind::FragmentFirst, &16u64.to_le_bytes()),
        |foe| foe.publish(Kind::Data, b"within the other"),
        Channel::recv,
        |received, _, _| {
            let text = violation(received).to_string();
            assert!(text.contains("another record came"), "{text}");
        },
    );
}

#[test]
fn a_message_beyond_the_limit_is_a_violation() {
    publish_while_polling(
        &spinning().message_max(64),
        |_| (),
        |foe| foe.publish(Kind::Data, &[7; 65]),
        Channel::recv,
        |received, _, _| {
            let violation = violation(received);
            assert!(matches!(violation, Violation::MessageLength { len: 65, .. }), "{violation}");
        },
    );
}

#[test]
fn a_message_of_an_untrusted_peer_is_copied_before_it_is_read() {
    publish_while_polling(
        &spinning().trust(TrustPolicy::Untrusted),
        |_| (),
        |foe| foe.publish(Kind::Data, &[7; 40]),
        |channel| channel.receiver().recv_view().unwrap().unwrap().as_ptr().addr(),
        |address, mut foe, channel| {
            foe.write_word(foe.place(0) + HEADER_BYTES, u64::MAX);
            let kept = channel.receiver().keep_view().unwrap();
            assert_eq!(kept, [7; 40], "the peer changed a message at {address:#x}");
        },
    );
}
