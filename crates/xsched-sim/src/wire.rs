//! Messages of the set-up socket (SOCK_SEQPACKET): eight words each, with descriptors where noted. A client sends one
//! request at a time and waits for the reply.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Number of words of a message.
pub const WORDS: usize = 8;
/// A message.
pub type Words = [u64; WORDS];
/// First word of a greeting. Its last byte is the version of everything that is shared.
pub const MAGIC: u64 = u64::from_be_bytes(*b"simdev\0\x06");
/// Largest number of descriptors in a message.
pub const MAX_FDS: usize = 3;

/// First word of a reply. The numbers are those of the C API's `simError`.
pub mod status {
    /// The request was carried out.
    pub const OK: u64 = 0;
    /// An argument is out of range, or the memory cannot be used.
    pub const INVALID_VALUE: u64 = 1;
    /// The device has no room for it.
    pub const OUT_OF_MEMORY: u64 = 2;
    /// There is no such device.
    pub const NO_DEVICE: u64 = 3;
}

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Greeting: asks for the number of devices. Reply: the number. The connection then ends.
    Count,
    /// Greeting: asks for a context on this device. Reply: its time slice in ns, with the descriptors of the shared
    /// control memory, the arena and the doorbell. The context lives as long as the connection.
    Context {
        /// Index of the device.
        device: u64,
    },
    /// Greeting: asks for membership in another client's context. Reply and lifetime as for a context; the owner
    /// controls the time slice and the eviction of the context.
    Join {
        /// Number of the invitation.
        number: u64,
        /// Secret of the invitation.
        secret: u64,
        /// Width of its kernels, in thousandths of the device.
        width: u32,
        /// Set for a member below normal priority.
        below: bool,
    },
    /// Lets one more client join this client's context. Reply: number and secret of the invitation.
    Invite,
    /// Withdraws an invitation: the client that has joined by it is dropped.
    Expel {
        /// Number of the invitation.
        number: u64,
        /// Set if work that the device executes for the client is dropped too, instead of finishing first.
        at_once: bool,
    },
    /// Makes memory reachable for the device. Comes with the descriptor of a memfd that is sealed against shrinking.
    Register {
        /// Number that the memory is to have, not 0.
        region: u32,
        /// Offset of the memory in the file, in whole pages.
        offset: u64,
        /// Length of the memory, in bytes.
        bytes: u64,
    },
    /// Ends the registration of memory. Commands already submitted may still use it.
    Unregister {
        /// Number of the memory.
        region: u32,
    },
    /// Asks for counters. Reply: kernels, copies and sets of this context submitted and completed; context switches of
    /// the device; number submitted on the device by all contexts.
    Counters,
    /// Lets other clients import pages of this context's arena. Reply: number and secret of the export.
    Export {
        /// Offset of the pages in the arena, in whole pages.
        offset: u64,
        /// Length of the pages, in bytes.
        bytes: u64,
    },
    /// Withdraws an export.
    Unexport {
        /// Number of the export.
        number: u64,
    },
    /// Puts exported pages of another context in place of some of this one's. Reply: offset of the pages in their file,
    /// with the descriptor of the file.
    Import {
        /// Number of the export.
        number: u64,
        /// Secret of the export.
        secret: u64,
        /// Offset of the place in this context's arena, in whole pages.
        at: u64,
        /// Length of the export, in bytes.
        bytes: u64,
    },
    /// Takes memory of the client's device into account as in use by the client. `OUT_OF_MEMORY` if there is not as much.
    Take {
        /// Size of the memory, in bytes.
        bytes: u64,
    },
    /// Takes memory out of the account again.
    Give {
        /// Size of the memory, in bytes.
        bytes: u64,
    },
    /// Takes memory that several clients may hold into account, once for all of them: a memfd that is sealed against
    /// resizing, whose descriptor comes with the request. Reply: number of the memory, and its device.
    Hold,
    /// Ends one hold of the client.
    Drop {
        /// Number of the memory.
        number: u64,
    },
    /// Asks for the memory of the client's device. Reply: capacity and use in bytes, and what the client uses itself.
    Memory,
    /// Greeting: asks for the memory of this device. Reply: capacity and use in bytes. The connection then ends.
    MemoryOf {
        /// Index of the device.
        device: u64,
    },
    /// Greeting: asks for one of the processes that use memory of this device, in the order of their ids. Reply: number of these
    /// processes, the id, and its use in bytes. The connection then ends.
    ProcessOf {
        /// Index of the device.
        device: u64,
        /// Place of the process.
        place: u64,
    },
    /// Puts pages of a memfd, whose descriptor comes with the request, in place of some of the client's arena. The memfd is
    /// sealed against shrinking. Ends as an import does.
    Map {
        /// Offset of the place in this context's arena, in whole pages.
        at: u64,
        /// Offset of the pages in their file.
        offset: u64,
        /// Length of the pages, in bytes.
        bytes: u64,
    },
    /// Ends an import: the arena's own pages come back. Reply: nothing, with the descriptor of the arena.
    Restore {
        /// Offset at which the pages were imported.
        at: u64,
    },
}

