//! A program that a target plays: its connection, and the memory that it shares with the daemon.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::segment::{COUNTERS, GROUPS, MAGIC, QUEUES, SEGMENT_BYTES, Segment};
use xsched_proto::wire::{ClientMsg, ProgramOptions, encode};

use crate::running::{Running, connect};

/// Descriptors and memory of a program.
pub(crate) struct Program {
    pub(crate) socket: OwnedFd,
    pub(crate) eventfd: OwnedFd,
    pub(crate) segment: OwnedFd,
    pub(crate) words: &'static [AtomicU32],
}

impl Program {
    pub(crate) fn new(daemon: &Running) -> Program {
        let socket = connect(&daemon.socket).expect("the daemon listens");
        let segment = memfd(SEGMENT_BYTES);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&segment, seals).expect("a memfd of ours");
        let words = words_of(&segment);
        let sizes = [MAGIC, PROTOCOL_VERSION, GROUPS as u32, QUEUES as u32, COUNTERS as u32];
        words.iter().zip(sizes).for_each(|(word, value)| word.store(value, SeqCst));
        Program { socket, eventfd: eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"), segment, words }
    }

    pub(crate) fn hello(&self) {
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
        self.hello_with(&[self.segment.as_fd(), self.eventfd.as_fd(), pidfd.as_fd()]);
    }

    pub(crate) fn hello_with(&self, descriptors: &[BorrowedFd]) {
        let options = ProgramOptions::default();
        let packet = encode(&ClientMsg::Hello { version: PROTOCOL_VERSION, options }).expect("a small packet");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let _ = rustix::net::sendmsg(&self.socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: mapped by `words_of`, and nobody else has the words.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast_mut().cast(), SEGMENT_BYTES) };
    }
}

pub(crate) fn memfd(bytes: usize) -> OwnedFd {
    let made = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let made = made.expect("a memfd");
    rustix::fs::ftruncate(&made, bytes as u64).expect("room for it");
    made
}

/// Maps the words of a segment.
fn words_of(segment: &OwnedFd) -> &'static [AtomicU32] {
    const { assert!(size_of::<Segment>() == SEGMENT_BYTES) };
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, as long as the file; atomics may hold any bits. It is unmapped
    // where the last one who uses it is dropped.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), SEGMENT_BYTES, protection, MapFlags::SHARED, segment, 0);
        std::slice::from_raw_parts(at.expect("room for a segment").cast(), SEGMENT_BYTES / 4)
    }
}
