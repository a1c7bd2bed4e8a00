// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of the torture test: one file to which the client and the server process of a link
//! append notes. It outlives both processes.
//!
//! ```text
//!   a note: 64 bytes, appended by one write
//!   bytes 0 to 7: kind, side, owner │ bytes 8 to 63: seven words, whose meaning `What` lists
//! ```
//!
//! A write of 64 bytes at a multiple of 64 never crosses a page, so a kill never leaves an
//! incomplete note.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The kind of a note, which is a 64-byte entry of the journal. The comment of each variant lists
/// the data words that follow the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The client or server has opened its link. The note carries no words: the seven words are 0.
    Opened = 1,
    /// A connection was attached. Data words of the note: 1 if the stream continued, else 0; 1 if
    /// the connection uses shared memory, else 0.
    Attached,
    /// The client or server is about to send a message. Data words of the note: number, length and
    /// epoch of the message, number of the first message of its batch, number of messages in the
    /// batch.
    AboutToSend,
    /// The client or server has sent a message. Data words of the note: number and epoch of the
    /// message, number of the first message of its batch, number of messages in the batch.
    Sent,
    /// The send failed, and nothing was sent. Data words of the note: number and epoch of the
    /// message, number of the first message of its batch, number of messages in the batch.
    NotSent,
    /// The client or server has received a message. Data words of the note: position, epoch, number
    /// (if the message contains it), length, digest, delivery count.
    Got,
    /// The client or server is about to acknowledge a message and all before it. Data words of the
    /// note: position and epoch of that message.
    AboutToCommit,
    /// The client or server has acknowledged a message and all before it. Data words of the note:
    /// position and epoch of that message.
    Committed,
    /// The acknowledgement failed, and nothing was acknowledged. Data words of the note: position
    /// and epoch of the message.
    NotCommitted,
    /// The client or server is about to reply to a request. Data words of the note: position and
    /// epoch of the request, number and length of the answer.
    AboutToReply,
    /// The client or server has replied to a request. Data words of the note: position and epoch of
    /// the request, number of the answer.
    Replied,
    /// The reply failed: the answer was not sent, and the request was not acknowledged. Data words
    /// of the note: position and epoch of the request, number of the answer.
    NotReplied,
    /// The client or server is about to begin an epoch. Data word of the note: the number of that
    /// epoch.
    AboutToBegin,
    /// The link has reported a range of positions, such as those of messages that an epoch dropped.
    /// Data words of the note: kind, flags, epoch, first position, position after the last.
    Reported,
    /// The client or server has acknowledged all messages that arrived. Data words of the note:
    /// epoch, and how many bytes of its own messages the peer has not acknowledged.
    Idle,
    /// The client or server has failed; the file `failed` contains the reason. The note carries no
    /// words: the seven words are 0.
    Failed,
}

#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub what: What,
    pub side: usize,
    pub owner: u64,
    pub words: [u64; 7],
}

/// The journal as a client or server process opens it: it appends notes.
pub struct Journal {
    file: File,
    side: usize,
    owner: u64,
}

/// The journal as the oracle opens it, the part of the test that checks the notes: it reads them.
pub struct Reader {
    file: File,
    at: u64,
}

impl Journal {
    pub fn open(directory: &Path, side: usize, owner: u64) -> Self {
        let file = File::options().append(true).open(directory.join(NAME)).unwrap();
        Self { file, side, owner }
    }

    pub fn note(&mut self, what: What, words: &[u64]) {
        let mut bytes = [0; NOTE_BYTES];
        let first = what as u64 | (self.side as u64) << 8 | self.owner << 16;
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.file.write_all(&bytes).unwrap();
    }
}

impl Reader {
    pub fn new(directory: &Path) -> Self {
        File::create(directory.join(NAME)).unwrap();
        Self { file: File::open(directory.join(NAME)).unwrap(), at: 0 }
    }

    /// Returns the notes that were written since the last call.
    pub fn read(&mut self) -> Vec<Note> {
        let end = self.file.metadata().unwrap().len();
        assert!(end % NOTE_BYTES as u64 == 0, "half a note");
        let mut bytes = vec![0; usize::try_from(end - self.at).unwrap()];
        self.file.read_exact_at(&mut bytes, self.at).unwrap();
        self.at = end;
        bytes.chunks_exact(NOTE_BYTES).map(Note::of).collect()
    }
}

impl Note {
    fn of(bytes: &[u8]) -> Self {
        let mut words = [0; 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().unwrap());
        }
        let what = ALL[usize::from(words[0] as u8) - 1];
        let (side, owner) = (usize::from((words[0] >> 8) as u8), words[0] >> 16);
        Self { what, side, owner, words: words[1..].try_into().unwrap() }
    }
}

const NAME: &str = "journal";
const NOTE_BYTES: usize = 64;
const ALL: [What; 16] = [
    What::Opened,
    What::Attached,
    What::AboutToSend,
    What::Sent,
    What::NotSent,
    What::Got,
    What::AboutToCommit,
    What::Committed,
    What::NotCommitted,
    What::AboutToReply,
    What::Replied,
    What::NotReplied,
    What::AboutToBegin,
    What::Reported,
    What::Idle,
    What::Failed,
];
