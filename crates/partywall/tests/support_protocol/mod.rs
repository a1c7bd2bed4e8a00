// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal protocol for tests: the connecting side sends `#wire1\n` once, then both sides send
//! frames on the socket.
//!
//! ```text
//!   name u32 | kind u32: 0 opens, 1 carries bytes, 2 closes | len u32 | bytes
//! ```

use partywall::protocol::{
    Connection, ConnectionEvent, ConnectionReceiver, ConnectionSender, ConnectionSpace,
    DriverWaker, Handshake, Negotiation, Protocol, ProtocolError, Recognition, RecvBuffer,
    SendBuffer, TrySendError,
};
use partywall::{Closed, Message, ReceiverStats, SenderStats};
use partywall_sys::epoll::EventFlags;
use partywall_sys::{EpollSet, Socket};
use std::any::Any;
use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const GREETING: &[u8] = b"#wire1\n";
const HEAD: usize = 12;

#[derive(Debug, Default)]
pub struct Plain {
    /// A test sets this flag to make the protocol report that the peer has not yet taken the sent
    /// bytes.
    pub is_behind: Arc<AtomicBool>,
}

impl Protocol for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn recognise(&self, first: &[u8]) -> Recognition {
        let known = first.len().min(GREETING.len());
        match first[..known] == GREETING[..known] {
            false => Recognition::No,
            true if known < GREETING.len() => Recognition::Incomplete,
            true => Recognition::Yes,
        }
    }

    fn accept(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        let read = handshake.first[GREETING.len()..].to_vec();
        Ok(self.ready(handshake.socket, read, handshake.driver_waker, false))
    }

    fn connect(&self, handshake: Handshake) -> Result<Box<dyn Negotiation>, ProtocolError> {
        let written = handshake.socket.write(&[IoSlice::new(GREETING)], true);
        written.map_err(|source| ProtocolError::System { what: "greeting", source })?;
        Ok(self.ready(handshake.socket, Vec::new(), handshake.driver_waker, true))
    }
}

impl Plain {
    fn ready(
        &self,
        socket: Socket,
        read: Vec<u8>,
        driver_waker: DriverWaker,
        opens_odd: bool,
    ) -> Box<dyn Negotiation> {
        let is_behind = Arc::clone(&self.is_behind);
        Box::new(Ready(Some(Agreed { socket, read, driver_waker, opens_odd, is_behind })))
    }
}

#[derive(Debug)]
struct Ready(Option<Agreed>);

#[derive(Debug)]
struct Agreed {
    socket: Socket,
    read: Vec<u8>,
    driver_waker: DriverWaker,
    opens_odd: bool,
    is_behind: Arc<AtomicBool>,
}

impl Negotiation for Ready {
    fn progress(&mut self) -> Result<Option<Connection>, ProtocolError> {
        let Some(agreed) = self.0.take() else { return Ok(None) };
        let Agreed { socket, read, driver_waker, opens_odd, is_behind } = agreed;
        let socket = Arc::new(socket);
        let set = EpollSet::new().unwrap();
        set.add(socket.as_fd(), EventFlags::OUT, 0).unwrap();
        let closed = Arc::new(Mutex::new(HashSet::new()));
        let sender = Sender {
            socket: Arc::clone(&socket),
            next: u32::from(opens_odd),
            rest: Vec::new(),
            closed: Arc::clone(&closed),
            room: Arc::new(Space(set)),
            is_behind,
        };
        let receiver =
            Receiver { socket, read, driver_waker, closed, queue: VecDeque::new(), end: None };
        Ok(Some(Connection {
            sender: Box::new(sender),
            receiver: Box::new(receiver),
            streams_max: u32::MAX,
            peer_opens: true,
            description: "plain",
        }))
    }
}

#[derive(Debug)]
struct Sender {
    socket: Arc<Socket>,
    next: u32,
    rest: Vec<u8>,
    closed: Arc<Mutex<HashSet<u32>>>,
    room: Arc<Space>,
    is_behind: Arc<AtomicBool>,
}

impl Sender {
    fn frame(&mut self, name: u32, kind: u32, bytes: &[u8]) -> Result<(), TrySendError> {
        self.flush()?;
        for word in [name, kind, bytes.len() as u32] {
            self.rest.extend(word.to_be_bytes());
        }
        self.rest.extend(bytes);
        match self.flush() {
            Err(TrySendError::Full) => Ok(()),
            other => other,
        }
    }
}

impl ConnectionSender for Sender {
    fn open(&mut self) -> Result<u32, TrySendError> {
        let name = self.next;
        self.frame(name, 0, &[])?;
        self.next += 2;
        Ok(name)
    }

    fn send(&mut self, stream: u32, payload: &[u8]) -> Result<(), TrySendError> {
        self.frame(stream, 1, payload)
    }

