//! A real daemon on a real socket, and clients that speak the protocol by hand.
#![allow(dead_code, unreachable_pub)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use tempfile::TempDir;
use xsched_daemon::{Error, Options};
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::gate::Gate;
use xsched_proto::segment::{COUNTERS, GROUPS, GroupSlot, Heartbeat, MAGIC, QUEUES, SEGMENT_BYTES, Segment, state};
use xsched_proto::wire::{
    ClientMsg, DaemonInfo, DaemonMsg, Levels, MAX_PACKET, Platform, ProgramInfo, ProgramOptions, Request, Sharing,
    decode, encode,
};
use xsched_testkit::{TIMEOUT, until};

pub struct Daemon {
    pub folder: TempDir,
    pub socket: PathBuf,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

pub fn options(folder: &Path) -> Options {
    let socket = folder.join("run").join("xsched.sock");
    Options {
        socket,
        policy: None,
        scheduler: None,
        usual_config: Vec::new(),
        metrics_not_of: None,
        config: Vec::new(),
        log: None,
        log_details: false,
        library: None,
        pool_keeper: None,
        device_host: None,
        state: None,
        idle_exit: None,
        seed: 1,
        bursts: None,
    }
}

impl Daemon {
    pub fn start() -> Daemon {
        Daemon::start_with(|_| ())
    }

    pub fn start_with(change: impl FnOnce(&mut Options)) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path());
        change(&mut options);
        let socket = options.socket.clone();
        let thread = Some(std::thread::spawn(move || xsched_daemon::run(options)));
        let daemon = Daemon { folder, socket, thread };
        until("the daemon listens", || try_connect(&daemon.socket).is_some());
        daemon
    }

    pub fn attach(&self, priority: i32) -> Client {
        Client::attach(&self.socket, ProgramOptions { priority: Some(priority), ..ProgramOptions::default() })
    }

    pub fn ask(&self, request: Request) -> Result<Vec<DaemonMsg>, Error> {
        ask(&self.socket, request)
    }

    pub fn ps(&self) -> (DaemonInfo, Vec<ProgramInfo>) {
        let mut answer = self.ask(Request::Ps).unwrap().into_iter();
        let Some(DaemonMsg::Daemon(daemon)) = answer.next() else { panic!("no word about the daemon") };
        let programs = answer.filter_map(|m| match m {
            DaemonMsg::Program(p) => Some(*p),
            DaemonMsg::Device(_) | DaemonMsg::RefusedProgram(_) => None,
            other => panic!("{other:?}"),
        });
        (daemon, programs.collect())
    }

    /// Number of a group's only queue.
    pub fn queue_of(&self, group: u64) -> u64 {
        let id = format!("g{group}");
        let find = || {
            let groups = self.ps().1.into_iter().flat_map(|p| p.groups);
            groups.filter(|g| g.id == id).find_map(|g| g.queues.first()?.id.strip_prefix('q')?.parse().ok())
        };
        until("the group has a queue", || find().is_some());
        find().unwrap()
    }

    /// Stops the daemon. Its folder then holds all that it wrote.
    pub fn end(mut self) -> TempDir {
        self.ask(Request::Stop).unwrap();
        assert_eq!(self.join(), Ok(()));
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    /// Waits for the daemon's end.
    pub fn join(&mut self) -> Result<(), Error> {
        let thread = self.thread.take().unwrap();
        until("the daemon ends", || thread.is_finished());
        thread.join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = ask(&self.socket, Request::Stop);
            let result = thread.join();
            if !std::thread::panicking() {
                assert_eq!(result.unwrap(), Ok(()));
            }
        }
    }
}

pub fn try_connect(path: &Path) -> Option<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
    Some(socket)
}

pub fn connect(path: &Path) -> OwnedFd {
    try_connect(path).expect("the daemon answers")
}

pub fn send_raw(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)
}

