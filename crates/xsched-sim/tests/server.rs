//! The server against clients that violate the protocol: they are dropped, and the others go on.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;
use xsched_sim::command::{Action, Command, Condition, Fault, KernelOp, Place, Width};
use xsched_sim::layout::{ARENA_BYTES, RING, STREAM_DEPTH, STREAMS, Shared};
use xsched_sim::memory::{Mapping, now_ns, sealed_memfd};
use xsched_sim::wire::{self, Request, status};
use xsched_testkit::until;

struct Server {
    folder: tempfile::TempDir,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("sock");
        let thread = std::thread::spawn({
            let socket = socket.clone();
            move || xsched_sim::server::run(&socket, Some(Duration::from_millis(100)))
        });
        // The socket's file appears before the server listens.
        until("the server answers", || connect(&socket).is_ok() || thread.is_finished());
        assert!(!thread.is_finished(), "the server does not come up");
        Self { folder, thread: Some(thread) }
    }

    fn connect(&self) -> OwnedFd {
        connect(&self.folder.path().join("sock")).unwrap()
    }

    fn client(&self) -> Client {
        self.client_by(Request::Context { device: 0 })
    }

    fn client_by(&self, greeting: Request) -> Client {
        let socket = self.connect();
        let (reply, fds) = ask(&socket, greeting, &[]).unwrap();
        assert_eq!(reply[0], status::OK);
        let [control, arena, bell] = <[OwnedFd; 3]>::try_from(fds).unwrap();
        let arena = Mapping::new(arena, 0, ARENA_BYTES).unwrap();
        Client { socket, arena, bell, shared: Mapping::new(control, 0, size_of::<Shared>()).unwrap() }
    }

    /// Checks that a well-behaved client still gets its work done.
    fn works(&self) {
        let client = self.client();
        client.give(Action::Kernel { op: KernelOp::Fill, count: 4, duration_ns: 1000, x: 0, y: 64, a: 2.5 });
        client.await_completed(1);
        // SAFETY: inside the arena, which is mapped.
        let result = unsafe { client.arena.base().add(64).cast::<[f32; 5]>().read_volatile() };
        assert_eq!(result, [2.5, 2.5, 2.5, 2.5, 0.0]);
    }
}

impl Drop for Server {
    /// Checks that the server ends by itself after its last client, without an error.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.thread.take().unwrap().join().unwrap().unwrap();
            assert!(!self.folder.path().join("sock").exists());
        }
    }
}

struct Client {
    socket: OwnedFd,
    arena: Mapping,
    bell: OwnedFd,
    shared: Mapping,
}

impl Client {
    fn shared(&self) -> &Shared {
        // SAFETY: this size, page-aligned, all atomics.
        unsafe { &*self.shared.base().cast() }
    }

    /// Waits until the first stream has completed this many commands.
    #[track_caller]
    fn await_completed(&self, commands: u64) {
        until("the commands are complete", || self.shared().streams[0].completed.load(Acquire) >= commands);
    }

    fn give(&self, action: Action) {
        self.give_to(0, action);
    }

    fn give_to(&self, stream: u32, action: Action) {
        let head = self.shared().client.head.load(Relaxed);
        self.shared().ring[head as usize % RING].put(now_ns(), &Command { stream, action });
        self.shared().client.head.store(head + 1, Release);
        self.ring();
    }

