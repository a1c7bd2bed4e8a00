// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a channel. Over shared memory the same numbers are in the region, where other
//! programs can read them.

/// Counters of a sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Number of messages sent.
    pub messages: u64,
    /// Number of payload bytes sent.
    pub bytes: u64,
    /// Messages that went without a copy.
    pub zero_copy: u64,
    /// Messages that were copied through the ring because no memory was left.
    pub overflows: u64,
    /// Times the receiver was woken.
    pub wakeups_sent: u64,
    /// Times the sender slept because there was no space.
    pub sleeps: u64,
    /// Bytes of shared memory for large messages that exist now.
    pub memory_bytes: u64,
    /// Bytes of it that are reserved or in use by the receiver, when the sender last reclaimed
    /// memory: see [`blocks_in_flight`](Self::blocks_in_flight). On a socket, bytes of sent
    /// messages that the kernel did not take yet.
    pub memory_used_bytes: u64,
    /// Large messages that the receiver had not dropped when the sender last reclaimed memory. It
    /// does so when it needs memory, and in [`trim`](crate::Sender::trim), so this is an upper
    /// bound.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    /// # let mut there = listener.accept()?;
    /// # let mut channel = client.join().unwrap();
    /// channel.send(&[0; 100_000])?;
    /// drop(there.recv()?);
    /// assert_eq!(channel.sender().stats().blocks_in_flight, 1); // not reclaimed since
    /// channel.sender().trim()?;
    /// assert_eq!(channel.sender().stats().blocks_in_flight, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub blocks_in_flight: u64,
}

/// Counters of a receiving end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Number of messages received.
    pub messages: u64,
    /// Number of payload bytes received.
    pub bytes: u64,
    /// Messages received without a copy, or copied out of the memory of an untrusted peer.
    pub zero_copy: u64,
    /// Times the sender was woken because there was space again.
    pub wakeups_sent: u64,
    /// Times the receiver slept because there was no message.
    pub sleeps: u64,
    /// Times a message came while the receiver spun.
    pub spin_hits: u64,
}