pub fn send(socket: &OwnedFd, message: &ClientMsg, fds: &[BorrowedFd<'_>]) {
    send_raw(socket, &encode(message).unwrap(), fds).unwrap();
}

/// Receives the next message; none if the other side has hung up.
pub fn receive(socket: &OwnedFd) -> Option<(DaemonMsg, Vec<OwnedFd>)> {
    receive_packet(socket).map(|(packet, passed)| (decode(&packet).unwrap(), passed))
}

/// Receives the next packet of either side, with its descriptors; none if the other side has hung up.
pub fn receive_packet(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    assert_ne!(poll(&mut fds, Some(&timeout)).unwrap(), 0, "no answer");
    let mut buffer = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut receive = || rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags);
    // A connection that was closed with a packet unread reports this once; the daemon's last messages follow.
    let got = match receive() {
        Err(rustix::io::Errno::CONNRESET) => receive(),
        got => got,
    };
    let bytes = got.map_or(0, |m| m.bytes);
    let mut passed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            passed.extend(rights);
        }
    }
    buffer.truncate(bytes);
    (bytes > 0).then_some((buffer, passed))
}

/// Reads until the connection ends, and returns the reason if one was sent.
pub fn is_hung_up(socket: &OwnedFd) -> Option<String> {
    is_turned_away(socket).0
}

/// The reason for which the daemon ends a connection, and the time in ms after which it wants to be asked again, told before.
pub fn is_turned_away(socket: &OwnedFd) -> (Option<String>, Option<u32>) {
    let (mut why, mut again_ms) = (None, None);
    while let Some((message, _)) = receive(socket) {
        match message {
            DaemonMsg::Refused(error) => why = Some(error.to_string()),
            DaemonMsg::AskAgain { after_ms } if why.is_none() => again_ms = Some(after_ms),
            _ => {}
        }
    }
    (why, again_ms)
}

pub fn ask(path: &Path, request: Request) -> Result<Vec<DaemonMsg>, Error> {
    let socket = connect(path);
    send(&socket, &ClientMsg::Control { version: PROTOCOL_VERSION, request }, &[]);
    let mut answer = Vec::new();
    loop {
        match receive(&socket).expect("an answer has an end").0 {
            DaemonMsg::End => return Ok(answer),
            DaemonMsg::Refused(error) => return Err(error),
            DaemonMsg::MoreQueues(queues) => xsched_proto::ask::add_queues(answer.last_mut(), queues),
            message => answer.push(message),
        }
    }
}

pub struct Client {
    pub socket: OwnedFd,
    pub eventfd: OwnedFd,
    pub memfd: OwnedFd,
    pub heartbeat: OwnedFd,
    segment: &'static Segment,
}

pub fn memfd(bytes: usize, seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes as u64).unwrap();
    let segment = map::<Segment>(&file, bytes.min(SEGMENT_BYTES), ProtFlags::READ | ProtFlags::WRITE);
    if bytes >= SEGMENT_BYTES {
        // SAFETY: mapped as long as a segment; made of atomics.
        let header = unsafe { &(*segment).header };
        header.magic.store(MAGIC, SeqCst);
        header.version.store(PROTOCOL_VERSION, SeqCst);
        for (word, n) in header.sizes.iter().zip([GROUPS, QUEUES, COUNTERS]) {
            word.store(n as u32, SeqCst);
        }
        // More than any test uses.
        header.used[0].store(1_024, SeqCst);
        header.used[1].store(4_096, SeqCst);
    }
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Maps a file for the rest of the test.
pub fn map<T>(file: &OwnedFd, bytes: usize, protection: ProtFlags) -> *const T {
    // SAFETY: a new mapping at an address of the kernel's choice.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0).unwrap() }.cast()
}

pub fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

pub fn own_pidfd() -> OwnedFd {
    pidfd_open(getpid(), PidfdFlags::empty()).unwrap()
}

pub fn hello(options: ProgramOptions) -> ClientMsg {
    ClientMsg::Hello { version: PROTOCOL_VERSION, options }
}

