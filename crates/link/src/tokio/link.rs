// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handle of one link, whose operations are futures. Its two directions, as separate objects,
//! are in `halves.rs`.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::coop::consume_budget;

use super::batch::Batch;
use super::group::{GroupShared, Hold};
use super::halves::{Receiver, Sender};
use super::message::Message;
use super::notices::Notices;
use super::shutdown;
use crate::{
    EpochError, Event, Key, MemberId, MessageView, Observation, Observer, RecvError,
    ReportSnapshot, SendError, Stats, Status, Stopped, StreamPosition, SwitchError, Token,
    TryRecvError, TrySendError, WaitError,
};
use partywall::{Address, AddressError};

/// One end of a pair of streams that outlive connections and, when kept in files, their processes.
/// The operations of [`crate::Link`] that block a thread are futures here.
///
/// [`Client::connect`](super::Client::connect), [`Server::accept`](super::Server::accept) and
/// [`Server::open`](super::Server::open) make links. Any number of tasks may use a link at the same
/// time: share it by [`Arc`], or [`split`](Self::split) it.
///
/// Operations do not fail when a connection ends: [`status`](Self::status) and
/// [`next_event`](Self::next_event) report connections.
///
/// Dropping a client's link closes it without waiting; see [`close`](Self::close). A server's link
/// stays open and attached until it is closed or the server is dropped, and can be opened again.
#[derive(Debug)]
pub struct Link {
    pub(super) handle: Arc<Handle>,
}

/// State that all handles of one link share. The fields are dropped in the order of declaration:
/// first the link is released, and then the reference `_hold`, after whose drop the driver task
/// makes its last check.
pub(super) struct Handle {
    pub(super) link: crate::Link,
    pub(super) notices: Arc<Notices>,
    _hold: Hold,
}

impl Link {
    fn blocking(&self) -> &crate::Link {
        &self.handle.link
    }

    pub(super) fn new(link: crate::Link, hold: Hold) -> Self {
        let notices = hold.shared.notices_of(Observer::new(&link));
        Self { handle: Arc::new(Handle { link, notices, _hold: hold }) }
    }

