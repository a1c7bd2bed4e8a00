// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a channel counts. On a wall the same numbers stand in the half and can be read from outside.

/// Counters of a sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// Messages sent.
    pub messages: u64,
    /// Payload bytes sent.
    pub bytes: u64,
    /// Messages that went without a copy.
    pub zero_copy: u64,
    /// Messages that were copied through the ring because no memory was left.
    pub overflows: u64,
    /// Times the receiver was woken.
    pub wakeups_sent: u64,
    /// Times the sender slept because there was no room.
    pub sleeps: u64,
    /// Bytes of shared memory for large messages that exist now.
    pub memory_bytes: u64,
    /// Bytes of it that are reserved, or that the receiver looks at; on a socket, bytes of sent messages that
    /// the kernel did not take yet. As of when the sender last looked, see [`blocks_in_flight`](Self::blocks_in_flight).
    pub memory_used_bytes: u64,
    /// Large messages that the receiver had not dropped when the sender last looked: it looks when it needs
    /// memory, and in [`trim`](crate::Sender::trim). So this is the most there can be.
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
    /// assert_eq!(channel.sender().stats().blocks_in_flight, 1); // nobody has looked since
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
    /// Messages received without a copy, or (isolated) copied out of shared memory.
    pub zero_copy: u64,
    /// Times the sender was woken because there was room again.
    pub wakeups_sent: u64,
    /// Times the receiver slept because nothing was there.
    pub sleeps: u64,
    /// Times something came while the receiver spun.
    pub spin_hits: u64,
}
