// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traits that a library's program implements.
//!
//! They do *not* say how: a message is whatever the library publishes at once, and reads may ignore
//! message boundaries.

use std::future::Future;

use anyhow::{Result, ensure};

/// The writing half of a stream.
pub trait Sender: Send + 'static {
    /// Publishes one message; after it returns the library has taken the message.
    fn send(&mut self, message: &[u8]) -> impl Future<Output = Result<()>> + Send;
}

/// The reading half of a stream.
pub trait Receiver: Send + 'static {
    /// Appends 1 to `size_max` bytes and returns their number; 0 is the end of the stream.
    fn receive(
        &mut self,
        size_max: usize,
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Appends exactly `size` bytes.
    fn receive_exact(
        &mut self,
        size: usize,
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<()>> + Send {
        async move {
            let mut missing = size;
            while missing > 0 {
                let count = self.receive(missing, out).await?;
                ensure!(count > 0, "end of stream where {missing} bytes of {size} are missing");
                missing -= count;
            }
            Ok(())
        }
    }
}

/// A stream in both directions.
pub trait Conversation: Send + Sized + 'static {
    /// Its writing half.
    type Sender: Sender;
    /// Its reading half.
    type Receiver: Receiver;

    /// Splits it, for a task that sends and one that receives.
    fn split(self) -> (Self::Sender, Self::Receiver);

    /// Joins both halves.
    fn join(sender: Self::Sender, receiver: Self::Receiver) -> Self;

    /// Closes it in both directions.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// A connected pool of sessions.
pub trait Client: Send + Sync + 'static {
    /// Its streams.
    type Stream: Conversation;

    /// A stream, reused if there is one.
    fn open(&self) -> impl Future<Output = Result<Self::Stream>> + Send;

    /// Gives a stream back for reuse.
    fn put_back(&self, stream: Self::Stream) -> impl Future<Output = ()> + Send;

    /// Closes all sessions and returns the library's counters.
    fn close(self) -> impl Future<Output = Vec<(&'static str, u64)>> + Send;
}

/// A listening server.
pub trait Server: Send + 'static {
    /// Its streams.
    type Stream: Conversation;

    /// The next stream of any session.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Stream>> + Send;

    /// Sends the clients to the server that has taken our address, if the library supports that.
    /// Until they have moved, streams are accepted here.
    fn hot_restart(&mut self, epoch: u64) -> impl Future<Output = Result<()>> + Send + 'static;

    /// Closes all sessions and returns the library's counters.
    fn close(self) -> impl Future<Output = Vec<(&'static str, u64)>> + Send;
}
