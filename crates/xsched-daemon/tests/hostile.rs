//! Clients that send nonsense: the daemon drops and counts them, and serves the others as before.

mod support;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use support::{Client, Daemon, connect, hello, is_hung_up, memfd, own_pidfd, receive, seals, send, send_raw};
use xsched_proto::hint::Hints;
use xsched_proto::segment::{GROUPS, SEGMENT_BYTES};
use xsched_proto::wire::{
    ClientMsg, DaemonMsg, Described, GroupInfo, Levels, MAX_PACKET, Platform, ProgramOptions, Request, Sharing, encode,
};
use xsched_testkit::until;

/// Runs `nonsense` against a daemon with a good client, and checks that the daemon drops so many clients and serves the good one.
fn beside_a_good_client(dropped: u64, nonsense: impl FnOnce(&Daemon)) {
    let daemon = Daemon::start();
    let good = daemon.attach(0);
    good.group(0, "sim:0");
    good.ready(0);
    nonsense(&daemon);
    until("all are dropped", || daemon.ps().0.dropped_clients >= dropped);
    let _high = still_serves(&daemon, &good);
    let (info, programs) = daemon.ps();
    assert_eq!((info.dropped_clients, programs.len()), (dropped, 2));
}

/// Attaches a program of priority `high`, which gets the device from the good client and gives it back.
fn still_serves(daemon: &Daemon, good: &Client) -> Client {
    let high = daemon.attach(128);
    high.group(0, "sim:0");
    high.ready(0);
    good.until_closed(0);
    high.idle(0);
    good.until_open(0);
    high
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

/// Sends a greeting with these descriptors, and returns the reason of its refusal.
fn refused(daemon: &Daemon, segment: &OwnedFd, event: &OwnedFd, pidfd: &OwnedFd) -> String {
    let socket = connect(&daemon.socket);
    send(&socket, &hello(ProgramOptions::default()), &[segment.as_fd(), event.as_fd(), pidfd.as_fd()]);
    is_hung_up(&socket).expect("a reason")
}

#[test]
fn random_bytes() {
    beside_a_good_client(200, |daemon| {
        let mut random = 0x1234_5678_9abc_def1_u64;
        for _ in 0..200 {
            let mut bytes = vec![0; 1 + (random % 200) as usize];
            for byte in &mut bytes {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                *byte = random as u8;
            }
            // This bit makes the message invalid: no message begins so.
            bytes[0] |= 0x40;
            let socket = connect(&daemon.socket);
            send_raw(&socket, &bytes, &[]).unwrap();
            assert!(is_hung_up(&socket).unwrap().contains("malformed"));
        }
    });
}

#[test]
fn good_messages_cut_short_or_with_a_tail_or_too_large() {
    let message = encode(&hello(ProgramOptions { job: Some("j".into()), ..ProgramOptions::default() })).unwrap();
    let cuts = message.len() as u64 - 1;
    beside_a_good_client(cuts + 2, |daemon| {
        let say = |bytes: &[u8]| {
            let socket = connect(&daemon.socket);
            send_raw(&socket, bytes, &[]).unwrap();
            is_hung_up(&socket).unwrap()
        };
        for len in 1..message.len() {
            say(&message[..len]);
        }
        say(&[message.as_slice(), &[0]].concat());
        assert!(say(&vec![0; MAX_PACKET + 1]).contains("too large"));
    });
}

#[test]
fn segments_that_could_shrink_or_have_another_size_or_layout() {
    beside_a_good_client(8, |daemon| {
        let (event, pidfd) = (event(), own_pidfd());
        let refused = |segment: &OwnedFd| refused(daemon, segment, &event, &pidfd);
        assert!(refused(&memfd(SEGMENT_BYTES, SealFlags::empty())).contains("not sealed"));
        assert!(refused(&memfd(SEGMENT_BYTES, SealFlags::GROW | SealFlags::SEAL)).contains("not sealed"));
        assert!(refused(&memfd(4096, seals())).contains("4096 bytes"));
        assert!(refused(&memfd(SEGMENT_BYTES + 4096, seals())).contains("bytes instead of"));
        let file = tempfile::tempfile().unwrap();
        file.set_len(SEGMENT_BYTES as u64).unwrap();
        assert!(refused(&file.into()).contains("no memfd, eventfd or pidfd"));
        assert!(refused(&event).contains("no memfd"));
        for (seals, says) in [(seals(), "another layout"), (seals() | SealFlags::WRITE, "not sealed as")] {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let empty = rustix::fs::memfd_create("test", flags).unwrap();
            rustix::fs::ftruncate(&empty, SEGMENT_BYTES as u64).unwrap();
            rustix::fs::fcntl_add_seals(&empty, seals).unwrap();
            assert!(refused(&empty).contains(says));
        }
    });
}

#[test]
fn descriptors_that_are_not_what_they_should_be() {
    beside_a_good_client(6, |daemon| {
        let segment = memfd(SEGMENT_BYTES, seals());
        let (event, pidfd) = (event(), own_pidfd());
        let init = pidfd_open(Pid::INIT, PidfdFlags::empty()).unwrap();
        assert!(refused(daemon, &segment, &event, &init).contains("another's"));
        assert!(refused(daemon, &segment, &event, &event).contains("no pidfd"));
        assert!(refused(daemon, &segment, &pidfd, &pidfd).contains("no eventfd"));
        for fds in [vec![], vec![segment.as_fd()], vec![segment.as_fd(); 5]] {
            let socket = connect(&daemon.socket);
            send_raw(&socket, &encode(&hello(ProgramOptions::default())).unwrap(), &fds).unwrap();
            is_hung_up(&socket).expect("a reason");
        }
    });
}

#[test]
fn wishes_out_of_range() {
    let none = ProgramOptions::default;
    let wishes = [
        ProgramOptions { priority: Some(256), ..none() },
        ProgramOptions { hints: Hints { weight: Some(0), ..Hints::default() }, ..none() },
        ProgramOptions { hints: Hints { weight: Some(u32::MAX), ..Hints::default() }, ..none() },
        ProgramOptions { hints: Hints { timeslice_us: Some(0), ..Hints::default() }, ..none() },
        ProgramOptions { level: Some(9), ..none() },
        ProgramOptions { job: Some("x".repeat(257)), ..none() },
        ProgramOptions { job: Some("\u{1b}[2J".into()), ..none() },
    ];
    beside_a_good_client(wishes.len() as u64, |daemon| {
        for wish in wishes {
            let socket = connect(&daemon.socket);
            let (segment, event, pidfd) = (memfd(SEGMENT_BYTES, seals()), event(), own_pidfd());
            send(&socket, &hello(wish), &[segment.as_fd(), event.as_fd(), pidfd.as_fd()]);
            is_hung_up(&socket).expect("a reason");
        }
    });
}

/// Sends such messages. `crates/xsched-engine/tests/hostile.rs` has a table of invalid slots and names; this test sends the first of them.
#[test]
fn messages_that_a_program_may_not_send() {
    let nonsense = [
        group_add(GROUPS as u16, "sim:0"),
        hello(ProgramOptions::default()),
        ClientMsg::Control { version: 1, request: Request::Ps },
    ];
    beside_a_good_client(nonsense.len() as u64, |daemon| {
        for message in nonsense {
            let client = daemon.attach(0);
            client.group(1, "sim:1");
            client.say(&message);
            is_hung_up(&client.socket).expect("a reason");
        }
    });
}

#[test]
fn messages_out_of_order_or_with_needless_descriptors() {
    beside_a_good_client(3, |daemon| {
        for message in [ClientMsg::GroupRemove { slot: 0 }, ClientMsg::QueueAdd { slot: 0, group: 0 }] {
            let socket = connect(&daemon.socket);
            send(&socket, &message, &[]);
            is_hung_up(&socket).expect("a reason");
        }
        let client = daemon.attach(0);
        let remove = encode(&ClientMsg::GroupRemove { slot: 0 }).unwrap();
        send_raw(&client.socket, &remove, &[client.eventfd.as_fd()]).unwrap();
        is_hung_up(&client.socket).expect("a reason");
        // An answer without a question is ignored.
        let other = daemon.attach(0);
        let lines = vec![Described::Note { text: "hello".into() }];
        other.say(&ClientMsg::Description { token: 77, more: false, lines });
        other.group(0, "sim:3");
    });
}

#[test]
fn counters_and_state_words_full_of_nonsense() {
    beside_a_good_client(1, |daemon| {
        let client = daemon.attach(0);
        for slot in 0..GROUPS as u16 {
            client.group(slot, "sim:0");
        }
        for queue in &client.segment().queues {
            queue.group.store(u32::MAX, SeqCst);
            queue.shared.launches.store(u64::MAX, SeqCst);
        }
        for counter in &client.segment().counters {
            counter.queue.store(u32::MAX, SeqCst);
            counter.counter.launches.store(u64::MAX, SeqCst);
        }
        client.words(0).inherited_priority.store(i32::MAX, SeqCst);
        client.words(1).launches_retired.store(u64::MAX, SeqCst);
        client.ready(0);
        until("it is ready", || daemon.ps().1.iter().any(|p| p.groups.len() == GROUPS));
        client.set_state(3, 12_345);
        assert!(is_hung_up(&client.socket).unwrap().contains("state word"));
    });
}

fn group_add(slot: u16, device: &str) -> ClientMsg {
    ClientMsg::GroupAdd {
        slot,
        device: device.into(),
        platform: Platform::Sim,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ONE,
        sharing: Sharing::Time,
    }
}

/// Adds a group, which the daemon answers, and removes it. Returns false when the connection is over.
fn add_and_remove(client: &Client) -> bool {
    let add = group_add(0, "sim:1");
    let sent = |message| send_raw(&client.socket, &encode(message).unwrap(), &[]).is_ok();
    sent(&add) && sent(&ClientMsg::GroupRemove { slot: 0 })
}

#[test]
fn a_client_that_does_not_read_its_answers() {
    beside_a_good_client(1, |daemon| {
        let client = daemon.attach(0);
        let mut sent = 0;
        while add_and_remove(&client) {
            sent += 1;
            assert!(sent < 100_000, "it goes on for ever");
        }
    });
}

#[test]
fn a_client_that_reads_late_stays() {
    let daemon = Daemon::start();
    let client = daemon.attach(0);
    // More messages than the socket holds, with and without answers.
    const ANSWERS: usize = 600;
    for _ in 0..ANSWERS {
        assert!(add_and_remove(&client));
    }
    client.say(&group_add(0, "sim:0"));
    let answered = |slot: u16| match receive(&client.socket) {
        Some((DaemonMsg::GroupAdded { slot: s, .. }, _)) if s == slot => (),
        other => panic!("{other:?}"),
    };
    // More queues than a list in one message has room for.
    const MANY: u16 = 3_000;
    for slot in 0..MANY {
        client.queue(slot, 0);
    }
    let all = |groups: &[GroupInfo]| groups.iter().any(|g| g.queues.len() == usize::from(MANY));
    until("it has all its queues", || all(&daemon.ps().1[0].groups));
    for _ in 0..=ANSWERS {
        answered(0);
    }
    assert_eq!(daemon.ps().0.dropped_clients, 0);
}

/// Starts a daemon with limits for the test's user. Also returns a function that attaches a further program and returns the refusal.
fn with_limits(limits: &str) -> (Daemon, impl Fn(&Daemon) -> Option<String>) {
    let daemon = Daemon::start_with(|o| {
        let uid = rustix::process::geteuid().as_raw();
        let path = o.socket.parent().unwrap().with_extension("toml");
        std::fs::write(&path, format!("[limits.users.{uid}]\n{limits}")).unwrap();
        o.config = vec![path];
    });
    let refused = |daemon: &Daemon| {
        let (socket, event) = (connect(&daemon.socket), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let segment = memfd(SEGMENT_BYTES, seals());
        send(&socket, &hello(ProgramOptions::default()), &[segment.as_fd(), event.as_fd(), own_pidfd().as_fd()]);
        is_hung_up(&socket)
    };
    (daemon, refused)
}

#[test]
fn what_the_daemon_keeps_for_the_programs_of_a_user_is_bounded() {
    for (limits, what) in [("mapped_mib = 11\n", "MiB mapped"), ("descriptors = 9\n", "descriptors")] {
        let (daemon, refused) = with_limits(limits);
        let (first, _second) = (daemon.attach(0), daemon.attach(0));
        let line = refused(&daemon).expect("a line");
        assert!(line.contains(what) && line.contains("as many as a user may have"), "{line}");
        // A program that leaves makes room for another one.
        drop(first);
        until("one has left", || daemon.ps().1.len() == 1);
        drop(daemon.attach(0));
    }
}

#[test]
fn queues_of_a_user_are_bounded_over_all_of_its_programs() {
    let (daemon, _) = with_limits("queues = 3\n");
    let (first, second) = (daemon.attach(0), daemon.attach(0));
    [&first, &second].iter().for_each(|client| _ = client.group(0, "sim:0"));
    first.queue(0, 0);
    first.queue(1, 0);
    // The daemon reads the messages of different programs in any order.
    let queues =
        || daemon.ps().1.iter().flat_map(|program| &program.groups).map(|group| group.queues.len()).sum::<usize>();
    until("the first has two", || queues() == 2);
    second.queue(0, 0);
    // Announced again, a queue moves to another group: the number of queues stays, so that this works even at the limit.
    until("the second has one", || queues() == 3);
    second.queue(0, 0);
    assert_eq!(daemon.ps().1.len(), 2);
    second.say(&ClientMsg::QueueRemove { slot: 0 });
    second.queue(1, 0);
    second.queue(2, 0);
    let line = is_hung_up(&second.socket).expect("a line");
    assert!(line.contains("has 3 queues, as many as a user may have"), "{line}");
    until("it is forgotten", || daemon.ps().1.len() == 1);
    first.queue(2, 0);
    until("the other has room for one", || daemon.ps().1[0].groups[0].queues.len() == 3);
}

#[test]
fn connections_that_say_nothing_or_come_and_go() {
    beside_a_good_client(0, |daemon| {
        let silent: Vec<_> = (0..100).map(|_| connect(&daemon.socket)).collect();
        for _ in 0..100 {
            drop(connect(&daemon.socket));
        }
        for _ in 0..30 {
            let client: Client = daemon.attach(7);
            client.group(0, "sim:0");
            client.ready(0);
        }
        until("those that left are forgotten", || daemon.ps().1.len() == 1);
        drop(silent);
    });
}

/// TCP socket whose end waits a quarter of an hour for the other side, returned too, to take data, which it never does.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(900))).unwrap();
    (socket.into(), other)
}

#[test]
fn descriptors_left_in_a_connection_that_is_closed() {
    let daemon = Daemon::start();
    let good = daemon.attach(0);
    good.group(0, "sim:0");
    good.ready(0);
    let mut others = Vec::new();
    // Descriptors after garbage, after an empty packet, more in a packet than a greeting has, and in many connections.
    for (first, copies, connections) in [(&[0x7f][..], 1, 1), (&[], 1, 1), (&[0x7f], 200, 1), (&[0x7f], 1, 40)] {
        for _ in 0..connections {
            let (fd, other) = lingering();
            // The other ends stay open, so that closing would take long; a failed test does not wait for them.
            others.push(other);
            let fd = std::mem::ManuallyDrop::new(fd);
            // Descriptors sent before the daemon ended the connection are in its buffer.
            until("some are left there", || {
                let socket = connect(&daemon.socket);
                send_raw(&socket, first, &[]).unwrap();
                send_raw(&socket, &[0], &vec![fd.as_fd(); copies]).is_ok()
            });
            // The last reference is usually the daemon's. If it is this one, closing it makes this thread wait.
            std::thread::spawn(move || drop(std::mem::ManuallyDrop::into_inner(fd)));
        }
        still_serves(&daemon, &good);
    }
}

#[test]
fn descriptors_that_are_slow_to_close() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    beside_a_good_client(120, |daemon| {
        let before = threads();
        let mut others = Vec::new();
        let pidfd = own_pidfd();
        for _ in 0..120 {
            let (fd, other) = lingering();
            others.push(other);
            let socket = connect(&daemon.socket);
            let fds = [fd.as_fd(), fd.as_fd(), pidfd.as_fd()];
            send(&socket, &hello(ProgramOptions::default()), &fds);
            std::thread::spawn(move || drop(fd));
            assert!(is_hung_up(&socket).unwrap().contains("no memfd, eventfd or pidfd"));
        }
        // One thread for each descriptor would stay; the other tests beside this one have fewer.
        until("few threads are left", || threads() < before + 60);
    });
}

/// A file outside every mounted tree has a path of its maker's choice in `/proc`, as has a file of another mount namespace.
#[test]
fn a_file_with_the_name_of_a_memfd() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::ffi::CString::new(folder.path().to_str().unwrap()).unwrap();
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a C string; the call makes a descriptor or fails.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    if tree < 0 {
        let error = std::io::Error::last_os_error();
        return xsched_testkit::skipped(&format!("a file with the name of a memfd: only root can make one: {error}"));
    }
    // SAFETY: made just now and owned by nothing else.
    let tree = unsafe { OwnedFd::from_raw_fd(tree as i32) };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&tree, "memfd:x", flags, Mode::RWXU).unwrap();
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert_eq!(link.to_str(), Some("/memfd:x"));
    beside_a_good_client(1, |daemon| {
        let why = refused(daemon, &file, &event(), &own_pidfd());
        assert!(why.contains("no memfd, eventfd or pidfd"), "{why}");
    });
}
