// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application has of a link: one handle, however many hold it.
//!
//! ```text
//!   Link ── split ──▶ halves.rs ─▶ Handle ─▶ Endpoint
//!     └─────────────────────────────▲
//!   all of them dropped: a client's link is closed, a server's stays with the server
//! ```

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use partywall::{Address, AddressError};
use partywall_sys::biased::locking_nothing;

use crate::end::{Endpoint, Load};
use crate::error::{
    AckError, RecvError, SendError, Stopped, SwitchError, TryRecvError, TrySendError, WaitError,
};
use crate::group::MemberId;
use crate::handle::batch::Batch;
use crate::handle::halves::{Receiver, Sender};
use crate::handle::message::{Message, OwnedSink, Token};
use crate::handle::view::{MessageView, recv_with, try_recv_with};
use crate::link_state::Event;
use crate::link_state::StaleEpoch;
use crate::status::{Stats, Status};
use crate::store::Key;
use crate::store::ReportSnapshot;

/// One end of a pair of streams that outlive connections, and their processes if they are kept in files.
///
/// Made by [`Client::connect`](crate::Client::connect), [`Server::accept`](crate::Server::accept) and
/// [`Server::open`](crate::Server::open). Every method may be called by any thread, at the same time as others.
///
/// A connection is made and kept while some thread waits for a link of the group, in any method that can wait, or polls it.
/// Connections come and go without a word; [`status`](Self::status) and [`try_event`](Self::try_event) tell of them.
///
/// Dropping the link of a client closes it, without waiting: see [`close`](Self::close). That of a server stays open and attached,
/// until it is closed or the server is dropped, and can be had again.
#[derive(Debug)]
pub struct Link {
    pub(crate) handle: Arc<Handle>,
}

/// What keeps the link in the application's hands, shared by all it has of one.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) end: Arc<Endpoint>,
    /// It stays when the handle goes.
    is_served: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.is_served { self.end.unclaim() } else { self.end.shutdown().abandon() }
    }
}

impl Link {
    pub(crate) fn new(end: Arc<Endpoint>, is_served: bool) -> Self {
        Self { handle: Arc::new(Handle { end, is_served }) }
    }

    pub(crate) fn end(&self) -> &Endpoint {
        &self.handle.end
    }

    /// For who looks at the link without having it.
    #[cfg(any(all(test, not(shuttle)), feature = "tokio"))]
    pub(crate) fn shared_end(&self) -> Arc<Endpoint> {
        Arc::clone(&self.handle.end)
    }

