// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application has of a link: all that may wait. What only asks is in `facts.rs`, halves are in `halves.rs`.

use std::sync::Arc;

use tokio::task::coop::consume_budget;

use super::batch::LinkBatch;
use super::closing;
use super::group::{Hold, Shared};
use super::halves::{LinkReceiver, LinkSender};
use super::message::LinkMessage;
use super::news::News;
use crate::{
    LinkEvent, LinkMessageView, LinkRecvError, LinkSendError, LinkStopped, LinkSwitchError,
    LinkToken, LinkTryRecvError, LinkTrySendError, LinkWaitError, Look, Watched,
};
use partywall::{Address, AddressError};

/// One end of a pair of streams that outlive connections, and their processes if they are kept in files. It is a
/// [`Link`](crate::Link) whose operations wait as futures.
///
/// Made by [`LinkClient::connect`](super::LinkClient::connect), [`LinkServer::accept`](super::LinkServer::accept) and
/// [`LinkServer::open`](super::LinkServer::open). Any number of tasks may use it at the same time; share it by [`Arc`], or
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
    pub(super) news: Arc<News>,
    _hold: Hold,
}

impl Link {
    pub(super) fn new(link: crate::Link, hold: Hold) -> Self {
        let news = hold.shared.news_of(Watched::new(&link));
        Self { handle: Arc::new(Handle { link, news, _hold: hold }) }
    }

    /// The two directions, for tasks that do one of the two.
    #[must_use]
    pub fn split(self) -> (LinkSender, LinkReceiver) {
        (LinkSender::new(Arc::clone(&self.handle)), LinkReceiver::new(self.handle))
    }

    /// Sends a message: it is in the link's memory when this is ready, and stays there until the peer has consumed it. Waits for
    /// room.
    ///
    /// Cancel-safe: dropped before it is ready, nothing was sent.
    ///
    /// # Errors
    /// See [`LinkSendError`]. A lost connection is none.
    pub async fn send(&self, message: &[u8]) -> Result<(), LinkSendError> {
        self.handle.send(message).await
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// See [`LinkTrySendError`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), LinkTrySendError> {
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
    ) -> Result<(), LinkSendError> {
        self.handle.send_with(len, fill).await
    }

    /// As [`send_with`](Self::send_with), if there is room now.
    ///
    /// # Errors
    /// See [`LinkTrySendError`]; `fill` was then not called.
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkTrySendError> {
        self.handle.try_send_with(len, fill)
    }

    /// Begins a batch: messages that are sent at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use partywall_link::{LinkConfig, Storage};
    /// # use partywall_link::tokio::LinkClient;
    /// # let client = LinkClient::new(Storage::Memory, "alice", LinkConfig::default())?;
    /// # let link = client.connect("unix:/nowhere", "bob", "orders")?;
    /// let mut batch = link.batch();
    /// batch.push(b"debit 5").push(b"credit 5");
    /// batch.publish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self) -> LinkBatch<'_> {
        self.handle.batch()
    }

    /// The next message; waits for one. Of several tasks that wait, any may have it.
    ///
    /// Cancel-safe: dropped before it is ready, it took nothing.
    ///
    /// # Errors
    /// See [`LinkRecvError`].
    pub async fn recv(&self) -> Result<LinkMessage, LinkRecvError> {
        self.handle.recv().await
    }

    /// The next message if there is one now.
    ///
    /// # Errors
    /// See [`LinkTryRecvError`].
    pub fn try_recv(&self) -> Result<LinkMessage, LinkTryRecvError> {
        self.handle.try_recv()
    }

    /// Has `read` read the next message in the link's own memory, and consumes it, and all before it that were received, when `read` returns; waits for
    /// one first. What `read` may do, and what becomes of a message that it panics over: see [`Link::recv_with`](crate::Link::recv_with).
    ///
    /// Cancel-safe: dropped before it is ready, it took nothing, and `read` was not called.
    ///
    /// # Errors
    /// See [`LinkRecvError`]; `read` was then not called.
    ///
    /// # Panics
    /// If `read` does, or uses or drops a link.
    pub async fn recv_with<R>(
        &self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkRecvError> {
        self.handle.recv_with(read).await
    }

    /// As [`recv_with`](Self::recv_with), if there is a message now.
    ///
    /// # Errors
    /// See [`LinkTryRecvError`]; `read` was then not called.
    pub fn try_recv_with<R>(
        &self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkTryRecvError> {
        self.handle.try_recv_with(read)
    }

    /// Consumes the message that `token` names and all before it, of those that were received.
    ///
    /// # Errors
    /// See [`LinkCommitError`](crate::LinkCommitError).
    pub fn commit_to(&self, token: LinkToken) -> Result<(), crate::LinkCommitError> {
        self.handle.news.act_on_received(|| self.handle.link.commit_to(token))
    }

    /// Has everything that was received and not committed received again.
    ///
    /// # Errors
    /// See [`LinkStopped`].
    pub fn rewind(&self) -> Result<(), LinkStopped> {
        self.handle.news.act_on_received(|| self.handle.link.rewind())
    }

    /// Goes over to another address of the same server while messages flow: see
    /// [`switch_to`](crate::Link::switch_to) there.
    ///
    /// # Errors
    /// See [`LinkSwitchError`].
    pub fn switch_to<A>(&self, address: A) -> Result<(), LinkSwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        self.handle.news.act(|| self.handle.link.switch_to(address))
    }

    /// Waits until the peer has consumed everything that was sent before this was first polled, or an epoch began: what an epoch
    /// leaves behind is in the [reports](Self::reports).
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Errors
    /// [`LinkWaitError::Stopped`].
    pub async fn flush(&self) -> Result<(), LinkWaitError> {
        self.handle.flush().await
    }

    /// Waits until records flow.
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Errors
    /// [`LinkWaitError::Stopped`]. What keeps it from attaching is told by [`next_event`](Self::next_event).
    pub async fn wait_attached(&self) -> Result<(), LinkWaitError> {
        let flows = |look: &Look| look.standing.is_attached && look.standing.stopped().is_none();
        self.handle.news.until(flows).await
    }

    /// What happened next; waits until something does. Each event is told once, to any of those who wait. After a thousand that
    /// nobody asked for no more are kept.
    ///
    /// Cancel-safe: dropped before it is ready, it took nothing.
    ///
    /// # Errors
    /// See [`LinkStopped`]; events that were told before the link stopped come first, unless it was closed.
    pub async fn next_event(&self) -> Result<LinkEvent, LinkStopped> {
        let news = &self.handle.news;
        consume_budget().await;
        loop {
            let told = news.events.notified();
            // Before the event is looked for: it is told before the link stops.
            let stopped = news.watched.look()?.standing.stopped();
            if let Some(event) = self.try_event() {
                return Ok(event);
            }
            stopped.map_or(Ok(()), Err)?;
            news.shared.goes_on()?;
            told.await;
        }
    }

    /// Closes this end in good order: waits until all that was sent has gone out, and tells the peer. What it has not consumed stays
    /// in a file for the next time; without a file it is gone, so [`flush`](Self::flush) first. As long as there is no connection, it
    /// waits for one, unless all that was sent is consumed.
    ///
    /// One of the runtime's blocking threads waits for the last bytes to go out.
    ///
    /// Cancel-safe: dropped before it is ready, the link is closed at once, as [`Link::close`](crate::Link::close) does at its
    /// deadline.
    ///
    /// # Errors
    /// [`LinkWaitError::Stopped`]. The link is closed in any case.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn close(self) -> Result<(), LinkWaitError> {
        closing::close(&self.handle).await
    }
}