impl Client {
    pub fn attach(path: &Path, options: ProgramOptions) -> Client {
        let (socket, eventfd) = (connect(path), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let memfd = memfd(SEGMENT_BYTES, seals());
        // SAFETY: mapped for the rest of the test's life; made of atomics.
        let segment = unsafe { &*map::<Segment>(&memfd, SEGMENT_BYTES, ProtFlags::READ | ProtFlags::WRITE) };
        send(&socket, &hello(options), &[memfd.as_fd(), eventfd.as_fd(), own_pidfd().as_fd()]);
        match receive(&socket) {
            Some((DaemonMsg::Welcome { version: PROTOCOL_VERSION, .. }, mut fds)) => {
                let heartbeat = fds.pop().expect("a heartbeat page");
                Client { socket, eventfd, memfd, heartbeat, segment }
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn segment(&self) -> &Segment {
        self.segment
    }

    pub fn heartbeat(&self) -> &'static Heartbeat {
        // SAFETY: mapped for the rest of the test's life; one atomic.
        unsafe { &*map::<Heartbeat>(&self.heartbeat, 4096, ProtFlags::READ) }
    }

    pub fn group(&self, slot: u16, device: &str) -> u64 {
        self.group_with(slot, device, 0, Levels::ONE)
    }

    pub fn group_with(&self, slot: u16, device: &str, priority_steps: i32, levels: Levels) -> u64 {
        self.group_of(Platform::Sim, slot, device, priority_steps, levels)
    }

    pub fn group_of(&self, platform: Platform, slot: u16, device: &str, priority_steps: i32, levels: Levels) -> u64 {
        self.words(slot).inherited_priority.store(i32::MIN, SeqCst);
        self.say(&ClientMsg::GroupAdd {
            slot,
            device: device.into(),
            platform,
            priority_steps,
            priority_fixed: None,
            system: false,
            levels,
            sharing: Sharing::Time,
        });
        match receive(&self.socket) {
            Some((DaemonMsg::GroupAdded { slot: s, id, .. }, _)) if s == slot => id,
            other => panic!("{other:?}"),
        }
    }

    pub fn queue(&self, slot: u16, group: u16) {
        self.segment().header.used[0].fetch_max(u32::from(slot) + 1, SeqCst);
        self.segment().queues[usize::from(slot)].group.store(u32::from(group) + 1, SeqCst);
        self.say(&ClientMsg::QueueAdd { slot, group });
    }

    pub fn say(&self, message: &ClientMsg) {
        send(&self.socket, message, &[]);
    }

    pub fn words(&self, slot: u16) -> &GroupSlot {
        &self.segment().groups[usize::from(slot)]
    }

    pub fn set_state(&self, slot: u16, word: u32) {
        self.words(slot).state.store(word, SeqCst);
        self.wake();
    }

    pub fn wake(&self) {
        rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()).unwrap();
    }

    /// Launches a command. As in every client, a group that counts as idle for want of progress goes on with the launch: on a busy machine
    /// any group may count as idle.
    pub fn ready(&self, slot: u16) {
        self.words(slot).gate.go_on();
        self.set_state(slot, state::READY);
    }

    /// Completes a command of the group and launches another one, so that the group makes progress.
    pub fn gets_on(&self, slot: u16) {
        self.words(slot).completed.fetch_add(1, SeqCst);
        if self.words(slot).gate.go_on() {
            self.wake();
        }
    }

    pub fn idle(&self, slot: u16) {
        self.set_state(slot, state::IDLE);
    }

    pub fn gate(&self, slot: u16) -> Gate {
        self.words(slot).gate.load()
    }

    pub fn open(&self, slot: u16) -> bool {
        self.gate(slot).is_granted()
    }

    pub fn until_open(&self, slot: u16) {
        until("its gate opens", || self.open(slot));
    }

    /// Size of the next unread message, in bytes; 0 if there is none.
    pub fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.socket).unwrap()
    }

    pub fn until_closed(&self, slot: u16) {
        until("its gate closes", || !self.open(slot));
    }
}

/// Request that changes the policy of all devices.
pub fn set_policy(name: &str) -> Request {
    Request::PolicySet { name: name.into(), params: Vec::new(), device: None }
}
