// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a channel. Over shared memory they also lie in the region, where other processes
//! can read them.

/// Counters of a sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages sent.
    pub messages: u64,
    /// Payload bytes sent.
    pub bytes: u64,
    /// Messages sent without a copy.
    pub zero_copy: u64,
    /// Messages that were copied through the ring because no memory was left.
    pub overflows: u64,
    /// Times the receiver was woken.
    pub wakeups_sent: u64,
    /// Times the sender slept because there was no room.
    pub sleeps: u64,
    /// Bytes of shared memory for large messages that exist now.
    pub memory_bytes: u64,
    /// Bytes of it that are reserved, or that the receiver still has; over a socket, bytes of sent
    /// messages that the kernel has not accepted yet. The value is as old as that of
    /// [`blocks_in_flight`](Self::blocks_in_flight).
    pub memory_used_bytes: u64,
    /// Large messages that the receiver had not dropped at the sender's last check, which it makes
    /// when it needs memory and in [`trim`](crate::Sender::trim). So the real number is at most
    /// this.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
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

/// Counters of a receiving end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages received.
    pub messages: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Messages received without a copy, or, if the peer is untrusted, copied out of shared memory.
    pub zero_copy: u64,
    /// Times the sender was woken because there was room again.
    pub wakeups_sent: u64,
    /// Times the receiver slept because there was no message.
    pub sleeps: u64,
    /// Times a message arrived while the receiver was spinning.
    pub spin_hits: u64,
}
