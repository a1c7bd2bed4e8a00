// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport of a Volo client: its connections are streams of one session with the server.
//! After that session has ended, the client opens another one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use partywall::tokio::{ReadHalf, Session, Stream, WriteHalf, connect_with, connect_with_protocol};
use partywall::{Config, OpenError};
use partywall_shmipc::Shmipc;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::sync::Mutex;
use volo::net::Address;
use volo::net::dial::MakeTransport;
use volo::net::ext::AsyncExt;

/// The connector of a Volo client: it opens a stream for each connection of Volo's pool. All
/// streams belong to one session; if the session has ended or takes no more streams, the next
/// connection opens another session.
#[derive(Clone)]
pub struct Connector {
    address: Arc<str>,
    config: Config,
    protocol: Option<Arc<Shmipc>>,
    /// The current session, and the number of sessions that were opened so far. A stream is opened
    /// without this lock, because the peer may delay the opening.
    current: Arc<Mutex<(u64, Option<Session>)>>,
}

impl Connector {
    /// Connects to a server of this library at `address`, such as `unix:/run/app.sock`. The
    /// connector ignores the address that Volo passes to `make_transport`, because the type of that
    /// address cannot express an address of this library.
    #[must_use]
    pub fn new(address: &str, config: Config) -> Self {
        Self { address: address.into(), config, protocol: None, current: Arc::default() }
    }

    /// Makes the connector speak the shmipc protocol, for servers that use Volo's shmipc transport.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Arc<Shmipc>) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Opens a stream of the current session, or of another one if the current one has ended or
    /// takes no more streams.
    async fn open(&self) -> io::Result<(Session, Stream)> {
        let (session, number) = self.session(None).await?;
        match session.open(&[]).await {
            Ok(stream) => Ok((session, stream)),
            Err(OpenError::GoingAway { .. } | OpenError::Session(_)) => {
                let (session, _) = self.session(Some(number)).await?;
                let stream = session.open(&[]).await.map_err(io::Error::other)?;
                Ok((session, stream))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Returns the current session and its number. If that session has ended, or its number is
    /// `unusable`, opens another one first, while other callers wait for it.
    async fn session(&self, unusable: Option<u64>) -> io::Result<(Session, u64)> {
        let mut current = self.current.lock().await;
        let (number, session) = &*current;
        if let Some(session) = session
            && session.close_reason().is_none()
            && unusable != Some(*number)
        {
            return Ok((session.clone(), *number));
        }
        let session = match &self.protocol {
            None => connect_with(&*self.address, &self.config).await,
            Some(shmipc) => {
                let protocol = Arc::clone(shmipc) as _;
                connect_with_protocol(&*self.address, &self.config, protocol).await
            }
        };
        let session = session.map_err(io::Error::other)?;
        *current = (number + 1, Some(session.clone()));
        Ok((session, current.0))
    }
}

impl MakeTransport for Connector {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    async fn make_transport(&self, _: Address) -> io::Result<(Reader, Writer)> {
        let (session, stream) = self.open().await?;
        let (read, write) = stream.into_io().into_split();
        Ok((
            Reader { read, session: Some(session.clone()) },
            Writer { write, session: Some(session) },
        ))
    }

    fn set_connect_timeout(&mut self, timeout: Option<Duration>) {
        if let Some(timeout) = timeout {
            self.config = self.config.clone().handshake_timeout(timeout);
        }
    }

    // Volo's timeout layer ends a call that takes too long, and then drops the connection. So this
    // transport needs no timeouts of its own.
    fn set_read_timeout(&mut self, _: Option<Duration>) {}

    fn set_write_timeout(&mut self, _: Option<Duration>) {}
}

/// The reading half of a stream, for Volo's codecs.
pub struct Reader {
    read: ReadHalf,
    /// The session of a client's stream, so that Volo's pool can ask whether the session has ended.
    /// `None` at a server.
    session: Option<Session>,
}

/// The writing half of a stream, for Volo's codecs.
pub struct Writer {
    write: WriteHalf,
    /// The session of a client's stream, so that Volo's pool can ask whether the session has ended.
    /// `None` at a server.
    session: Option<Session>,
}

impl Reader {
    /// Makes the two halves of a stream that a server has accepted. They have no session, because
    /// only a client's pool asks for the session.
    pub(crate) fn accepted(read: ReadHalf, write: WriteHalf) -> (Self, Writer) {
        (Self { read, session: None }, Writer { write, session: None })
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, into)
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}

impl AsyncExt for Reader {
    async fn ready(&self, _: Interest) -> io::Result<Ready> {
        Ok(readiness(self.session.as_ref()))
    }
}

impl AsyncExt for Writer {
    async fn ready(&self, _: Interest) -> io::Result<Ready> {
        Ok(readiness(self.session.as_ref()))
    }
}

/// Whether Volo's pool can use a connection for another call.
fn readiness(session: Option<&Session>) -> Ready {
    let has_ended = session.is_some_and(|session| session.close_reason().is_some());
    if has_ended {
        Ready::READ_CLOSED | Ready::WRITE_CLOSED
    } else {
        Ready::READABLE | Ready::WRITABLE
    }
}