    fn ring(&self) {
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Checks that the server has ended this connection.
    fn dropped(&self) {
        let answer = wire::receive(&self.socket);
        assert!(answer.is_err(), "{answer:?}");
    }
}

fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn ask(socket: &OwnedFd, request: Request, fds: &[&OwnedFd]) -> io::Result<(wire::Words, Vec<OwnedFd>)> {
    use rustix::fd::AsFd;
    wire::send(socket, request.encode(), &fds.iter().map(|fd| fd.as_fd()).collect::<Vec<_>>())?;
    wire::receive(socket)
}

#[test]
fn first_requests_are_answered_and_strangers_dropped() {
    let server = Server::new();
    assert_eq!(ask(&server.connect(), Request::Count, &[]).unwrap().0[..2], [status::OK, 1]);
    assert_eq!(ask(&server.connect(), Request::Context { device: 1 }, &[]).unwrap().0[0], status::NO_DEVICE);
    assert_eq!(ask(&server.connect(), Request::Counters, &[]).unwrap().0[0], status::INVALID_VALUE);
    let socket = server.connect();
    rustix::net::send(&socket, b"GET / HTTP/1.1\r\n\r\n", SendFlags::NOSIGNAL).unwrap();
    assert!(wire::receive(&socket).is_err());
    let silent = server.connect();
    server.works();
    drop(silent);
}

#[test]
fn commands_that_are_none_end_the_client() {
    let server = Server::new();
    let kernel = |count, y| Action::Kernel { op: KernelOp::Fill, count, duration_ns: 1, x: 0, y, a: 0.0 };
    let wild = Place { region: 1, offset: 0 };
    let end = ARENA_BYTES as u64;
    for (stream, action) in [
        (STREAMS as u32, Action::Call),
        (0, kernel(1, end)),
        (0, kernel(u32::MAX, 0)),
        (0, kernel(1, 2)),
        (0, kernel(1, u64::MAX)),
        (0, Action::copy(0, end - 1, 2)),
        (0, Action::copy(0, 0, u64::MAX)),
        (0, Action::Copy { dst: 0, src: 0, bytes: 4, rows: 2, dst_pitch: end, src_pitch: 4 }),
        (0, Action::Copy { dst: 0, src: 0, bytes: 0, rows: 0, dst_pitch: 4, src_pitch: 4 }),
        (0, Action::set(end, 1, 1)),
        (0, Action::Set { dst: 0, unit: 4, pattern: 1, bytes: 6, rows: 1, pitch: 6 }),
        (0, Action::Stamp { place: Place { region: 0, offset: 4 }, duration_ns: 1 }),
        (0, Action::Record { event: u32::MAX, record: 1 }),
        (0, Action::WaitStream { stream: STREAMS as u32, count: 1 }),
        (0, Action::WaitValue { place: wild, width: Width::Word, condition: Condition::Eq, value: 1 }),
        (0, Action::WriteValue { place: Place { region: 0, offset: 2 }, width: Width::Word, value: 1 }),
        (0, Action::WriteValue { place: Place { region: 0, offset: end }, width: Width::Double, value: 1 }),
    ] {
        let client = server.client();
        client.give_to(stream, action);
        client.dropped();
    }
    server.works();
}

#[test]
fn words_out_of_range_end_the_client() {
    let server = Server::new();
    let words: [fn(&Shared); 3] = [
        |s| s.client.head.store(RING as u64 + 1, SeqCst),
        |s| s.client.head.store(1, SeqCst), // an entry never written
        |s| s.client.timeslice_ns.store(0, SeqCst),
    ];
    for spoil in words {
        let client = server.client();
        spoil(client.shared());
        client.ring();
        client.dropped();
    }
    // A stream has a limited depth: a client that never waits gets no more memory.
    let client = server.client();
    client.give(Action::WaitValue {
        place: Place { region: 0, offset: 0 },
        width: Width::Word,
        condition: Condition::Eq,
        value: 1,
    });
    for _ in 0..2 * STREAM_DEPTH {
        client.give(Action::Call);
    }
    client.dropped();
    server.works();
}

#[test]
fn stamps_and_strays_do_no_harm() {
    let server = Server::new();
    let client = server.client();
    client.give(Action::Returned); // nothing was called
    // Stamps far in the future and at the beginning of time: both complete now, in their order.
    for stamp in [u64::MAX, 0] {
        let head = client.shared().client.head.load(Relaxed);
        let action = Action::set(0, head as u8, 1);
        client.shared().ring[head as usize % RING].put(stamp, &Command { stream: 0, action });
        client.shared().client.head.store(head + 1, Release);
        client.ring();
    }
    client.await_completed(2);
    // SAFETY: inside the arena, which is mapped.
    assert_eq!(unsafe { client.arena.base().read_volatile() }, 2);
    server.works();
}

#[test]
fn registered_memory_must_be_what_it_says() {
    let server = Server::new();
    let client = server.client();
    let sealed = sealed_memfd("test", 8192).unwrap();
    let loose = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&loose, 8192).unwrap();
    let register = |region, offset, bytes, fds: &[&OwnedFd]| {
        ask(&client.socket, Request::Register { region, offset, bytes }, fds).unwrap().0[0]
    };
    assert_eq!(register(1, 0, 8192, &[&loose]), status::INVALID_VALUE, "may shrink");
    assert_eq!(register(1, 0, 8192, &[]), status::INVALID_VALUE);
    assert_eq!(register(0, 0, 8192, &[&sealed]), status::INVALID_VALUE, "the arena's number");
    assert_eq!(register(1, 4096, 8192, &[&sealed]), status::INVALID_VALUE);
    assert_eq!(register(1, 1, 4096, &[&sealed]), status::INVALID_VALUE);
    assert_eq!(register(1, u64::MAX - 4095, 4096, &[&sealed]), status::INVALID_VALUE);
    assert_eq!(register(1, 4096, 4096, &[&sealed]), status::OK);
    assert_eq!(register(1, 0, 4096, &[&sealed]), status::INVALID_VALUE, "in use");
    // A command submitted before keeps the memory that it needs.
    let words = Mapping::new(&sealed, 0, 8192).unwrap();
    client.give(Action::WaitValue {
        place: Place { region: 0, offset: 0 },
        width: Width::Word,
        condition: Condition::Eq,
        value: 9,
    });
    client.give(Action::WriteValue { place: Place { region: 1, offset: 8 }, width: Width::Word, value: 77 });
    assert_eq!(ask(&client.socket, Request::Unregister { region: 1 }, &[]).unwrap().0[0], status::OK);
    assert_eq!(ask(&client.socket, Request::Unregister { region: 1 }, &[]).unwrap().0[0], status::INVALID_VALUE);
    assert_eq!(client.shared().streams[0].completed.load(Acquire), 0);
    // SAFETY: the first word of the arena, which is mapped.
    unsafe { client.arena.base().cast::<u32>().write_volatile(9) };
    client.await_completed(2);
    // SAFETY: inside the mapping.
    assert_eq!(unsafe { words.base().add(4096 + 8).cast::<u32>().read_volatile() }, 77);
    drop(client);
    server.works();
}