    /// The two directions, for threads that do one of the two.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (Sender::new(Arc::clone(&self.handle)), Receiver::new(self.handle))
    }

    /// The three names.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.end().key()
    }

    /// What [`Group::ready`](crate::Group::ready) calls it.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.end().id()
    }

    /// Sends a message: it is in the link's memory when this returns, and stays there until the peer has consumed it. Waits for
    /// room. What the network takes at once goes out at once, the rest while some thread of the group waits: see
    /// [`wait_sent`](Self::wait_sent).
    ///
    /// # Errors
    /// See [`SendError`]. A lost connection is none.
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.end().send_driver().send_with(
            message.len(),
            |room| room.copy_from_slice(message),
            None,
        )
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// See [`TrySendError`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.end().send_driver().try_send_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// As [`send`](Self::send), but waits for room only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn send_deadline(&self, message: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.end().send_driver().send_with(
            message.len(),
            |room| room.copy_from_slice(message),
            Some(deadline),
        )
    }

    /// Sends a message of `len` bytes that `fill` writes: a long one where it stays until it is consumed, out of which the receiver copies it if
    /// that is in shared memory; a short one where its record is put together. Waits for room first. The fastest way to send.
    ///
    /// `fill` must write every byte. What it finds is unspecified: it may be of earlier messages of this end, also of those of earlier owners of
    /// its file; what it does not write is sent as it was found.
    ///
    /// The link is locked meanwhile, and all links of its [group](crate::Group) may have to wait for it: `fill` should do no
    /// more than write. It must use no link, and nothing that links belong to, nor drop one, nor wait for a thread that does.
    ///
    /// ```
    /// # use partywall_link::{Client, Config, Storage};
    /// # let client = Client::new(Storage::Memory, "alice", Config::default())?;
    /// # let link = client.connect("unix:/nowhere", "bob", "orders")?;
    /// let (price, count) = (4200_u64, 5_u64);
    /// link.send_with(16, |order| {
    ///     order[..8].copy_from_slice(&price.to_le_bytes());
    ///     order[8..].copy_from_slice(&count.to_le_bytes());
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send); `fill` was then not called.
    ///
    /// # Panics
    /// If `fill` does, or uses or drops a link. Nothing is sent then; what it wrote may lie where the receiver could read it, until other
    /// messages do. A link that is used while `fill` unwinds may be waited for without end.
    #[inline]
    pub fn send_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.end().send_driver().send_with(len, alone(fill), None)
    }

    /// As [`send_with`](Self::send_with), if there is room now.
    ///
    /// # Errors
    /// See [`TrySendError`]; `fill` was then not called.
    #[inline]
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.end().send_driver().try_send_with(len, alone(fill))
    }

    /// As [`send_with`](Self::send_with), but waits for room only until `deadline`.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send_with_deadline(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        deadline: Instant,
    ) -> Result<(), SendError> {
        self.end().send_driver().send_with(len, alone(fill), Some(deadline))
    }

    /// Sends one message that lies in several places.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_parts(&self, parts: &[&[u8]]) -> Result<(), SendError> {
        self.end().send_driver().send(Load::Message(parts), None)
    }

    /// Begins a batch: messages that are sent at once.
    ///
    /// ```
    /// # use partywall_link::{Client, Config, Storage};
    /// # let client = Client::new(Storage::Memory, "alice", Config::default())?;
    /// # let link = client.connect("unix:/nowhere", "bob", "orders")?;
    /// let mut batch = link.batch();
    /// batch.send(b"debit 5").send(b"credit 5");
    /// batch.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.end())
    }

    /// Receives the next message; waits for one. `None`: the peer closed its end in good order, and everything that it had
    /// sent was received. The link is still there: another call waits until the peer has opened its end again and sends.
    ///
    /// ```
    /// # use partywall_link::{Link, RecvError};
    /// # fn work(_: &[u8]) {}
    /// # fn receive(link: &Link) -> Result<(), Box<dyn std::error::Error>> {
    /// while let Some(message) = link.recv()? {
    ///     work(&message);
    ///     message.ack()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A peer that was killed, or cannot be reached, has not finished: the call waits for it. Each time that the peer closes
    /// its end, one call returns `None`, unless the peer is back and has sent more before everything was received.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.handle.recv(None)
    }

    /// Receives the next message if there is one now. `None` is as of [`recv`](Self::recv).
    ///
    /// # Errors
    /// See [`TryRecvError`].
    pub fn try_recv(&self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// As [`recv`](Self::recv), but only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<Option<Message>, RecvError> {
        self.handle.recv(Some(deadline))
    }

    /// Has `read` read the next message in the link's own memory, and consumes it, and all before it that were received, when `read` returns; waits
    /// for one first. The fastest way to receive, for who has nothing to do between reading a message and being done with it.
    ///
    /// What must not be lost with this process is to be done in `read`, once or, if the process dies in it, twice: the next owner receives the message
    /// again, as one [more](crate::Message::attempt) attempt. What `read` returns is of a message that is consumed already. If that is not enough,
    /// [`recv`](Self::recv) gives a message that is consumed when you say so. `None`, as there: `read` was not called.
    ///
    /// If `read` panics, the message was not consumed, and is the next to be received again; as the same attempt, because this process lives. To leave it
    /// behind, receive and commit it.
    ///
    /// The link is locked meanwhile, and all links of its [group](crate::Group) may have to wait for it, past deadlines and in calls that do
    /// not wait otherwise: `read` should do little. It must use no link, and nothing that links belong to, nor drop one, nor wait for a thread that
    /// does. With [`Delivery::AtMostOnce`](crate::Delivery) all that is different: the message is consumed before, and `read` gets a copy, with
    /// nothing locked.
    ///
    /// ```
    /// # use partywall_link::{Link, RecvError};
    /// # fn sum(link: &Link, mut sum: u64) -> Result<(), RecvError> {
    /// let add = |message: partywall_link::MessageView<'_>| sum += u64::from(message[0]);
    /// if link.recv_with(add)?.is_none() {
    ///     println!("the peer has finished");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RecvError`]; `read` was then not called.
    ///
    /// # Panics
    /// If `read` does, or, but for `AtMostOnce`, uses or drops a link. A link that is used while `read` unwinds may be waited for without end.
    #[inline]
    pub fn recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        recv_with(self.end(), None, read)
    }

    /// As [`recv_with`](Self::recv_with), if there is a message now.
    ///
    /// # Errors
    /// See [`TryRecvError`]; `read` was then not called.
    pub fn try_recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        try_recv_with(self.end(), read)
    }

    /// As [`recv_with`](Self::recv_with), but waits only until `deadline`.
    ///
    /// # Errors
    /// As there.
    pub fn recv_with_deadline<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
        deadline: Instant,
    ) -> Result<Option<R>, RecvError> {
        recv_with(self.end(), Some(deadline), read)
    }

    /// Consumes the message that `token` names and all before it, of those that were received.
    ///
    /// # Errors
    /// See [`AckError`].
    pub fn ack_to(&self, token: Token) -> Result<(), AckError> {
        self.end().receive_driver().ack_to(&token.0)
    }

    /// Has everything that was received and not committed received again.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn rewind(&self) -> Result<(), Stopped> {
        self.end().receive_driver().rewind()
    }

    /// Waits until the peer has consumed everything that was sent before this call, or an epoch began: what an epoch leaves
    /// behind is in the [reports](Self::reports).
    ///
    /// # Errors
    /// See [`WaitError`].
    pub fn wait_acked(&self, deadline: Instant) -> Result<(), WaitError> {
        self.end().send_driver().wait_acked(Some(deadline))
    }

    /// Waits until all that was sent before is with the system, or where the peer reads it itself; or an epoch began. For a thread
    /// that goes on to something else and does not come back to any link of the group: what the network does not take at once, because
    /// the peer is slow or the connection is gone, waits until some thread does. Whether the peer has it is for [`wait_acked`](Self::wait_acked).
    ///
    /// # Errors
    /// See [`WaitError`].
    pub fn wait_sent(&self, deadline: Instant) -> Result<(), WaitError> {
        self.end().send_driver().wait_sent(Some(deadline))
    }

    /// Bytes of the stream that were sent and are not yet known to be consumed: messages, with 16 to 103 bytes for each.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn unconsumed_bytes(&self) -> Result<u64, Stopped> {
        self.end().send_driver().unconsumed_bytes()
    }

    /// Waits until records flow.
    ///
    /// # Errors
    /// [`WaitError`], which says what came of the last attempt.
    pub fn wait_attached(&self, deadline: Instant) -> Result<(), WaitError> {
        self.end().waiter().wait_attached(Some(deadline))
    }

    /// Begins an epoch: both directions are empty again. What was not consumed is dropped, and reported at both ends.
    ///
    /// # Errors
    /// [`EpochError`].
    pub fn begin_epoch(&self, epoch: u64) -> Result<(), EpochError> {
        Ok(self.end().connections().begin_epoch(epoch)??)
    }

    /// The epoch that this end is in; 0 before any was begun.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn epoch(&self) -> Result<u64, Stopped> {
        self.end().with_core(|core| core.epoch())
    }

    /// What happened next, if anything did that was not yet told. After a thousand that nobody asked for no more are kept.
    pub fn try_event(&self) -> Option<Event> {
        self.end().receive_driver().try_event()
    }

    /// What happened and was not yet told.
    pub fn events(&self) -> Vec<Event> {
        std::iter::from_fn(|| self.try_event()).collect()
    }

    /// What was skipped or dropped, each range once, oldest first. It is kept with the link until
    /// [`acknowledge_reports`](Self::acknowledge_reports).
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn reports(&self) -> Result<Vec<ReportSnapshot>, Stopped> {
        self.end().with_core(|core| core.reports().iter().map(ReportSnapshot::from).collect())
    }

    /// These were taken notice of, as [`reports`](Self::reports) gave them, and need not be kept. One that has become part of a larger
    /// one meanwhile, because there was no more room, stays with that one.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acknowledge_reports(&self, reports: &[ReportSnapshot]) -> Result<(), Stopped> {
        let mut seen = reports.to_vec();
        let mut is_seen = |report: &ReportSnapshot| {
            let found = seen.iter().position(|seen| seen == report);
            found.map(|index| seen.swap_remove(index)).is_some()
        };
        self.end().with_core(|core| core.reports_seen(|report| is_seen(&report.into()), 0))
    }

    /// How many more reports there were, for which there was no room.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn reports_dropped(&self) -> Result<u64, Stopped> {
        self.end().with_core(|core| core.reports_dropped())
    }

    /// So many of those that found no room were taken notice of.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acknowledge_dropped_reports(&self, count: u64) -> Result<(), Stopped> {
        self.end().with_core(|core| core.reports_seen(|_| false, count))
    }

    /// How many owners this end has had, this one included: always 1 if it is not kept in a file.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn incarnation(&self) -> Result<u64, Stopped> {
        self.end().with_core(|core| core.provenance().incarnation.0)
    }

    /// Clients: what the server's application said with the last connection; empty before there was one.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn login_reply(&self) -> Result<Bytes, Stopped> {
        self.end().with_core(|core| Bytes::copy_from_slice(core.login()))
    }

    /// Where the next message that is sent will begin, or a little before. It is the same after a restart, unless something was sent
    /// in between.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn sent_position(&self) -> Result<StreamPosition, Stopped> {
        let (stream, end) = self.end().with_core(|core| core.sent_to())?;
        Ok(StreamPosition { stream: stream.0.get(), position: end.0 })
    }

    /// Up to where what is received was committed; `None` before this end has met a stream of this epoch.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acked_position(&self) -> Result<Option<StreamPosition>, Stopped> {
        let acked_offset = self.end().with_core(|core| core.acked_offset())?;
        Ok(acked_offset.map(|acked_offset| StreamPosition {
            stream: acked_offset.stream.0.get(),
            position: acked_offset.position.0,
        }))
    }

    /// Clients: goes over to the server at `address`, which must be the same server at another of its addresses: from TCP to shared memory, or
    /// back. Returns at once; sends and receives go on meanwhile over the connection that there is, which is given up when the
    /// next one is attached. As long as nobody answers there, it is tried again, and the link stays where it is.
    ///
    /// [`status`](Self::status) tells which transport is used, [`try_event`](Self::try_event) what came of attempts.
    ///
    /// A link kept in [`Storage::Memory`](super::Storage::Memory) goes over shared memory only if the address that it was
    /// first opened with was that of a Unix socket.
    ///
    /// ```
    /// use partywall_link::{Client, Config, Storage, Server};
    /// # let directory = tempfile::tempdir()?;
    /// # let soon = std::time::Instant::now() + std::time::Duration::from_secs(10);
    ///
    /// let config = Config::default().allow_anonymous_tcp(true);
    /// let near = format!("unix:{}/links.sock", directory.path().display());
    /// let server = Server::bind(&near, Storage::Memory, "bob", config)?;
    /// let far = server.listen_also("tcp:127.0.0.1:0")?;
    /// let client = Client::new(Storage::Memory, "alice", Config::default())?;
    /// let link = client.connect(&near, "bob", "orders")?;
    /// # let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    /// # let is_done = std::sync::Arc::clone(&is_over);
    /// # let served = std::thread::spawn(move || {
    /// #     let link = server.accept_deadline(soon).unwrap();
    /// #     for _ in 0..2 { link.recv_deadline(soon).unwrap().unwrap().ack().unwrap(); }
    /// #     // A link works while it is waited for: until the client has its acknowledgements.
    /// #     while !is_done.load(std::sync::atomic::Ordering::Acquire) {
    /// #         let _ = link.recv_deadline(std::time::Instant::now() + std::time::Duration::from_millis(10));
    /// #     }
    /// # });
    /// link.send(b"over shared memory")?;
    /// link.switch_to(far)?;
    /// link.send(b"over one or the other")?;
    /// # link.wait_acked(soon)?;
    /// # is_over.store(true, std::sync::atomic::Ordering::Release);
    /// # served.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`SwitchError`]. That nobody answers is none.
    pub fn switch_to<A>(&self, address: A) -> Result<(), SwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        self.end().dial().switch_to(address)
    }

    /// How it stands at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.end().status()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.end().stats()
    }

    /// Closes this end in good order: all that was sent goes out, and the peer is told. What it has not consumed stays in a file
    /// for the next time; without a file it is gone, so [`wait_acked`](Self::wait_acked) first.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`]: not all went out before `deadline`. The link is closed in any case.
    pub fn close(self, deadline: Instant) -> Result<(), WaitError> {
        self.end().shutdown().close(Some(deadline))
    }
}

impl Handle {
    pub(crate) fn recv(&self, deadline: Option<Instant>) -> Result<Option<Message>, RecvError> {
        let received = self.end.receive_driver().recv(deadline, OwnedSink)?;
        Ok(received.map(|received| Message::new(received, Arc::clone(&self.end))))
    }

    pub(crate) fn try_recv(&self) -> Result<Option<Message>, TryRecvError> {
        let received = self.end.receive_driver().try_recv(OwnedSink)?;
        Ok(received.map(|received| Message::new(received, Arc::clone(&self.end))))
    }
}

/// A place in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamPosition {
    /// Which stream: a number by chance, never 0. Another epoch, or a file made anew, has another.
    pub stream: u64,
    /// How many bytes of it lie before, counted as in a ring. It rises with each message.
    pub position: u64,
}

/// Why an epoch was not begun.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// Epochs only rise.
    #[error(transparent)]
    NotHigher(#[from] StaleEpoch),
    /// The link is of no further use here.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The application's own code, run while the link is locked.
#[inline]
pub(crate) fn alone(fill: impl FnOnce(&mut [u8])) -> impl FnOnce(&mut [u8]) {
    |room| locking_nothing(|| fill(room))
}