    /// Splits the link into its two directions, for tasks that only send or only receive.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (Sender::new(Arc::clone(&self.handle)), Receiver::new(self.handle))
    }

    /// Sends a message; waits until the link has room. When the future is ready, the message is in
    /// the link's memory, and it stays there until the peer has acknowledged it.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, nothing was sent.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons. A lost connection is not an error.
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.handle.send(message).await
    }

    /// Sends a message if the link has room now.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.handle.try_send(message)
    }

    /// Sends a message of `len` bytes, every one of which `fill` writes; waits for room first.
    /// [`Link::send_with`](crate::Link::send_with) says what `fill` may do, and what its buffer
    /// contains.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons; `fill` was then not called.
    ///
    /// # Panics
    /// If `fill` panics, or uses or drops a link.
    pub async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.handle.send_with(len, fill).await
    }

    /// Sends a message that `fill` writes, like [`send_with`](Self::send_with), but only if the
    /// link has room now.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons; `fill` was then not called.
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// Begins a batch: messages that are sent all or none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use partywall_link::{Config, Storage};
    /// # use partywall_link::tokio::Client;
    /// # let client = Client::new(Storage::Memory, "alice", Config::default())?;
    /// # let link = client.connect("unix:/nowhere", "bob", "orders")?;
    /// let mut batch = link.batch();
    /// batch.send(b"debit 5").send(b"credit 5");
    /// batch.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self) -> Batch<'_> {
        self.handle.batch()
    }

    /// Receives the next message; waits for one. If several tasks wait, any of them may receive it.
    /// `None` means that the peer closed its end in good order and every message that it had sent
    /// was received; see [`Link::recv`](crate::Link::recv).
    ///
    /// Cancel-safe: if the future is dropped before it is ready, it took no message.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub async fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.handle.recv().await
    }

    /// Receives the next message if one has arrived. `None` means the same as for
    /// [`recv`](Self::recv).
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv(&self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// Passes the next message to `read`, in the link's own memory; waits for a message first. When
    /// `read` returns, the message and all that were received before it are acknowledged.
    /// [`Link::recv_with`](crate::Link::recv_with) says what `read` may do, and what happens if
    /// `read` panics.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, it took no message, and `read` was
    /// not called.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons; `read` was then not called.
    ///
    /// # Panics
    /// If `read` panics, or uses or drops a link.
    pub async fn recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        self.handle.recv_with(read).await
    }

    /// Passes the next message to `read`, like [`recv_with`](Self::recv_with), but only if one has
    /// arrived.
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons; `read` was then not called.
    pub fn try_recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// Acknowledges the message that `token` names and all messages received before it.
    ///
    /// # Errors
    /// [`AckError`](crate::AckError) lists the reasons.
    pub fn ack_to(&self, token: Token) -> Result<(), crate::AckError> {
        self.handle.notices.act_on_received(|| self.handle.link.ack_to(token))
    }

    /// Delivers again every message that was received and not acknowledged.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn rewind(&self) -> Result<(), Stopped> {
        self.handle.notices.act_on_received(|| self.handle.link.rewind())
    }

    /// Switches a client's link to another address of the same server while messages flow; see
    /// [`Link::switch_to`](crate::Link::switch_to).
    ///
    /// # Errors
    /// [`SwitchError`] lists the reasons.
    pub fn switch_to<A>(&self, address: A) -> Result<(), SwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        self.handle.notices.act(|| self.handle.link.switch_to(address))
    }

    /// Waits until the peer has acknowledged everything that was sent before the first poll of this
    /// future, or until an epoch began. Messages that an epoch drops are in the
    /// [reports](Self::reports).
    ///
    /// Cancel-safe: the future changes nothing.
    ///
    /// # Errors
    /// [`WaitError::Stopped`]; no other error is possible.
    pub async fn wait_acked(&self) -> Result<(), WaitError> {
        self.handle.wait_acked().await
    }

    /// Waits until a connection is attached.
    ///
    /// Cancel-safe: the future changes nothing.
    ///
    /// # Errors
    /// [`WaitError::Stopped`]. [`next_event`](Self::next_event) reports failed attempts.
    pub async fn wait_attached(&self) -> Result<(), WaitError> {
        let flows =
            |seen: &Observation| seen.snapshot.is_attached && seen.snapshot.stopped().is_none();
        self.handle.notices.until(flows).await
    }

    /// Returns the next event; waits for one. Each event is returned once, to any one of the
    /// waiting tasks. The link keeps at most the first thousand events.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, it took no event.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons. Events from before the link stopped come first, unless it was
    /// closed.
    pub async fn next_event(&self) -> Result<Event, Stopped> {
        let notices = &self.handle.notices;
        consume_budget().await;
        loop {
            let notified = notices.events.notified();
            // The status is read before the event is taken: events precede the end of the link, so
            // no event is missed.
            let stopped = notices.observer.observe()?.snapshot.stopped();
            if let Some(event) = self.try_event() {
                return Ok(event);
            }
            stopped.map_or(Ok(()), Err)?;
            notices.shared.goes_on()?;
            notified.await;
        }
    }

    /// The three names that identify the link: of this end, of the peer, and of the link between
    /// them.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.blocking().key()
    }

    /// The id of the link, unique in its group.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.blocking().id()
    }

    /// Present status of the link: whether it is attached, and if not, why.
    #[must_use]
    pub fn status(&self) -> Status {
        self.blocking().status()
    }

    /// Counters of this end since this process opened the link.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.blocking().stats()
    }

    /// Bytes of the outgoing stream between the acknowledged position and the stream's end: sent
    /// messages, with 16 to 103 bytes of overhead for each.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn unacked_bytes(&self) -> Result<u64, Stopped> {
        self.blocking().unacked_bytes()
    }

    /// Position at which the next message will begin; see
    /// [`Link::sent_position`](crate::Link::sent_position).
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn sent_position(&self) -> Result<StreamPosition, Stopped> {
        self.blocking().sent_position()
    }

    /// Position up to which this end has acknowledged received messages; `None` before this end has
    /// received a stream in this epoch.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn acked_position(&self) -> Result<Option<StreamPosition>, Stopped> {
        self.blocking().acked_position()
    }

    /// Begins a new epoch: both directions are empty again. Unacknowledged messages are dropped,
    /// and both ends report them.
    ///
    /// # Errors
    /// [`EpochError`] lists the reasons.
    pub fn begin_epoch(&self, epoch: u64) -> Result<(), EpochError> {
        self.handle.notices.act(|| self.blocking().begin_epoch(epoch))
    }

    /// The epoch of this end; 0 before the first call of [`begin_epoch`](Self::begin_epoch) at
    /// either end.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn epoch(&self) -> Result<u64, Stopped> {
        self.blocking().epoch()
    }

    /// Returns the oldest event that no call has returned yet, if there is one.
    pub fn try_event(&self) -> Option<Event> {
        self.blocking().try_event()
    }

    /// Returns all events that no call has returned yet, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.blocking().events()
    }

    /// Reports of messages that were skipped or dropped, as ranges of stream positions: each report
    /// once, oldest first. The link keeps them until
    /// [`acknowledge_reports`](Self::acknowledge_reports).
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn reports(&self) -> Result<Vec<ReportSnapshot>, Stopped> {
        self.blocking().reports()
    }

    /// Removes the given reports, as [`reports`](Self::reports) returned them. A report that was
    /// merged into a larger one in the meantime, because the link had no more room, stays as part
    /// of that report.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn acknowledge_reports(&self, reports: &[ReportSnapshot]) -> Result<(), Stopped> {
        self.blocking().acknowledge_reports(reports)
    }

    /// Number of reports that were dropped because the link had no room for them.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn reports_dropped(&self) -> Result<u64, Stopped> {
        self.blocking().reports_dropped()
    }

    /// Subtracts `count` from the number that [`reports_dropped`](Self::reports_dropped) returns,
    /// once the application has noted the loss.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn acknowledge_dropped_reports(&self, count: u64) -> Result<(), Stopped> {
        self.blocking().acknowledge_dropped_reports(count)
    }

    /// Number of owners of this end so far, this process included. It is 1 for a link without a
    /// file.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn incarnation(&self) -> Result<u64, Stopped> {
        self.blocking().incarnation()
    }

    /// At a client, the server's login reply for the last connection; empty before the first one.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn login_reply(&self) -> Result<Bytes, Stopped> {
        self.blocking().login_reply()
    }

    /// Closes this end in good order: waits until all messages have gone out, and reports the end
    /// to the peer. Messages that the peer has not acknowledged stay in the file for the next
    /// owner. Without a file they are lost, so await [`wait_acked`](Self::wait_acked) first. If the
    /// link has no connection and some sent messages are unacknowledged, `close` waits for a
    /// connection.
    ///
    /// One of the runtime's blocking threads waits until the last bytes have gone out.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, the link is closed immediately, as
    /// [`Link::close`](crate::Link::close) does when its deadline passes.
    ///
    /// # Errors
    /// [`WaitError::Stopped`]. The link is closed even then.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime.
    pub async fn close(self) -> Result<(), WaitError> {
        shutdown::close(&self.handle).await
    }

    /// Ends this end without notifying the peer of an end, like
    /// [`Link::detach`](crate::Link::detach), on a blocking thread of the runtime. If the future is
    /// dropped, the thread goes on.
    ///
    /// # Errors
    /// [`Stopped::System`]: the file could not be written to the disk. The link is closed even
    /// then.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime.
    pub async fn detach(self) -> Result<(), Stopped> {
        shutdown::detach(&self.handle).await
    }
}

