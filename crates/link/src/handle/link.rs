// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link of the public interface, and its handle, which all objects that the application has of
//! one link share.
//!
//! ```text
//!   Link ── split ──▶ halves.rs ─▶ Handle ─▶ Endpoint
//!     └─────────────────────────────▲
//!   when the last of these is dropped: a client's link is closed, a server's stays with the server
//!
//!   sent_position     where the next message begins     ┐ both are in the link's memory, and so
//!   acked_position    where acknowledged messages end   ┘ in the file of an end that was killed
//! ```
//!
//! An application may store one of these positions before it sends, or before it handles a message.
//! After a restart it compares the link's present position with the stored one. If the position has
//! risen, the message was sent or acknowledged.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use partywall::{Address, AddressError};
use partywall_sys::biased::locking_nothing;

use crate::end::{Endpoint, Load, OwnedSink};
use crate::error::{
    AckError, RecvError, SendError, Stopped, SwitchError, TryRecvError, TrySendError, WaitError,
};
use crate::group::MemberId;
use crate::handle::batch::Batch;
use crate::handle::halves::{Receiver, Sender};
use crate::handle::message::{Message, Token};
use crate::handle::view::MessageView;
use crate::link_state::Event;
use crate::link_state::StaleEpoch;
use crate::status::{Stats, Status};
use crate::store::Key;
use crate::store::ReportSnapshot;

/// One end of a link: a stream of messages in each direction, which outlives connections and, if it
/// is kept in files, processes.
///
/// [`Client::connect`](crate::Client::connect), [`Server::accept`](crate::Server::accept) and
/// [`Server::open`](crate::Server::open) make links. Any thread may call any method at any time.
///
/// A connection is made and kept only while some thread blocks on a link of the group, in any
/// method that can wait, or polls the group. Operations do not fail when a connection ends:
/// [`status`](Self::status) and [`next_event`](Self::next_event) report connections.
///
/// Dropping a client's link closes it without waiting; see [`close`](Self::close). A server's link
/// stays open and attached until it is closed or the server is dropped, and can be opened again.
#[derive(Debug)]
pub struct Link {
    pub(crate) handle: Arc<Handle>,
}

