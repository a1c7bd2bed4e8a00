// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a channel's sending and receiving end. Over shared memory each side also writes
//! its counters into its region, where other processes can read them.

/// Counters of the sending end of a channel or session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Number of messages that were sent.
    pub messages: u64,
    /// Number of payload bytes that were sent.
    pub bytes: u64,
    /// Number of messages that the receiver reads in the memory where the sender wrote them,
    /// without a copy.
    pub zero_copy: u64,
    /// Messages that were copied through the ring because all memory for large messages was in use.
    pub overflows: u64,
    /// Number of times that the sender notified a sleeping receiver.
    pub wakeups_sent: u64,
    /// Times that the sender slept because the ring or the memory for large messages had no room.
    pub sleeps: u64,
    /// Bytes of shared memory that are allocated for large messages now.
    pub memory_bytes: u64,
    /// Bytes of [`memory_bytes`](Self::memory_bytes) that are reserved or still held by the
    /// receiver. Over a socket: bytes of sent messages that the kernel has not accepted yet. The
    /// value is from the same moment as [`blocks_in_flight`](Self::blocks_in_flight).
    pub memory_used_bytes: u64,
    /// Large messages that the receiver had not dropped when the sender last checked. The sender
    /// checks when it needs memory and in [`trim`](crate::Sender::trim), so the real number is at
    /// most this value.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # use partywall::{Begin, Config};
    /// # let config = Config::default().begin(Begin::SharedMemory);
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let connect = move || partywall::connect_with(&address, &config).unwrap();
    /// # let client = std::thread::spawn(connect);
    /// # let mut server = listener.accept()?;
    /// # let mut channel = client.join().unwrap();
    /// channel.send(&[0; 100_000])?;
    /// drop(server.recv()?);
    /// assert_eq!(channel.sender().stats().blocks_in_flight, 1); // not checked since then
    /// channel.sender().trim()?;
    /// assert_eq!(channel.sender().stats().blocks_in_flight, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub blocks_in_flight: u64,
}

/// Counters of the receiving end of a channel or session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Number of messages that were received.
    pub messages: u64,
    /// Number of payload bytes that were received.
    pub bytes: u64,
    /// Number of messages received through blocks of shared memory. It includes messages of an
    /// untrusted peer, which are copied out of their blocks.
    pub zero_copy: u64,
    /// Times that the receiver notified a sleeping sender because the ring or the memory had room
    /// again.
    pub wakeups_sent: u64,
    /// Number of times that the receiver slept because no message had arrived.
    pub sleeps: u64,
    /// Number of times that a message arrived while the receiver was spinning.
    pub spin_hits: u64,
}
