// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server or group that is closed leaves link files that their next owner trusts after a reboot.
//! One that is dropped leaves files that the next opener refuses after a reboot, until an operator
//! adopts them.

use crate::support_ends;

use partywall_layout::link::{OWNER_OFFSET, OwnerRecord, PAGE_SLOT_STRIDE, Slot};
use partywall_link::{
    Client, Config, Event, Group, Key, Link, LoginAnswer, OpenError, RepairError, Server, Stopped,
    StorageError, adopt,
};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};
use support_ends::{Ground, Via, message, number, soon};
use zerocopy::{FromBytes, IntoBytes};

/// Number of links between the server and the client of each test. It is above the number from
/// which closing syncs the whole file system instead of each link file.
const LINKS: usize = 70;

fn config() -> Config {
    Config::default().ring_bytes(4096).slab_bytes(0)
}

/// Changes the owner record in each link file of `directory` as if the machine had been rebooted
/// since the file was used.
fn reboot(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "link") {
            continue;
        }
        let mut image = fs::read(&path).unwrap();
        for slot in [0, 1] {
            let at = usize::try_from(OWNER_OFFSET + slot * PAGE_SLOT_STRIDE).unwrap();
            let bytes = &mut image[at..at + size_of::<OwnerRecord>()];
            let record = OwnerRecord::read_from_bytes(bytes).unwrap();
            if record.incarnation.get() > 0 && record.sealed() == record {
                let other = OwnerRecord { boot_id: [7; 16], ..record }.sealed();
                bytes.copy_from_slice(other.as_bytes());
            }
        }
        fs::write(path, image).unwrap();
    }
}

fn connected(ground: &Ground, server: &Server, client: &Client) -> Vec<Link> {
    assert!(ground.is_kept());
    (0..LINKS)
        .map(|n| {
            let link = client.connect(server.local_address(), "bob", &n.to_string()).unwrap();
            link.send(&message(n as u64, 8)).unwrap();
            link
        })
        .collect()
}