    fn reserve(&mut self, len: usize) -> Result<Option<Box<dyn SendBuffer>>, TrySendError> {
        // The protocol lends a buffer, into which the sender writes, only for messages of even
        // length, so that tests cover both ways to send.
        Ok((len % 2 == 0).then(|| Box::new(Lending(vec![0; len])) as Box<dyn SendBuffer>))
    }

    fn commit(
        &mut self,
        stream: u32,
        buffer: &mut Option<Box<dyn SendBuffer>>,
    ) -> Result<(), TrySendError> {
        let bytes = buffer.as_ref().map(|buffer| buffer.as_slice().to_vec()).unwrap();
        self.frame(stream, 1, &bytes)?;
        let own = buffer.take().unwrap().into_any().downcast::<Lending>();
        assert_eq!(own.unwrap().0, bytes);
        Ok(())
    }

    fn close(&mut self, stream: u32) -> Result<(), TrySendError> {
        self.frame(stream, 2, &[])?;
        self.closed.lock().unwrap().insert(stream);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TrySendError> {
        while !self.rest.is_empty() {
            match self.socket.write(&[IoSlice::new(&self.rest)], true) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(TrySendError::Full);
                }
                Err(_) => return Err(TrySendError::Closed(Closed::Disconnected)),
            }
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        !self.rest.is_empty()
    }

    fn is_taken(&self) -> bool {
        !self.is_behind.load(Ordering::SeqCst)
    }

    fn arm(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&mut self) {}

    fn room(&self) -> Arc<dyn ConnectionSpace> {
        Arc::clone(&self.room) as Arc<dyn ConnectionSpace>
    }

    fn hang_up(&mut self) {
        let _ = self.socket.shutdown_write();
    }

    fn stats(&self) -> SenderStats {
        SenderStats::default()
    }
}

#[derive(Debug)]
struct Space(EpollSet);

impl ConnectionSpace for Space {
    fn snapshot(&self) -> [u64; 3] {
        [0; 3]
    }

    fn is_writable(&self) -> bool {
        let now = Some(std::time::Instant::now());
        self.0.wait_tokens(now).unwrap() != 0
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[derive(Debug)]
struct Lending(Vec<u8>);

impl SendBuffer for Lending {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A received message whose bytes lie in two pieces, as in a protocol that does not store messages
/// contiguously.
struct Halves {
    whole: Vec<u8>,
    first: usize,
    driver_waker: DriverWaker,
}

impl RecvBuffer for Halves {
    fn len(&self) -> usize {
        self.whole.len()
    }

    fn chunk(&self, from: usize) -> &[u8] {
        let to = if from < self.first { self.first } else { self.whole.len() };
        &self.whole[from..to]
    }

    fn as_slice(&self) -> &[u8] {
        &self.whole
    }

    fn is_zero_copy(&self) -> bool {
        false
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        self.driver_waker.wake();
    }
}

#[derive(Debug)]
struct Receiver {
    socket: Arc<Socket>,
    read: Vec<u8>,
    driver_waker: DriverWaker,
    closed: Arc<Mutex<HashSet<u32>>>,
    queue: VecDeque<ConnectionEvent>,
    end: Option<Closed>,
}

impl Receiver {
    fn parse(&mut self) -> bool {
        let Some(head) = self.read.get(..HEAD) else { return false };
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let (name, kind, len) = (word(0), word(4), word(8) as usize);
        if self.read.len() < HEAD + len {
            return false;
        }
        let whole = self.read[HEAD..HEAD + len].to_vec();
        self.read.drain(..HEAD + len);
        let event = match kind {
            0 => ConnectionEvent::Opened(name),
            1 => {
                let halves =
                    Halves { first: len / 2, whole, driver_waker: self.driver_waker.clone() };
                ConnectionEvent::Message(name, Message::from_recv_buffer(Box::new(halves)))
            }
            _ => ConnectionEvent::Closed(name),
        };
        if !self.closed.lock().unwrap().contains(&name) {
            self.queue.push_back(event);
        }
        true
    }
}

impl ConnectionReceiver for Receiver {
    fn find(&mut self) -> Result<ConnectionEvent, ProtocolError> {
        loop {
            while self.parse() {}
            if let Some(event) = self.queue.pop_front() {
                return Ok(event);
            }
            if let Some(end) = self.end {
                return Ok(ConnectionEvent::End(end));
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer, true) {
                Ok(0) => self.end = Some(Closed::Finished),
                Ok(count) => self.read.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(ConnectionEvent::Nothing);
                }
                Err(_) => self.end = Some(Closed::Disconnected),
            }
        }
    }

    fn arm(&mut self, _quiet: bool) -> Result<bool, ProtocolError> {
        Ok(false)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn notice_end(&mut self) -> Result<bool, ProtocolError> {
        Ok(false)
    }

    fn close(&mut self) {
        let _ = self.socket.shutdown_both();
    }

    fn stats(&self) -> ReceiverStats {
        ReceiverStats::default()
    }
}