/// Pages of one arena in another: only whole pages, only for a context that knows the secret, and back to the own
/// pages.
#[test]
fn memory_is_shared_with_whoever_was_told() {
    let server = Server::new();
    let (owner, other) = (server.client(), server.client());
    let ok =
        |client: &Client, request| ask(&client.socket, request, &[]).map(|(reply, _)| reply[0] == status::OK).unwrap();
    for (offset, bytes) in [(100, 4096), (4096, 100), (0, 0), (ARENA_BYTES as u64, 4096), (u64::MAX - 4095, 8192)] {
        assert!(!ok(&owner, Request::Export { offset, bytes }), "{offset} {bytes}");
    }
    let (reply, _) = ask(&owner.socket, Request::Export { offset: 8192, bytes: 8192 }, &[]).unwrap();
    let [status::OK, number, secret, ..] = reply else { panic!("{reply:?}") };
    let wanted = |secret, at, bytes| Request::Import { number, secret, at, bytes };
    assert!(!ok(&other, wanted(secret ^ 1, 4096, 8192)), "a wrong secret");
    assert!(!ok(&other, wanted(secret, 4096, 4096)), "a wrong length");
    assert!(!ok(&other, wanted(secret, 100, 8192)), "no whole pages");
    assert!(!ok(&other, wanted(secret, ARENA_BYTES as u64 - 4096, 8192)), "past the end");
    assert!(!ok(&owner, wanted(secret, 4096, 8192)), "its own");
    assert!(!ok(&other, Request::Restore { at: 4096 }), "nothing is there");
    let fill = |client: &Client, y, a| {
        let before = client.shared().streams[0].completed.load(Acquire);
        client.give(Action::Kernel { op: KernelOp::Fill, count: 1, duration_ns: 1000, x: 0, y, a });
        client.await_completed(before + 1);
    };
    // SAFETY: inside the arena, which is mapped.
    let at = |client: &Client, y: usize| unsafe { client.arena.base().add(y).cast::<f32>().read_volatile() };

    fill(&other, 4096 + 64, 1.0);
    let (reply, fds) = ask(&other.socket, wanted(secret, 4096, 8192), &[]).unwrap();
    assert_eq!((reply[0], reply[1]), (status::OK, 8192));
    other.arena.replace(4096, &fds[0], reply[1], 8192).unwrap();
    fill(&other, 4096 + 64, 2.0);
    fill(&owner, 16384 - 4, 3.0);
    assert_eq!((at(&owner, 8192 + 64), at(&other, 4096 + 8192 - 4)), (2.0, 3.0), "one memory for both");
    assert!(!ok(&other, wanted(secret, 8192, 8192)), "there is something already");
    assert!(!ok(&other, Request::Export { offset: 4096, bytes: 4096 }), "another's");
    assert!(!ok(&other, Request::Unexport { number }), "another's");

    assert!(ok(&owner, Request::Unexport { number }));
    assert!(!ok(&other, wanted(secret, 40960, 8192)), "no longer");
    fill(&owner, 8192 + 64, 4.0);
    assert_eq!(at(&other, 4096 + 64), 4.0, "who has it keeps it");
    let (reply, fds) = ask(&other.socket, Request::Restore { at: 4096 }, &[]).unwrap();
    assert_eq!(reply[0], status::OK);
    other.arena.replace(4096, &fds[0], 4096, 8192).unwrap();
    assert_eq!(at(&other, 4096 + 64), 1.0, "its own again");
    fill(&other, 4096 + 64, 5.0);
    assert_eq!((at(&owner, 8192 + 64), at(&other, 4096 + 64)), (4.0, 5.0));
    let (reply, _) = ask(&owner.socket, Request::Export { offset: 0, bytes: 4096 }, &[]).unwrap();
    let [status::OK, number, secret, ..] = reply else { panic!("{reply:?}") };
    drop(owner);
    let gone = Request::Import { number, secret, at: 4096, bytes: 4096 };
    while ok(&other, gone) {
        // The server has not noticed yet that the owner is gone.
        assert!(ok(&other, Request::Restore { at: 4096 }));
    }
    server.works();
}

