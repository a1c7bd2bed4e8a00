// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application has of a link: all that may wait. What only asks is in `facts.rs`, halves are in `halves.rs`.

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
    EpochError, Event, Key, LinkId, MessageView, Observed, Observer, RecvError, ReportSnapshot,
    SendError, Stats, Status, Stopped, StreamPosition, SwitchError, Token, TryRecvError,
    TrySendError, WaitError,
};
use partywall::{Address, AddressError};

/// One end of a pair of streams that outlive connections, and their processes if they are kept in files. It is a
/// [`Link`](crate::Link) whose operations wait as futures.
///
/// Made by [`Client::connect`](super::Client::connect), [`Server::accept`](super::Server::accept) and
/// [`Server::open`](super::Server::open). Any number of tasks may use it at the same time; share it by [`Arc`], or
/// [`split`](Self::split) it.
///
/// Connections come and go without a word; [`status`](Self::status) and [`next_event`](Self::next_event) tell of them.
///
/// Dropping the link of a client closes it, without waiting: see [`close`](Self::close). That of a server stays open and attached,
/// until it is closed or the server is dropped, and can be had again.
#[derive(Debug)]
pub struct Link {
    pub(super) handle: Arc<Handle>,
}

/// What all handles of one link share. The order is that of dropping: the task looks after the link has been let go.
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

    /// The two directions, for tasks that do one of the two.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (Sender::new(Arc::clone(&self.handle)), Receiver::new(self.handle))
    }

    /// Sends a message: it is in the link's memory when this is ready, and stays there until the peer has consumed it. Waits for
    /// room.
    ///
    /// Cancel-safe: dropped before it is ready, nothing was sent.
    ///
    /// # Errors
    /// See [`SendError`]. A lost connection is none.
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.handle.send(message).await
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// See [`TrySendError`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.handle.try_send(message)
    }

    /// Sends a message of `len` bytes that `fill` writes, every one of them; waits for room first. What `fill` may do, and what it finds:
    /// see [`Link::send_with`](crate::Link::send_with).
    ///
    /// # Errors
    /// As [`send`](Self::send); `fill` was then not called.
    ///
    /// # Panics
    /// If `fill` does, or uses or drops a link.
    pub async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.handle.send_with(len, fill).await
    }

    /// As [`send_with`](Self::send_with), if there is room now.
    ///
    /// # Errors
    /// See [`TrySendError`]; `fill` was then not called.
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// Begins a batch: messages that are sent at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    /// Receives the next message; waits for one. Of several tasks that wait, any may have it. `None`: the peer closed its end in
    /// good order, and everything that it had sent was received; see [`Link::recv`](crate::Link::recv).
    ///
    /// Cancel-safe: dropped before it is ready, it took nothing.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub async fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.handle.recv().await
    }

    /// Receives the next message if there is one now. `None` is as of [`recv`](Self::recv).
    ///
    /// # Errors
    /// See [`TryRecvError`].
    pub fn try_recv(&self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// Has `read` read the next message in the link's own memory, and consumes it, and all before it that were received, when `read` returns; waits for
    /// one first. What `read` may do, and what becomes of a message that it panics over: see [`Link::recv_with`](crate::Link::recv_with).
    ///
    /// Cancel-safe: dropped before it is ready, it took nothing, and `read` was not called.
    ///
    /// # Errors
    /// See [`RecvError`]; `read` was then not called.
    ///
    /// # Panics
    /// If `read` does, or uses or drops a link.
    pub async fn recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        self.handle.recv_with(read).await
    }

    /// As [`recv_with`](Self::recv_with), if there is a message now.
    ///
    /// # Errors
    /// See [`TryRecvError`]; `read` was then not called.
    pub fn try_recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// Consumes the message that `token` names and all before it, of those that were received.
    ///
    /// # Errors
    /// See [`AckError`](crate::AckError).
    pub fn ack_to(&self, token: Token) -> Result<(), crate::AckError> {
        self.handle.notices.act_on_received(|| self.handle.link.ack_to(token))
    }

    /// Has everything that was received and not committed received again.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn rewind(&self) -> Result<(), Stopped> {
        self.handle.notices.act_on_received(|| self.handle.link.rewind())
    }

    /// Goes over to another address of the same server while messages flow: see
    /// [`switch_to`](crate::Link::switch_to) there.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn switch_to<A>(&self, address: A) -> Result<(), SwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        self.handle.notices.act(|| self.handle.link.switch_to(address))
    }

    /// Waits until the peer has consumed everything that was sent before this was first polled, or an epoch began: what an epoch
    /// leaves behind is in the [reports](Self::reports).
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Errors
    /// [`WaitError::Stopped`].
    pub async fn wait_acked(&self) -> Result<(), WaitError> {
        self.handle.flush().await
    }

    /// Waits until records flow.
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Errors
    /// [`WaitError::Stopped`]. What keeps it from attaching is told by [`next_event`](Self::next_event).
    pub async fn wait_attached(&self) -> Result<(), WaitError> {
        let flows =
            |look: &Observed| look.snapshot.is_attached && look.snapshot.stopped().is_none();
        self.handle.notices.until(flows).await
    }

    /// What happened next; waits until something does. Each event is told once, to any of those who wait. After a thousand that
    /// nobody asked for no more are kept.
    ///
    /// Cancel-safe: dropped before it is ready, it took nothing.
    ///
    /// # Errors
    /// See [`Stopped`]; events that were told before the link stopped come first, unless it was closed.
    pub async fn next_event(&self) -> Result<Event, Stopped> {
        let notices = &self.handle.notices;
        consume_budget().await;
        loop {
            let told = notices.events.notified();
            // Before the event is looked for: it is told before the link stops.
            let stopped = notices.observer.observe()?.snapshot.stopped();
            if let Some(event) = self.try_event() {
                return Ok(event);
            }
            stopped.map_or(Ok(()), Err)?;
            notices.shared.goes_on()?;
            told.await;
        }
    }

    /// The three names.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.blocking().key()
    }

    /// Which link of its group it is.
    #[must_use]
    pub fn id(&self) -> LinkId {
        self.blocking().id()
    }

    /// How it stands at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.blocking().status()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.blocking().stats()
    }

    /// Bytes of the stream that were sent and are not yet known to be consumed: messages, with 16 to 103 bytes for each.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn unconsumed_bytes(&self) -> Result<u64, Stopped> {
        self.blocking().unconsumed_bytes()
    }

    /// Where the next message that is sent will begin: see [`sent_position`](crate::Link::sent_position) there.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn sent_position(&self) -> Result<StreamPosition, Stopped> {
        self.blocking().sent_position()
    }

    /// Up to where what is received was committed; `None` before this end has met a stream of this epoch.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acked_position(&self) -> Result<Option<StreamPosition>, Stopped> {
        self.blocking().acked_position()
    }

    /// Begins an epoch: both directions are empty again. What was not consumed is dropped, and reported at both ends.
    ///
    /// # Errors
    /// [`EpochError`].
    pub fn begin_epoch(&self, epoch: u64) -> Result<(), EpochError> {
        self.handle.notices.act(|| self.blocking().begin_epoch(epoch))
    }

    /// The epoch that this end is in; 0 before any was begun.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn epoch(&self) -> Result<u64, Stopped> {
        self.blocking().epoch()
    }

    /// What happened next, if anything did that was not yet told.
    pub fn try_event(&self) -> Option<Event> {
        self.blocking().try_event()
    }

    /// What happened and was not yet told.
    pub fn events(&self) -> Vec<Event> {
        self.blocking().events()
    }

    /// What was skipped or dropped, each range once, oldest first. It is kept with the link until
    /// [`acknowledge_reports`](Self::acknowledge_reports).
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn reports(&self) -> Result<Vec<ReportSnapshot>, Stopped> {
        self.blocking().reports()
    }

    /// These were taken notice of, as [`reports`](Self::reports) gave them, and need not be kept. One that has become part of a larger
    /// one meanwhile, because there was no more room, stays with that one.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acknowledge_reports(&self, reports: &[ReportSnapshot]) -> Result<(), Stopped> {
        self.blocking().acknowledge_reports(reports)
    }

    /// How many more reports there were, for which there was no room.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn reports_dropped(&self) -> Result<u64, Stopped> {
        self.blocking().reports_dropped()
    }

    /// So many of those that found no room were taken notice of.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn acknowledge_dropped_reports(&self, count: u64) -> Result<(), Stopped> {
        self.blocking().acknowledge_dropped_reports(count)
    }

    /// How many owners this end has had, this one included: always 1 if it is not kept in a file.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn incarnation(&self) -> Result<u64, Stopped> {
        self.blocking().incarnation()
    }

    /// Clients: what the server's application said with the last connection; empty before there was one.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn login_reply(&self) -> Result<Bytes, Stopped> {
        self.blocking().login_reply()
    }

    /// Closes this end in good order: waits until all that was sent has gone out, and tells the peer. What it has not consumed stays
    /// in a file for the next time; without a file it is gone, so [`wait_acked`](Self::wait_acked) first. As long as there is no connection, it
    /// waits for one, unless all that was sent is consumed.
    ///
    /// One of the runtime's blocking threads waits for the last bytes to go out.
    ///
    /// Cancel-safe: dropped before it is ready, the link is closed at once, as [`Link::close`](crate::Link::close) does at its
    /// deadline.
    ///
    /// # Errors
    /// [`WaitError::Stopped`]. The link is closed in any case.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn close(self) -> Result<(), WaitError> {
        shutdown::close(&self.handle).await
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
            // It is called where there is room, and so once.
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
        self.look_for_next()?;
        let received = self.notices.act(|| self.link.try_recv())?;
        Ok(received.map(|received| Message::new(received, Arc::clone(&self.notices))))
    }

    pub(super) async fn recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        let mut read = Some(read);
        let read = || {
            // It is called for the message that is there, and so once.
            let read = |message: MessageView<'_>| read.take().map(|read| read(message));
            Ok(self.try_recv_with(read)?.flatten())
        };
        self.wait_for(read).await
    }

    pub(super) fn try_recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, TryRecvError> {
        self.look_for_next()?;
        let value = self.notices.act(|| self.link.try_recv_with(read))?;
        self.notices.committed();
        Ok(value)
    }

    /// Waits until `receive` finds a message.
    async fn wait_for<R>(
        &self,
        mut receive: impl FnMut() -> Result<Option<R>, TryRecvError>,
    ) -> Result<Option<R>, RecvError> {
        consume_budget().await;
        loop {
            // It is told from here on, before it is looked for.
            let told = self.notices.messages.notified();
            match receive() {
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Stopped(stopped)) => return Err(stopped.into()),
                Ok(received) => return Ok(received),
            }
            self.shared().goes_on()?;
            told.await;
        }
    }

    /// Whether it is worth to ask the link itself.
    fn look_for_next(&self) -> Result<(), TryRecvError> {
        let look = self.notices.observer.observe()?;
        let (is_attached, stopped) = (look.snapshot.is_attached, look.snapshot.stopped());
        if !is_attached && !look.has_next && !look.has_finished && stopped.is_none() {
            // It would make a turn of the whole group, which is the task's to make.
            return Err(TryRecvError::Empty);
        }
        Ok(())
    }

    pub(super) async fn flush(&self) -> Result<(), WaitError> {
        let before = self.notices.observer.observe()?;
        let (epoch, tail) = (before.snapshot.epoch, before.tail);
        // What was sent in an epoch that is over is consumed, or in the reports.
        self.notices.until(|look| look.snapshot.acked >= tail || look.snapshot.epoch != epoch).await
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
