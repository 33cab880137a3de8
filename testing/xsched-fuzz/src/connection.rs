//! Fuzz target for a program's connection: arbitrary packets, descriptors and words of its segment. The daemon must go on answering.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;
use std::sync::atomic::Ordering::SeqCst;

use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use xsched_proto::wire::{ClientMsg, Levels, MAX_PACKET, Platform, Request, Sharing, decode};

use crate::program::{Program, memfd};
use crate::running::{Running, send};
use crate::scratch;

static DAEMON: LazyLock<Running> = LazyLock::new(|| Running::start(&scratch::place("d"), None));

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

    /// Sends a first packet with other descriptors than it should have.
    fn odd_descriptors(&self, which: u8) {
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
        let small = memfd(usize::from(which) * 4096);
        let all = [small.as_fd(), self.segment.as_fd(), self.eventfd.as_fd(), pidfd.as_fd(), self.socket.as_fd()];
        let chosen: Vec<BorrowedFd> = (0..which % 5).map(|n| all[usize::from(which / 5 + n) % all.len()]).collect();
        self.hello_with(&chosen);
    }
}