/// The application's right to use a link, shared by its sender, its receiver and its messages. When
/// the last of these objects is dropped, the right ends, and the link is closed or returned to its
/// server.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) end: Arc<Endpoint>,
    /// Whether the link belongs to a server, and so stays open when this handle is dropped.
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

    /// Returns the object with the state of this end of the link, for an observer that polls the
    /// state. The observer may outlive this handle, and does not keep the link open.
    #[cfg(any(all(test, not(shuttle)), feature = "tokio"))]
    pub(crate) fn shared_end(&self) -> Arc<Endpoint> {
        Arc::clone(&self.handle.end)
    }

    /// Splits the link into its two directions, for threads that only send or only receive.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (Sender::new(Arc::clone(&self.handle)), Receiver::new(self.handle))
    }

    /// The three names of the link: those of its local end, its remote end, and the link itself.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.end().key()
    }

    /// The id of the link in its group, as [`Group::ready`](crate::Group::ready) returns it.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.end().id()
    }

    /// Sends a message; waits until the link has room for it. When the call returns, the message is
    /// in the link's memory, and stays there until the peer has acknowledged it. Of its bytes, the
    /// call sends as many as the network takes without waiting. The others are sent while some
    /// thread of the group waits; see [`wait_sent`](Self::wait_sent).
    ///
    /// # Errors
    /// [`SendError`] lists the reasons. A lost connection is not an error.
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.end().send_with(message.len(), |room| room.copy_from_slice(message), None)
    }

    /// Sends a message if the link has room now.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons.
    pub fn try_send(&self, message: &[u8]) -> Result<(), TrySendError> {
        self.end().try_send_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// Sends a message; waits only until `deadline` for the link to have room for it.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub fn send_deadline(&self, message: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.end().send_with(message.len(), |room| room.copy_from_slice(message), Some(deadline))
    }

    /// Sends a message of `len` bytes that `fill` writes; waits first until the link has room. This
    /// is the fastest way to send. `fill` writes a long message where it stays until it is
    /// acknowledged, and over shared memory the receiver copies the message from there. A short
    /// message is written into its record.
    ///
    /// `fill` must write every byte. The initial contents are unspecified, and may be parts of
    /// earlier messages of this end or of earlier owners of its file. A byte that `fill` does not
    /// write is sent as it was.
    ///
    /// The link is locked while `fill` runs, and all links of its [group](crate::Group) may have to
    /// wait for the link, so `fill` should only write. It must neither use nor drop a link, nor
    /// anything that links belong to, nor wait for a thread that does.
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
    /// Those of [`send`](Self::send); `fill` was then not called.
    ///
    /// # Panics
    /// If `fill` panics, or uses or drops a link. Then nothing is sent. The bytes that `fill` wrote
    /// may stay where the receiver could read them, until other messages overwrite them. A thread
    /// that uses a link while `fill` unwinds may be waited for endlessly.
    #[inline]
    pub fn send_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        self.end().send_with(len, alone(fill), None)
    }

    /// Sends a message that `fill` writes, like [`send_with`](Self::send_with), but only if the
    /// link has room now.
    ///
    /// # Errors
    /// [`TrySendError`] lists the reasons; `fill` was then not called.
    #[inline]
    pub fn try_send_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), TrySendError> {
        self.end().try_send_with(len, alone(fill))
    }

    /// Sends a message that `fill` writes, like [`send_with`](Self::send_with), but waits for room
    /// only until `deadline`.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    #[inline]
    pub fn send_with_deadline(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        deadline: Instant,
    ) -> Result<(), SendError> {
        self.end().send_with(len, alone(fill), Some(deadline))
    }

    /// Sends one message whose bytes are the concatenation of `parts`.
    ///
    /// # Errors
    /// [`SendError`] lists the reasons.
    pub fn send_parts(&self, parts: &[&[u8]]) -> Result<(), SendError> {
        self.end().send_driver().send(Load::Message(parts), None)
    }

    /// Begins a batch of messages. The link sends either all messages of a batch or none.
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

    /// Receives the next message; waits until one has arrived. `None` means that the peer closed
    /// its end in good order and every message that it had sent was received. The link remains
    /// usable: another call waits until the peer has opened its end again and sends.
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
    /// A peer that was killed or cannot be reached has not finished, and the call waits for the
    /// peer. Nor has a peer finished that closed its end before all its messages had gone out: the
    /// rest arrives when the peer opens its end again. Each time that the peer has finished, one
    /// call returns `None`, unless the peer has come back and sent more before everything was
    /// received.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.handle.recv(None)
    }

    /// Receives the next message if one has arrived. `None` means that the peer closed its end in
    /// good order, as for [`recv`](Self::recv).
    ///
    /// # Errors
    /// [`TryRecvError`] lists the reasons.
    pub fn try_recv(&self) -> Result<Option<Message>, TryRecvError> {
        self.handle.try_recv()
    }

    /// Receives the next message, and waits for one only until `deadline`. `None` means the same as
    /// for [`recv`](Self::recv): the peer closed its end in good order.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<Option<Message>, RecvError> {
        self.handle.recv(Some(deadline))
    }

    /// Passes the next message to `read`, in the link's own memory; waits for a message first. When
    /// `read` returns, the message and all that were received before it are acknowledged. This is
    /// the fastest way to receive, if the work on a message is done once it was read.
    ///
    /// Work that must not be lost with this process belongs into `read`. If the process dies in
    /// `read`, the next owner receives the message again, as one more
    /// [attempt](crate::Message::attempt). When `recv_with` returns the value of `read`, the
    /// message is already acknowledged. Where that is too early, use [`recv`](Self::recv), which
    /// returns a message that the application acknowledges. `None` means the same as for `recv`;
    /// `read` was then not called.
    ///
    /// If `read` panics, the message is not acknowledged and is received next again, as the same
    /// attempt, because this process lives. To skip the message, receive and acknowledge it.
    ///
    /// The link is locked while `read` runs, and all links of its [group](crate::Group) may have to
    /// wait for the link, past their deadlines and in calls that otherwise do not wait. So `read`
    /// should do little. It must neither use nor drop a link, nor anything that links belong to,
    /// nor wait for a thread that does. With [`Delivery::AtMostOnce`](crate::Delivery) the message
    /// is acknowledged first, and `read` gets a copy without any lock.
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
    /// [`RecvError`] lists the reasons; `read` was then not called.
    ///
    /// # Panics
    /// If `read` panics, or, except with `AtMostOnce`, uses or drops a link. A thread that uses a
    /// link while `read` unwinds may be waited for endlessly.
    #[inline]
    pub fn recv_with<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
    ) -> Result<Option<R>, RecvError> {
        let end = self.end();
        end.recv_with(None, |bytes, info| read(MessageView::new(bytes, info, end)))
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
        let end = self.end();
        end.try_recv_with(|bytes, info| read(MessageView::new(bytes, info, end)))
    }

    /// Passes the next message to `read`, like [`recv_with`](Self::recv_with), but waits only until
    /// `deadline`.
    ///
    /// # Errors
    /// [`RecvError`] lists the reasons.
    pub fn recv_with_deadline<R>(
        &self,
        read: impl FnOnce(MessageView<'_>) -> R,
        deadline: Instant,
    ) -> Result<Option<R>, RecvError> {
        let end = self.end();
        end.recv_with(Some(deadline), |bytes, info| read(MessageView::new(bytes, info, end)))
    }

    /// Acknowledges the message that `token` names and all messages received before it.
    ///
    /// # Errors
    /// [`AckError`] lists the reasons.
    pub fn ack_to(&self, token: Token) -> Result<(), AckError> {
        self.end().receive_driver().ack_to(&token.0)
    }

    /// Makes this end deliver again every message that the application received and did not
    /// acknowledge: the next receive returns the oldest of them.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn rewind(&self) -> Result<(), Stopped> {
        self.end().receive_driver().rewind()
    }

    /// Waits until the peer has acknowledged everything that was sent before this call, or an epoch
    /// began. Messages that an epoch drops are in the [reports](Self::reports).
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub fn wait_acked(&self, deadline: Instant) -> Result<(), WaitError> {
        self.end().send_driver().wait_acked(Some(deadline))
    }

    /// Waits until everything that was sent before this call is in the system's buffers, or in
    /// memory that the peer reads, or until an epoch began. The call is for a thread that
    /// afterwards does other work and uses no link of the group. Without this call, bytes that the
    /// network did not take wait until some thread uses the group again. Whether the peer has
    /// received the messages is known only after [`wait_acked`](Self::wait_acked).
    ///
    /// # Errors
    /// [`WaitError`] lists the reasons.
    pub fn wait_sent(&self, deadline: Instant) -> Result<(), WaitError> {
        self.end().send_driver().wait_sent(Some(deadline))
    }

    /// Number of bytes of the sent stream that the peer has not acknowledged. They contain the
    /// unacknowledged messages, and 16 to 103 further bytes for each.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn unacked_bytes(&self) -> Result<u64, Stopped> {
        self.end().send_driver().unacked_bytes()
    }

    /// Waits until the link has a connection over which messages flow (until it is attached).
    ///
    /// # Errors
    /// [`WaitError`], with the error text of the last attempt.
    pub fn wait_attached(&self, deadline: Instant) -> Result<(), WaitError> {
        self.end().waiter().wait_attached(Some(deadline))
    }

    /// Begins a new epoch with this number, such as a trading day: both directions of the link are
    /// then empty. Unacknowledged messages are dropped, and both ends report them.
    ///
    /// # Errors
    /// [`EpochError`] lists the reasons.
    pub fn begin_epoch(&self, epoch: u64) -> Result<(), EpochError> {
        Ok(self.end().connections().begin_epoch(epoch)??)
    }

    /// The number of this end's epoch; 0 before the first call of
    /// [`begin_epoch`](Self::begin_epoch) at either end.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn epoch(&self) -> Result<u64, Stopped> {
        self.end().with_core(|core| core.epoch())
    }

    /// Returns the oldest event, such as a lost connection, that the application has not taken yet,
    /// if there is one. The link keeps at most the first thousand of these events.
    pub fn try_event(&self) -> Option<Event> {
        self.end().receive_driver().try_event()
    }

    /// Returns the oldest event that the application has not taken yet; waits for one until
    /// `deadline`. An event is returned once, to any one of the threads that wait for it.
    ///
    /// # Errors
    /// [`WaitError`], with the error text of the last attempt to attach. Events from before the
    /// link stopped come first, unless it was closed.
    pub fn next_event(&self, deadline: Instant) -> Result<Event, WaitError> {
        self.end().waiter().next_event(Some(deadline))
    }

    /// Returns all events that the application has not taken yet, oldest first.
    pub fn events(&self) -> Vec<Event> {
        std::iter::from_fn(|| self.try_event()).collect()
    }

    /// Returns the reports of all ranges of messages that were skipped or dropped, oldest first.
    /// The link keeps them until [`acknowledge_reports`](Self::acknowledge_reports).
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn reports(&self) -> Result<Vec<ReportSnapshot>, Stopped> {
        self.end().with_core(|core| core.reports().iter().map(ReportSnapshot::from).collect())
    }

    /// Removes `reports`, which an earlier call of [`reports`](Self::reports) returned. Since that
    /// call, the link may have merged one of them into a larger report, because it had no more
    /// room. A merged report is not removed: it stays as part of the larger one.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn acknowledge_reports(&self, reports: &[ReportSnapshot]) -> Result<(), Stopped> {
        let mut seen = reports.to_vec();
        let mut is_seen = |report: &ReportSnapshot| {
            let found = seen.iter().position(|seen| seen == report);
            found.map(|index| seen.swap_remove(index)).is_some()
        };
        self.end().with_core(|core| core.reports_seen(|report| is_seen(&report.into()), 0))
    }

    /// Number of reports that were dropped because the link had no room for more reports.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn reports_dropped(&self) -> Result<u64, Stopped> {
        self.end().with_core(|core| core.reports_dropped())
    }

    /// Subtracts `count` from the number that [`reports_dropped`](Self::reports_dropped) returns,
    /// because the application has noted so many dropped reports.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn acknowledge_dropped_reports(&self, count: u64) -> Result<(), Stopped> {
        self.end().with_core(|core| core.reports_seen(|_| false, count))
    }

    /// Number of processes that have owned this end so far, this process included. For a link
    /// without a file the number is 1.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn incarnation(&self) -> Result<u64, Stopped> {
        self.end().with_core(|core| core.provenance().incarnation.0)
    }

    /// At a client, the server's reply to the client's login on the most recent connection; empty
    /// before the first connection.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn login_reply(&self) -> Result<Bytes, Stopped> {
        self.end().with_core(|core| Bytes::copy_from_slice(core.login()))
    }

    /// Position in the sent stream at which the next message will begin, or a lower position close
    /// to that. After a restart the position is the same, unless a message was sent in between.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn sent_position(&self) -> Result<StreamPosition, Stopped> {
        let (stream, end) = self.end().with_core(|core| core.sent_to())?;
        Ok(StreamPosition { stream: stream.0.get(), position: end.0 })
    }

    /// Position up to which this end has acknowledged received messages; `None` before this end has
    /// received a stream in this epoch.
    ///
    /// # Errors
    /// [`Stopped`] lists the reasons.
    pub fn acked_position(&self) -> Result<Option<StreamPosition>, Stopped> {
        let acked_offset = self.end().with_core(|core| core.acked_offset())?;
        Ok(acked_offset.map(|acked_offset| StreamPosition {
            stream: acked_offset.stream.0.get(),
            position: acked_offset.position.0,
        }))
    }

    /// Switches a client's link to another `address` of the same server, for example from TCP to
    /// shared memory or back. The call returns at once. Messages flow over the present connection
    /// until the next one is attached. As long as no server answers at the new address, the attempt
    /// is repeated and the present connection stays.
    ///
    /// [`status`](Self::status) returns the present transport, and [`try_event`](Self::try_event)
    /// the results of attempts.
    ///
    /// A link in [`Storage::Memory`](crate::Storage::Memory) can use shared memory only if the
    /// address with which it was opened was that of a Unix socket.
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
    /// #     // A link works while a thread waits for it.
    /// #     while !is_done.load(std::sync::atomic::Ordering::Acquire) {
    /// #         let until = std::time::Instant::now() + std::time::Duration::from_millis(10);
    /// #         let _ = link.recv_deadline(until);
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
    /// [`SwitchError`] lists the reasons. An address at which no server answers is no error.
    pub fn switch_to<A>(&self, address: A) -> Result<(), SwitchError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        let address = address.try_into().map_err(AddressError::from)?;
        self.end().dial().switch_to(address)
    }

    /// The present status of the link: whether it is attached, and if not, why.
    #[must_use]
    pub fn status(&self) -> Status {
        self.end().status()
    }

    /// Counters of this end, such as messages sent, since this process opened the link.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.end().stats()
    }

    /// Ends this end without telling the peer that it has finished: the peer waits for this end to
    /// be opened again. Messages that the peer has not acknowledged stay in the file for the next
    /// owner. The link file is written to the disk as [`close`](Self::close) does it. If the file
    /// was adopted after a reboot, the next owner gets the events about the adoption again, whether
    /// this owner's application has taken them or not.
    ///
    /// # Errors
    /// [`Stopped::System`]: the file could not be written to the disk. The link is closed even
    /// then.
    pub fn detach(self) -> Result<(), Stopped> {
        self.end().shutdown().detach()
    }

    /// Closes this end in good order: all messages go out, and the peer is notified of the end.
    /// Messages that the peer has not acknowledged stay in the file for the next owner. Without a
    /// file they are lost, so call [`wait_acked`](Self::wait_acked) first.
    ///
    /// The link file is then written to the disk, which may last beyond `deadline`. Only a file
    /// that was closed like this is trusted after a reboot; dropping a link does not write to the
    /// disk.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`]: not all messages went out before `deadline`. [`Stopped::System`]:
    /// the file could not be written to the disk. The link is closed even then.
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

/// A position in one stream of a link: a message begins or ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamPosition {
    /// The id of the stream: a random number, never 0. A new epoch and a new link file each begin a
    /// stream with another id.
    pub stream: u64,
    /// Number of bytes that the stream has before this position, as its messages take them in the
    /// ring: with headers and padding. The position rises with each message.
    pub position: u64,
}

/// Reason why an epoch was not begun.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// The number of the new epoch is not higher than that of the present one.
    #[error(transparent)]
    NotHigher(#[from] StaleEpoch),
    /// The link has stopped in this process, for the reason in the field.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Wraps `fill`, code of the application that runs while the link is locked. If `fill` uses a link,
/// it panics instead of waiting for the lock endlessly.
#[inline]
pub(crate) fn alone(fill: impl FnOnce(&mut [u8])) -> impl FnOnce(&mut [u8]) {
    |room| locking_nothing(|| fill(room))
}