impl Handle {
    pub(super) async fn send(&self, message: &[u8]) -> Result<(), LinkSendError> {
        self.send_with(message.len(), |room| room.copy_from_slice(message)).await
    }

    pub(super) fn try_send(&self, message: &[u8]) -> Result<(), LinkTrySendError> {
        self.news.act(|| self.link.try_send(message))
    }

    pub(super) async fn send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkSendError> {
        let mut fill = Some(fill);
        let send = || {
            // It is called where there is room, and so once.
            let fill = |room: &mut [u8]| fill.take().into_iter().for_each(|fill| fill(room));
            match self.link.try_send_with(len, fill) {
                Ok(()) => Some(Ok(())),
                Err(LinkTrySendError::Full) => None,
                Err(LinkTrySendError::Never(error)) => Some(Err(error)),
            }
        };
        self.news.until_done(send).await?
    }

    pub(super) fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkTrySendError> {
        self.news.act(|| self.link.try_send_with(len, fill))
    }

    pub(super) fn batch(&self) -> LinkBatch<'_> {
        LinkBatch::new(self.link.batch(), &self.news)
    }

    pub(super) async fn recv(&self) -> Result<LinkMessage, LinkRecvError> {
        self.wait_for(|| self.try_recv()).await
    }

    pub(super) fn try_recv(&self) -> Result<LinkMessage, LinkTryRecvError> {
        self.look_for_next()?;
        let received = self.news.act(|| self.link.try_recv());
        Ok(LinkMessage::new(received?, Arc::clone(&self.news)))
    }

    pub(super) async fn recv_with<R>(
        &self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkRecvError> {
        let mut read = Some(read);
        let read = || {
            // It is called for the message that is there, and so once.
            let read = |message: LinkMessageView<'_>| read.take().map(|read| read(message));
            self.try_recv_with(read).and_then(|value| value.ok_or(LinkTryRecvError::Empty))
        };
        self.wait_for(read).await
    }

    pub(super) fn try_recv_with<R>(
        &self,
        read: impl FnOnce(LinkMessageView<'_>) -> R,
    ) -> Result<R, LinkTryRecvError> {
        self.look_for_next()?;
        let value = self.news.act(|| self.link.try_recv_with(read))?;
        self.news.committed();
        Ok(value)
    }

    /// Waits until `receive` finds a message.
    async fn wait_for<R>(
        &self,
        mut receive: impl FnMut() -> Result<R, LinkTryRecvError>,
    ) -> Result<R, LinkRecvError> {
        consume_budget().await;
        loop {
            // It is told from here on, before it is looked for.
            let told = self.news.messages.notified();
            match receive() {
                Err(LinkTryRecvError::Empty) => {}
                Err(LinkTryRecvError::Stopped(stopped)) => return Err(stopped.into()),
                Ok(received) => return Ok(received),
            }
            self.shared().goes_on()?;
            told.await;
        }
    }

    /// Whether it is worth to ask the link itself.
    fn look_for_next(&self) -> Result<(), LinkTryRecvError> {
        let look = self.news.watched.look()?;
        let (is_attached, stopped) = (look.standing.is_attached, look.standing.stopped());
        if !is_attached && !look.has_next && stopped.is_none() {
            // It would make a turn of the whole group, which is the task's to make.
            return Err(LinkTryRecvError::Empty);
        }
        Ok(())
    }

    pub(super) async fn flush(&self) -> Result<(), LinkWaitError> {
        let before = self.news.watched.look()?;
        let (epoch, tail) = (before.standing.epoch, before.tail);
        // What was sent in an epoch that is over is consumed, or in the reports.
        self.news.until(|look| look.standing.acked >= tail || look.standing.epoch != epoch).await
    }

    fn shared(&self) -> &Shared {
        &self.news.shared
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.link.fmt(f)
    }
}