/// Whether a link was not opened because its file is of another boot; panics on any other error.
fn is_refused(opened: Result<Link, OpenError>) -> bool {
    match opened {
        Ok(_) => false,
        Err(OpenError::File(StorageError::OtherBoot { .. })) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn closed_server_and_group_leave_files_that_are_believed() {
    let ground = Ground::new(Via::Unix, true);
    let group = Group::new().unwrap();
    let server = ground.server(config().group(&group));
    let client = ground.client(config().group(&group));
    let links = connected(&ground, &server, &client);
    let served: Vec<Link> =
        (0..LINKS).map(|n| server.open("alice", &n.to_string()).unwrap()).collect();
    for (n, link) in served.iter().enumerate() {
        let message = link.recv_deadline(soon()).unwrap().unwrap();
        assert_eq!(number(&message), n as u64);
        message.ack().unwrap();
        // For each link, the server keeps a message that its client does not receive before both
        // are closed.
        link.send(&message_of(n)).unwrap();
    }
    links.iter().for_each(|link| link.wait_acked(soon()).unwrap());
    server.close(soon()).unwrap();
    group.close(soon()).unwrap();
    let is_closed = |link: &Link| matches!(link.unacked_bytes(), Err(Stopped::Closed));
    assert!(links.iter().chain(&served).all(is_closed), "handles stay, and their links are closed");
    assert!(group.close(soon()).is_ok(), "closing twice");
    ["client", "server"].iter().for_each(|end| reboot(&ground.path(end)));
    let server = ground.server(config().group(&group));
    let client = ground.client(config().group(&group));
    for n in 0..LINKS {
        let name = n.to_string();
        let link = client.connect(server.local_address(), "bob", &name).unwrap();
        let served = server.open("alice", &name).unwrap();
        let received = link.recv_deadline(soon()).unwrap().unwrap();
        assert_eq!(*received, *message_of(n));
        received.ack().unwrap();
        assert!(served.try_recv().is_err(), "the request was acknowledged before");
        assert!(link.try_event().is_none_or(|event| !event.to_string().contains("lost")));
    }
}

fn message_of(n: usize) -> Vec<u8> {
    message(1000 + n as u64, 100)
}

#[test]
fn dropped_server_and_group_leave_files_that_are_refused() {
    let ground = Ground::new(Via::Unix, true);
    let server = ground.server(config());
    let client = ground.client(config());
    let links = connected(&ground, &server, &client);
    (0..LINKS).for_each(|n| drop(server.open("alice", &n.to_string()).unwrap()));
    drop((links, server));
    ["client", "server"].iter().for_each(|end| reboot(&ground.path(end)));
    let server = ground.server(config());
    for name in (0..LINKS).map(|n| n.to_string()) {
        assert!(is_refused(client.connect(server.local_address(), "bob", &name)), "{name}");
        assert!(is_refused(server.open("alice", &name)), "{name}");
    }
}

#[test]
fn detached_link_is_believed_and_its_peer_does_not_take_it_for_the_end() {
    let ground = Ground::new(Via::Unix, true);
    let group = Group::new().unwrap();
    let server = ground.server(config().group(&group));
    let client = ground.client(config().group(&group));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let served = server.open("alice", "orders").unwrap();
    link.send(b"a part").unwrap();
    served.recv_deadline(soon()).unwrap().unwrap().ack().unwrap();
    link.wait_acked(soon()).unwrap();
    link.detach().unwrap();
    reboot(&ground.path("client"));
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    link.send(b"the rest").unwrap();
    // A detached client must not send LEAVE. If the server had received it, `recv` would return
    // `None` before this message.
    let rest = served.recv_deadline(soon()).unwrap().expect("no end between the parts");
    assert_eq!(*rest, *b"the rest");
    rest.ack().unwrap();
    link.wait_acked(soon()).unwrap();
    link.close(soon()).unwrap();
    assert!(served.recv_deadline(soon()).unwrap().is_none(), "a closed link is the end");
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::*;
    use crate::support_link_async::{client, config, on_runtimes, server, within};
    use partywall_link::tokio::{Client, Group};
    use partywall_link::{RecvError, Stopped};

    #[test]
    fn closed_server_and_group_leave_files_that_are_believed() {
        on_runtimes(|| async {
            let ground = Ground::new(Via::Unix, true);
            let group = Group::new().unwrap();
            let bob = server(&ground, config());
            let alice = Client::new_in(&group, ground.place("client"), "alice", config()).unwrap();
            let link = alice.connect(bob.local_address(), "bob", "orders").unwrap();
            let served = bob.open("alice", "orders").unwrap();
            link.send(b"a request").await.unwrap();
            let request = served.recv().await.unwrap().unwrap();
            request.ack().unwrap();
            let waits = tokio::spawn(async move { served.recv().await });
            bob.close(soon()).await.unwrap();
            let ended = within(waits).await.unwrap();
            assert!(matches!(ended, Err(RecvError::Stopped(Stopped::Closed))), "{ended:?}");
            link.send(b"kept").await.unwrap();
            group.close(std::time::Instant::now()).await.unwrap_err();
            let sent = link.send(b"too late").await;
            assert!(sent.is_err(), "the link is closed");
            ["client", "server"].iter().for_each(|end| reboot(&ground.path(end)));
            let (bob, alice) = (server(&ground, config()), client(&ground, config()));
            let link = alice.connect(bob.local_address(), "bob", "orders").unwrap();
            let served = bob.open("alice", "orders").unwrap();
            let kept = served.recv().await.unwrap().unwrap();
            assert_eq!(*kept, *b"kept");
            kept.ack().unwrap();
            link.detach().await.unwrap();
        });
    }
}

/// Input: operators adopt the same refused file at the same time. Expected: the file is adopted
/// once, and only the adoption that changed the file reports what the file proved.
#[test]
fn file_that_is_adopted_twice_at_a_time_proves_its_contents_once() {
    let key = Key::new("alice", "bob", "orders").unwrap();
    for _ in 0..ADOPTIONS {
        let ground = Ground::new(Via::Unix, true);
        let client = ground.client(config());
        drop(client.connect(ground.address().as_str(), "bob", "orders").unwrap());
        drop(client);
        reboot(&ground.path("client"));
        let directory = ground.path("client");
        let (key, directory, both) = (&key, &directory, &Barrier::new(2));
        let adopted = std::thread::scope(|scope| {
            let adopting = [(); 2].map(|()| {
                scope.spawn(|| {
                    both.wait();
                    adopt(directory, key, true)
                })
            });
            adopting.map(|adopting| adopting.join().unwrap())
        });
        let proofs = adopted.iter().flatten().filter(|adopted| adopted.evidence.is_some()).count();
        assert_eq!(proofs, 1, "{adopted:?}");
        for error in adopted.iter().filter_map(|adopted| adopted.as_ref().err()) {
            let is_expected = matches!(
                error,
                RepairError::NotQuarantined { .. }
                    | RepairError::File(StorageError::Busy { .. } | StorageError::Opening { .. })
            );
            assert!(is_expected, "{error}");
        }
    }
}

/// Number of files that two operators adopt at the same time.
const ADOPTIONS: usize = 30;

/// Input: the server is closed while the application decides about the login of a client. Expected:
/// the client's link is not opened, so every link file is closed when the server is.
#[test]
fn client_that_is_judged_while_the_server_closes_opens_no_link() {
    let ground = Ground::new(Via::Unix, true);
    let group = Group::new().unwrap();
    let (asked, is_asked) = mpsc::channel();
    let (close, is_closed) = mpsc::channel();
    let is_closed = Mutex::new(is_closed);
    let has_answered = Arc::new(AtomicBool::new(false));
    let answering = Arc::clone(&has_answered);
    let judging = config().group(&group).on_login(move |_| {
        asked.send(()).unwrap();
        is_closed.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        answering.store(true, Ordering::Relaxed);
        LoginAnswer::Accept(Vec::new())
    });
    let server = ground.server(judging);
    let client = ground.client(config());
    let link = client.connect(server.local_address(), "bob", "orders").unwrap();
    let serving = std::thread::spawn(move || {
        while !has_answered.load(Ordering::Relaxed) {
            group.poll(Some(Instant::now() + Duration::from_millis(5))).unwrap();
        }
    });
    while is_asked.try_recv().is_err() {
        let _ = link.wait_attached(Instant::now() + Duration::from_millis(5));
    }
    server.close(soon()).unwrap();
    close.send(()).unwrap();
    serving.join().unwrap();
    let files: Vec<_> = fs::read_dir(ground.path("server")).unwrap().flatten().collect();
    assert!(files.iter().all(|file| file.path().extension().is_none()), "{files:?}");
}

/// Input: the file of a client's link is refused. Expected: the client learns only that its link
/// cannot be opened; the server's application gets the reason, with the path of the file.
#[test]
fn client_whose_link_cannot_be_opened_learns_no_path() {
    for via in [Via::Unix, Via::Tcp] {
        let ground = Ground::new(via, true);
        let server = ground.server(config());
        drop((server.open("alice", "orders").unwrap(), server));
        reboot(&ground.path("server"));
        let server = ground.server(config());
        let client = ground.client(config().group(server.group()));
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        let deadline = soon();
        let reason = loop {
            if let Some(Event::Refused { reason }) = link.try_event() {
                break reason;
            }
            assert!(Instant::now() < deadline);
            server.group().poll(Some(Instant::now() + Duration::from_millis(5))).unwrap();
        };
        assert!(reason.contains("cannot open this link") && !reason.contains('/'), "{reason}");
        let path = ground.path("server").display().to_string();
        assert!(server.last_refusal().is_some_and(|refusal| refusal.contains(&path)));
        let Some(error) = server.take_open_error() else { panic!("no error") };
        assert!(is_refused(Err(error)));
    }
}
