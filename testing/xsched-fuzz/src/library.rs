//! The library beside a daemon that sends anything: packets, descriptors, words of the gates. The library's agent thread goes on: it
//! answers the next question, or searches for another daemon and attaches again.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use xsched_agent::Host;
use xsched_core::{Platform, QueueSpec, Runtime, XQueue};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::ask::readable;
use xsched_proto::domains::DomainMode;
use xsched_proto::segment::{GROUPS, GroupSlot, Header};
use xsched_proto::settings::Settings;
use xsched_proto::wire::{self, ClientMsg, DaemonMsg, Levels, MAX_PACKET, decode, encode};

use crate::running::PATIENCE;
use crate::scratch;

const QUEUES: usize = 3;

/// Vendor interface that does nothing.
struct Nothing;

impl Platform for Nothing {
    fn kind(&self) -> wire::Platform {
        wire::Platform::Sim
    }
    fn levels(&self, _device: &str) -> Levels {
        Levels::ALL
    }
    fn flusher(&self, _queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
        None
    }
    fn reports_completion(&self) -> bool {
        false
    }
}

static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(|| Mutex::new(Library::start()));

/// Library under test, and the daemon's end of its connection.
struct Library {
    rt: &'static Runtime,
    listener: OwnedFd,
    connection: Option<OwnedFd>,
    asked: u64,
}

pub(crate) fn run(mut data: &[u8]) {
    let mut library = LIBRARY.lock().expect("a run before this one has failed");
    library.attach();
    while let Some((step, rest)) = data.split_first() {
        data = rest;
        if !library.step(step % 8, &mut data) {
            break;
        }
    }
    library.answers();
    crate::planted::planted(|| {
        let groups = library.rt.queues().map(|queue| queue.group(library.rt).index());
        groups.filter(|group| *group > 0).collect::<std::collections::BTreeSet<_>>().len() == QUEUES
    });
}

impl Library {
    fn start() -> Library {
        let path = scratch::place("l");
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let listener = listener.expect("a socket");
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).expect("a short path")).expect("a free name");
        rustix::net::listen(&listener, 8).expect("a listening socket");
        let variable = |name: &str| match name {
            "XSCHED_SOCKET" => Some(path.display().to_string()),
            "XSCHED_LOG" => Some("off".to_owned()),
            _ => None,
        };
        let settings = Settings::read(variable, []);
        let rt = xsched_agent::start(settings, Host { platforms: &[&Nothing], describe: Vec::new }).expect("an agent");
        for handle in 1..=QUEUES {
            let spec = QueueSpec {
                handle: std::ptr::without_provenance_mut(handle << 12),
                platform: 0,
                device: "sim:0".into(),
                priority_steps: 0,
                in_order: true,
            };
            rt.queue(handle << 12, || Some(spec)).expect("room for a queue");
        }
        Library { rt, listener, connection: None, asked: 0 }
    }

    /// Accepts connections of the library until one is attached.
    fn attach(&mut self) {
        while self.connection.is_none() {
            assert_eq!(readable(&self.listener, PATIENCE), Ok(true), "the agent does not come back");
            let connection = rustix::net::accept(&self.listener).expect("a connection");
            let welcome = DaemonMsg::Welcome {
                version: PROTOCOL_VERSION,
                session: 1,
                priority: 0,
                domains: DomainMode::Off,
                streams_apart: false,
            };
            let page = page(4096, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL);
            if receive(&connection).is_some() && send(&connection, &encode(&welcome).expect("small"), &[page.as_fd()]) {
                self.connection = Some(connection);
            }
        }
    }

    /// Performs one step. Returns false if the connection is lost.
    fn step(&mut self, step: u8, data: &mut &[u8]) -> bool {
        let mut byte = || data.split_first().map_or(0, |(first, rest)| (*data = rest, *first).1);
        let message = match step {
            0 => DaemonMsg::GroupAdded { slot: byte().into(), id: byte().into(), priority: 0, policy: "hpf".into() },
            1 => DaemonMsg::QueuePriority { slot: byte().into(), priority: i8::from_ne_bytes([byte()]).into() },
            2 => DaemonMsg::Interrupt { slot: byte().into(), on: byte() % 2 == 1 },
            3 => DaemonMsg::Timeslice { slot: byte().into(), us: byte().into() },
            4 => DaemonMsg::Priority { priority: i8::from_ne_bytes([byte()]).into() },
            5 => {
                // Words that a daemon stores: the first line of each group's words.
                let (group, word) = (usize::from(byte()) % GROUPS, usize::from(byte()) % 16);
                let value = u32::from_ne_bytes([byte(), byte(), byte(), byte()]);
                let words = std::ptr::from_ref(self.rt.segment()).cast::<AtomicU32>();
                let at = (size_of::<Header>() + group * size_of::<GroupSlot>()) / 4 + word;
                // SAFETY: within the segment, which is made of atomics.
                unsafe { &*words.add(at) }.store(value, SeqCst);
                return true;
            }
            6 => {
                // A greeting at the wrong time, whose page may be unusable.
                let (bytes, seals) = (u64::from(byte()) * 64, SealFlags::from_bits_truncate(byte().into()));
                let packet = crate::piece::piece(data).unwrap_or_default();
                return self.say(packet, &[page(bytes, seals).as_fd()]);
            }
            _ => {
                let packet = crate::piece::piece(data).unwrap_or_default();
                return self.say(packet, &[]);
            }
        };
        self.say(&encode(&message).expect("a small packet"), &[])
    }

    fn say(&mut self, packet: &[u8], fds: &[BorrowedFd]) -> bool {
        let said = packet.is_empty() || self.connection.as_ref().is_some_and(|socket| send(socket, packet, fds));
        if !said {
            self.connection = None;
        }
        said
    }

    /// Waits until the agent answers a question or hangs up.
    fn answers(&mut self) {
        // All gates open: a word that an earlier step stored must not close one for the next run.
        for group in &self.rt.segment().groups {
            group.gate.grant();
        }
        self.asked += 1;
        // Earlier steps cannot have sent this token: theirs are smaller.
        let token = self.asked << 32;
        if !self.say(&encode(&DaemonMsg::Describe { token }).expect("a small packet"), &[]) {
            return;
        }
        let end = Instant::now() + PATIENCE;
        while let Some(socket) = &self.connection {
            assert!(Instant::now() < end, "the agent does not answer");
            match receive(socket).as_deref().map(decode::<ClientMsg>) {
                None => self.connection = None,
                Some(message) => {
                    let message = message.expect("what the library says can be read");
                    if matches!(message, ClientMsg::Description { token: t, more: false, .. } if t == token) {
                        return;
                    }
                }
            }
        }
    }
}

/// Creates a file in memory.
fn page(bytes: u64, seals: SealFlags) -> OwnedFd {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name = format!("page-{}", MADE.fetch_add(1, SeqCst));
    let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&made, bytes).expect("room for it");
    let _ = rustix::fs::fcntl_add_seals(&made, seals);
    made
}

fn send(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).is_ok()
}

/// Receives the next packet and closes the descriptors that come with it. Returns none if the other side has hung up.
fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    assert_eq!(readable(socket, PATIENCE), Ok(true), "the agent says nothing and does not hang up");
    let mut packet = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut control, flags).ok()?;
    control.drain().for_each(|message| {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fds.for_each(drop);
        }
    });
    packet.truncate(got.bytes);
    (got.bytes > 0).then_some(packet)
}