impl Client {
    fn invite(&self) -> (u64, u64) {
        let (reply, _) = ask(&self.socket, Request::Invite, &[]).unwrap();
        assert_eq!(reply[0], status::OK);
        (reply[1], reply[2])
    }

    /// Submits a kernel that takes this long.
    fn run(&self, op: KernelOp, duration_ns: u64) {
        self.give(Action::Kernel { op, count: 0, duration_ns, x: 0, y: 0, a: 0.0 });
    }

    /// Stores the device's time when all commands so far are complete.
    fn stamp(&self, offset: u64) {
        self.give(Action::Stamp { place: Place { region: 0, offset }, duration_ns: 0 });
    }

    fn stamped(&self, offset: usize) -> u64 {
        // SAFETY: inside the arena, which is mapped, and aligned.
        unsafe { self.arena.base().add(offset).cast::<u64>().read_volatile() }
    }
}

/// Clients that joined by invitation share one context: its slices, its end, and a fault of any of them.
#[test]
fn members_of_a_context_share_its_turns_and_its_faults() {
    const HALF: u32 = xsched_sim::model::WHOLE / 2;
    let server = Server::new();
    let owner = server.client();
    let outside = server.client();
    let join = |(number, secret): (u64, u64)| Request::Join { number, secret, width: HALF, below: false };
    let (number, secret) = owner.invite();
    let refused = |request| ask(&server.connect(), request, &[]).unwrap().0[0] == status::INVALID_VALUE;
    assert!(refused(join((number, secret ^ 1))), "a wrong secret");
    let one = server.client_by(join((number, secret)));
    assert!(refused(join((number, secret))), "one client by each invitation");
    assert_eq!(ask(&one.socket, Request::Invite, &[]).unwrap().0[0], status::INVALID_VALUE, "the owner's business");
    assert_eq!(
        ask(&outside.socket, Request::Expel { number, at_once: true }, &[]).unwrap().0[0],
        status::INVALID_VALUE
    );
    let other = server.client_by(join(owner.invite()));

    // Each client takes half of the device, so the second does not wait for the end of the first.
    const LONG_NS: u64 = 100_000_000;
    for client in [&one, &other] {
        client.run(KernelOp::Nop, LONG_NS);
        client.stamp(0);
    }
    [&one, &other].iter().for_each(|client| client.await_completed(2));
    let ends = [&one, &other].map(|client| client.stamped(0));
    assert!(ends[0].abs_diff(ends[1]) < LONG_NS, "{ends:?}");

    // Commands that wait in the streams of a client that leaves are dropped.
    let never = Action::WaitValue {
        place: Place { region: 0, offset: 8 },
        width: Width::Word,
        condition: Condition::Eq,
        value: 1,
    };
    one.give(never);
    one.run(KernelOp::Nop, u64::MAX / 4);
    let third = server.client_by(join(owner.invite()));
    drop(one);
    other.run(KernelOp::Nop, 1000);
    other.await_completed(3);
    third.run(KernelOp::Nop, 1000);
    third.await_completed(1);
    // A client that is expelled is dropped.
    let (number, secret) = owner.invite();
    let fourth = server.client_by(join((number, secret)));
    assert_eq!(ask(&owner.socket, Request::Expel { number, at_once: true }, &[]).unwrap().0[0], status::OK);
    fourth.dropped();
    // A failed assertion ends its client's membership only; a fault ends all of the context, and nothing outside.
    let fifth = server.client_by(join(owner.invite()));
    fifth.run(KernelOp::Assert, 1000);
    until("it has failed", || fifth.shared().device.faulted.load(Acquire) == Fault::Assert as u32);
    fifth.run(KernelOp::Nop, 1000);
    third.run(KernelOp::Nop, 1000);
    third.await_completed(2);
    assert_eq!(fifth.shared().streams[0].completed.load(Acquire), 0);
    assert_eq!(owner.shared().device.faulted.load(Acquire), 0);
    other.run(KernelOp::Fault, 1000);
    until("all have faulted", || {
        [&owner, &other, &third]
            .iter()
            .all(|client| client.shared().device.faulted.load(Acquire) == Fault::Address as u32)
    });
    assert_eq!(owner.shared().device.culprit.load(Relaxed), std::process::id());
    assert_eq!(outside.shared().device.faulted.load(Acquire), 0);
    outside.run(KernelOp::Nop, 1000);
    outside.await_completed(1);
    // The end of the owner ends all members.
    drop(owner);
    third.dropped();
    server.works();
}