impl Request {
    /// Encodes the request in words.
    pub fn encode(self) -> Words {
        match self {
            Self::Count => [MAGIC, 1, 0, 0, 0, 0, 0, 0],
            Self::Context { device } => [MAGIC, 2, device, 0, 0, 0, 0, 0],
            Self::Register { region, offset, bytes } => [MAGIC, 3, region.into(), offset, bytes, 0, 0, 0],
            Self::Unregister { region } => [MAGIC, 4, region.into(), 0, 0, 0, 0, 0],
            Self::Counters => [MAGIC, 5, 0, 0, 0, 0, 0, 0],
            Self::Export { offset, bytes } => [MAGIC, 6, 0, offset, bytes, 0, 0, 0],
            Self::Unexport { number } => [MAGIC, 7, number, 0, 0, 0, 0, 0],
            Self::Import { number, secret, at, bytes } => [MAGIC, 8, number, at, bytes, secret, 0, 0],
            Self::Restore { at } => [MAGIC, 9, 0, at, 0, 0, 0, 0],
            Self::Invite => [MAGIC, 10, 0, 0, 0, 0, 0, 0],
            Self::Join { number, secret, width, below } => {
                [MAGIC, 11, number, width.into(), below.into(), secret, 0, 0]
            }
            Self::Expel { number, at_once } => [MAGIC, 12, number, at_once.into(), 0, 0, 0, 0],
            Self::Take { bytes } => [MAGIC, 13, bytes, 0, 0, 0, 0, 0],
            Self::Give { bytes } => [MAGIC, 14, bytes, 0, 0, 0, 0, 0],
            Self::Hold => [MAGIC, 15, 0, 0, 0, 0, 0, 0],
            Self::Drop { number } => [MAGIC, 16, number, 0, 0, 0, 0, 0],
            Self::Memory => [MAGIC, 17, 0, 0, 0, 0, 0, 0],
            Self::MemoryOf { device } => [MAGIC, 18, device, 0, 0, 0, 0, 0],
            Self::ProcessOf { device, place } => [MAGIC, 20, device, place, 0, 0, 0, 0],
            Self::Map { at, offset, bytes } => [MAGIC, 19, at, offset, bytes, 0, 0, 0],
        }
    }

    /// Decodes a request from words.
    pub fn decode(words: Words) -> Option<Self> {
        let [magic, kind, a, offset, bytes, secret, ..] = words;
        match (magic == MAGIC, kind) {
            (true, 1) => Some(Self::Count),
            (true, 2) => Some(Self::Context { device: a }),
            (true, 3) => Some(Self::Register { region: u32::try_from(a).ok()?, offset, bytes }),
            (true, 4) => Some(Self::Unregister { region: u32::try_from(a).ok()? }),
            (true, 5) => Some(Self::Counters),
            (true, 6) => Some(Self::Export { offset, bytes }),
            (true, 7) => Some(Self::Unexport { number: a }),
            (true, 8) => Some(Self::Import { number: a, secret, at: offset, bytes }),
            (true, 9) => Some(Self::Restore { at: offset }),
            (true, 10) => Some(Self::Invite),
            (true, 11) => Some(Self::Join { number: a, secret, width: u32::try_from(offset).ok()?, below: bytes != 0 }),
            (true, 12) => Some(Self::Expel { number: a, at_once: offset != 0 }),
            (true, 13) => Some(Self::Take { bytes: a }),
            (true, 14) => Some(Self::Give { bytes: a }),
            (true, 15) => Some(Self::Hold),
            (true, 16) => Some(Self::Drop { number: a }),
            (true, 17) => Some(Self::Memory),
            (true, 18) => Some(Self::MemoryOf { device: a }),
            (true, 20) => Some(Self::ProcessOf { device: a, place: offset }),
            (true, 19) => Some(Self::Map { at: a, offset, bytes }),
            _ => None,
        }
    }
}

/// Sends a message.
pub fn send(socket: impl AsFd, words: Words, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = [0; WORDS * 8];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message. The error is of kind `UnexpectedEof` if the other side is gone.
pub fn receive(socket: impl AsFd) -> io::Result<(Words, Vec<OwnedFd>)> {
    let mut bytes = [0; WORDS * 8 + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            fds.extend(list);
        }
    }
    match received.bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n if n == WORDS * 8 => {
            let mut words = [0; WORDS];
            for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*chunk);
            }
            Ok((words, fds))
        }
        n => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {n} bytes"))),
    }
}
