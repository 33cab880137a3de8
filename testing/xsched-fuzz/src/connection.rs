//! Fuzz target for a program's connection: arbitrary packets, descriptors and words of its segment. The daemon must go on answering.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::segment::{COUNTERS, GROUPS, MAGIC, QUEUES, SEGMENT_BYTES, Segment};
use xsched_proto::wire::{ClientMsg, Levels, MAX_PACKET, Platform, ProgramOptions, Request, Sharing, decode, encode};

use crate::running::{Running, connect, send};
use crate::scratch;

static DAEMON: LazyLock<Running> = LazyLock::new(|| Running::start(&scratch::place("d"), None));

/// Descriptors and memory of a program.
struct Program {
    socket: OwnedFd,
    eventfd: OwnedFd,
    segment: OwnedFd,
    words: &'static [AtomicU32],
}

pub(crate) fn run(mut data: &[u8]) {
    let program = Program::new(&DAEMON);
    while let Some((step, rest)) = data.split_first() {
        data = rest;
        program.step(step % 8, &mut data);
    }
    let (_, programs) = DAEMON.ps();
    crate::planted::planted(|| programs.iter().any(|program| program.groups.len() >= 2));
    drop(program);
    let (info, _) = DAEMON.ps();
    assert_eq!(info.pid, std::process::id());
}

impl Program {
    fn new(daemon: &Running) -> Program {
        let socket = connect(&daemon.socket).expect("the daemon listens");
        let segment = memfd(SEGMENT_BYTES);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&segment, seals).expect("a memfd of ours");
        let words = words_of(&segment);
        let sizes = [MAGIC, PROTOCOL_VERSION, GROUPS as u32, QUEUES as u32, COUNTERS as u32];
        words.iter().zip(sizes).for_each(|(word, value)| word.store(value, SeqCst));
        Program { socket, eventfd: eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"), segment, words }
    }

    fn step(&self, step: u8, data: &mut &[u8]) {
        let mut byte = || data.split_first().map_or(0, |(first, rest)| (*data = rest, *first).1);
        match step {
            0 => self.hello(),
            1 => {
                let group = ClientMsg::GroupAdd {
                    slot: byte().into(),
                    device: format!("pci:0000:{:02x}:00.0", byte()),
                    platform: Platform::Sim,
                    priority_steps: i8::from_ne_bytes([byte()]).into(),
                    priority_fixed: None,
                    system: false,
                    levels: Levels::ONE,
                    sharing: Sharing::Time,
                };
                send(&self.socket, &group);
            }
            2 => send(&self.socket, &ClientMsg::QueueAdd { slot: byte().into(), group: byte().into() }),
            3 => {
                // Within the header and the first groups and queues, all of which the daemon reads.
                let at = usize::from(u16::from_ne_bytes([byte(), byte()])) % self.words.len();
                self.words[at].store(u32::from_ne_bytes([byte(), byte(), byte(), byte()]), SeqCst);
            }
            4 => {
                let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
            }
            5 => self.odd_descriptors(byte()),
            6 => {
                let mut answer = vec![0; MAX_PACKET];
                let _ = rustix::net::recv(&self.socket, answer.as_mut_slice(), RecvFlags::DONTWAIT);
            }
            _ => {
                let packet = crate::piece::piece(data).unwrap_or_default();
                // The fuzzer runs as the daemon's own user, who may stop it.
                let ends = matches!(decode(packet), Ok(ClientMsg::Control { request: Request::Stop, .. }));
                if !packet.is_empty() && !ends {
                    let _ = rustix::net::send(&self.socket, packet, SendFlags::NOSIGNAL);
                }
            }
        }
    }

    fn hello(&self) {
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
        self.hello_with(&[self.segment.as_fd(), self.eventfd.as_fd(), pidfd.as_fd()]);
    }

    /// Sends a first packet with other descriptors than it should have.
    fn odd_descriptors(&self, which: u8) {
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
        let small = memfd(usize::from(which) * 4096);
        let all = [small.as_fd(), self.segment.as_fd(), self.eventfd.as_fd(), pidfd.as_fd(), self.socket.as_fd()];
        let chosen: Vec<BorrowedFd> = (0..which % 5).map(|n| all[usize::from(which / 5 + n) % all.len()]).collect();
        self.hello_with(&chosen);
    }

    fn hello_with(&self, descriptors: &[BorrowedFd]) {
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

fn memfd(bytes: usize) -> OwnedFd {
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