impl Handle {
    pub(super) async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message.len(), |room| room.copy_from_slice(message)).await
    }

    pub(super) fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.notices.act(|| self.link.try_send(message))
    }

    pub(super) async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut fill = Some(fill);
        let send = || {
            // `try_send_with` calls `fill` only if the link has room, so `fill` is called once at
            // most.
            let fill = |room: &mut [u8]| fill.take().into_iter().for_each(|fill| fill(room));
            match self.link.try_send_with(len, fill) {
                Ok(()) => Some(Ok(())),
                Err(TrySendError::Full) => None,
                Err(TrySendError::Never(error)) => Some(Err(error)),
            }
        };
        self.notices.until_done(send).await?
    }

    pub(super) fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.notices.act(|| self.link.try_send_with(len, fill))
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch::new(self.link.batch(), &self.notices)
    }

    pub(super) async fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.wait_for(|| self.try_recv()).await
    }

    pub(super) fn try_recv(&self) -> Result<Option<Message>, TryRecvError> {
        self.check_for_next()?;
        let received = self.notices.act(|| self.link.try_recv())?;
        Ok(received.map(|received| Message::new(received, Arc::clone(&self.notices))))
    }

    pub(super) async fn recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        let mut read = Some(read);
        let read = || {
            // `try_recv_with` calls `read` only if a message has arrived, so `read` is called once
            // at most.
            let read = |message: MessageView<'_>| read.take().map(|read| read(message));
            Ok(self.try_recv_with(read)?.flatten())
        };
        self.wait_for(read).await
    }

    pub(super) fn try_recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.check_for_next()?;
        let value = self.notices.act(|| self.link.try_recv_with(read))?;
        self.notices.acked();
        Ok(value)
    }

    /// Calls `receive` each time that messages may have arrived, until it returns a message, the
    /// end of the peer's stream, or an error.
    async fn wait_for<R>(
        &self,
        mut receive: impl FnMut() -> Result<Option<R>, TryRecvError>,
    ) -> Result<Option<R>, RecvError> {
        consume_budget().await;
        loop {
            // The future of a receiving call registers for notices before it checks for a message,
            // so that it misses no message between check and await.
            let notified = self.notices.messages.notified();
            match receive() {
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Stopped(stopped)) => return Err(stopped.into()),
                Ok(received) => return Ok(received),
            }
            self.shared().goes_on()?;
            notified.await;
        }
    }

    /// Returns `Ok` if a receiving call can return a message, or the end of the peer's stream,
    /// without a turn of the group.
    fn check_for_next(&self) -> Result<(), TryRecvError> {
        let seen = self.notices.observer.observe()?;
        let (is_attached, stopped) = (seen.snapshot.is_attached, seen.snapshot.stopped());
        if !is_attached && !seen.has_next && !seen.has_finished && stopped.is_none() {
            // If no message is there, this function returns. Otherwise the receiving call would
            // make a turn of the group, which is the driver task's job.
            return Err(TryRecvError::Empty);
        }
        Ok(())
    }

    pub(super) async fn wait_acked(&self) -> Result<(), WaitError> {
        let before = self.notices.observer.observe()?;
        let (epoch, tail) = (before.snapshot.epoch, before.tail);
        // When another epoch has begun, the messages of `epoch` are acknowledged or are in the
        // reports, so the wait ends.
        self.notices.until(|seen| seen.snapshot.acked >= tail || seen.snapshot.epoch != epoch).await
    }

    fn shared(&self) -> &GroupShared {
        &self.notices.shared
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.link.fmt(f)
    }
}
