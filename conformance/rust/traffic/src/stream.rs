// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traits that the program of each library implements.
//!
//! The traits leave the meaning of a message to the library: a message is the bytes that the
//! library publishes in one step. Reads may ignore message boundaries.

use std::future::Future;

use anyhow::{Result, ensure};

/// The writing half of a stream, as a library's program implements it.
pub trait Sender: Send + 'static {
    /// Publishes one message; when the future completes, the shmipc library has taken it.
    fn send(&mut self, message: &[u8]) -> impl Future<Output = Result<()>> + Send;
}

/// The reading half of a stream, as a library's program implements it.
pub trait Receiver: Send + 'static {
    /// Appends received bytes to a buffer, at least one and at most `size_max`, and returns how
    /// many; 0 means the end of the stream.
    fn receive(
        &mut self,
        size_max: usize,
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Appends exactly `size` received bytes to the given buffer.
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

/// A stream with a writing and a reading half, as the conformance traffic uses it.
pub trait Conversation: Send + Sized + 'static {
    /// The type of the stream's writing half.
    type Sender: Sender;
    /// The type of the stream's reading half.
    type Receiver: Receiver;

    /// Splits the stream, for a task that sends and a task that receives.
    fn split(self) -> (Self::Sender, Self::Receiver);

    /// Joins both halves of a stream again, so that the stream can be put back into the client's
    /// stream pool or closed.
    fn join(sender: Self::Sender, receiver: Self::Receiver) -> Self;

    /// Closes the stream in both directions.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// The client of the traffic: connected sessions with a pool of their streams.
pub trait Client: Send + Sync + 'static {
    /// The type of the streams in the client's pool.
    type Stream: Conversation;

    /// Takes an idle stream from the pool, or opens a new one if the pool has none.
    fn open(&self) -> impl Future<Output = Result<Self::Stream>> + Send;

    /// Gives a stream back to the client's pool, which may lease the stream again.
    fn put_back(&self, stream: Self::Stream) -> impl Future<Output = ()> + Send;

    /// Closes all sessions of the client, and returns the counters of its shmipc library.
    fn close(self) -> impl Future<Output = Vec<(&'static str, u64)>> + Send;
}

/// A server that accepts streams of many sessions.
pub trait Server: Send + 'static {
    /// The type of the streams that the server accepts.
    type Stream: Conversation;

    /// Accepts the next stream, which a client has opened on any of the server's sessions.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Stream>> + Send;

    /// Sends the clients to the server that has taken over this server's address, if the library
    /// supports that. Until the clients have moved, this server still accepts streams.
    fn hot_restart(&mut self, epoch: u64) -> impl Future<Output = Result<()>> + Send + 'static;

    /// Closes all sessions of the server, and returns the counters of its shmipc library.
    fn close(self) -> impl Future<Output = Vec<(&'static str, u64)>> + Send;
}