/// Work that the device executes for a member that is gone finishes first. If it does not, the whole context faults.
#[test]
fn a_member_that_ends_in_the_midst_of_a_kernel() {
    let server = Server::new();
    let owner = server.client();
    let join = || {
        let (number, secret) = owner.invite();
        server.client_by(Request::Join { number, secret, width: xsched_sim::model::WHOLE, below: false })
    };
    let (short, stays) = (join(), join());
    // Kernels of one member wait for those of the other: the first's are over when the second's are complete.
    const SHORT_NS: u64 = 100_000_000;
    short.stamp(0);
    short.run(KernelOp::Nop, SHORT_NS);
    short.await_completed(1);
    let began = short.stamped(0);
    drop(short);
    stays.run(KernelOp::Nop, 1000);
    stays.stamp(0);
    stays.await_completed(2);
    assert!(stays.stamped(0) - began > SHORT_NS, "the kernel was dropped");
    assert_eq!(stays.shared().device.faulted.load(Acquire), 0);
    let endless = join();
    endless.run(KernelOp::Nop, u64::MAX / 4);
    until("it runs", || endless.shared().device.tail.load(Acquire) == 1);
    drop(endless);
    until("all have faulted", || {
        [&owner, &stays].iter().all(|client| client.shared().device.faulted.load(Acquire) == Fault::Address as u32)
    });
    server.works();
}
