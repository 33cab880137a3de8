mod faults;
mod journal;
mod optional;
mod outcomes;
mod pieces;
mod scheduler;
mod trust;

use std::os::fd::AsFd;

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use tempfile::TempDir;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{COUNTERS, GROUPS, MAGIC, QUEUES, SEGMENT_BYTES};
use xsched_proto::wire::{self, ClientMsg, DaemonMsg, MAX_PACKET, ProgramOptions, Request};

use super::*;
use crate::Options;
use crate::net::{Answering, Conn, Stage};
use crate::server::clock::now_ns;
use crate::tuning::{
    COMMAND_OUT_MAX_BYTES, COMMANDS_ROOM, ENDED_QUEUES_MAX, EVENTS_MAX, PROGRAM_SOCKET_MAX_BYTES, RATION_TIMES,
    SILENT_NS, SOCKET_MAX_BYTES, UNREAD_NS, USER_ANSWERS_MAX, USER_OUT_MAX_BYTES,
};
use rustix::event::epoll::{self, EventFlags};

/// Users other than root and the daemon's own.
const ONE: u32 = 60_001;
const OTHER: u32 = 60_002;

/// Daemon that does a slice of work at each call. Its clients are of this process; their users are pretended.
struct World {
    server: Server,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    folder: TempDir,
}

impl World {
    fn new() -> World {
        World::with(|_| ())
    }

    /// Starts a daemon with other options.
    fn with(change: impl FnOnce(&mut Options)) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("run").join("xsched.sock");
        let mut options = Options {
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
        };
        change(&mut options);
        let server = Server::new(&options).expect("a daemon");
        World { server, events: Vec::with_capacity(EVENTS_MAX), buffer: vec![0; MAX_PACKET], folder }
    }

    fn turn(&mut self) {
        self.server.turn(&mut self.events, &mut self.buffer).expect("events");
    }

    /// Takes turns until no work is left. Panics if that does not happen.
    fn settle(&mut self) {
        let mut turns = 0;
        while !self.server.net.work.is_empty()
            || self.server.net.rations.commands.due_ns().is_some()
            || self.server.net.rations.messages.due_ns().is_some()
        {
            self.turn();
            turns += 1;
            assert!(turns < 1_000, "there is work for ever");
        }
    }

    /// Connects as a user. Returns the connection and its number.
    fn connect(&mut self, uid: u32) -> (OwnedFd, u64) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        let address = SocketAddrUnix::new(self.folder.path().join("run").join("xsched.sock")).expect("an address");
        rustix::net::connect(&socket, &address).expect("it listens");
        let before = self.server.net.conns.len();
        while self.server.net.conns.len() == before {
            self.turn();
        }
        // The connection accepted last has the highest number.
        let id = self.server.net.conns.keys().copied().max().expect("just accepted");
        self.server.net.conns.get_mut(&id).expect("just accepted").user = crate::identity::pretended(uid);
        (socket, id)
    }

    /// Does the work that is due at a time.
    fn at(&mut self, now_ns: u64) {
        self.server.set_now(now_ns);
        self.server.arm();
        self.server.do_due();
    }

    fn too_many(&self, pid: u32, user: crate::identity::User) -> Option<&'static str> {
        self.server.net.too_many_connections(pid, user, &|uid, own| self.server.config.bounds(uid, own).connections)
    }

    fn kept_bytes(&self, uid: u32) -> usize {
        self.server.net.conns.values().filter(|c| c.user.uid == uid).map(|c| c.out_bytes).sum()
    }
}

fn ask(socket: &OwnedFd, request: Request) -> bool {
    let message = ClientMsg::Control { version: PROTOCOL_VERSION, request };
    let packet = wire::encode(&message).expect("a message");
    rustix::net::send(socket, &packet, SendFlags::NOSIGNAL).is_ok()
}

/// Messages that have arrived.
fn received(socket: &OwnedFd) -> Vec<DaemonMsg> {
    let mut buffer = vec![0; MAX_PACKET];
    let mut all = Vec::new();
    while let Ok((len, _)) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())
        && len > 0
    {
        all.push(wire::decode(&buffer[..len]).expect("a message"));
    }
    all
}

fn note() -> DaemonMsg {
    DaemonMsg::Note { text: "x".repeat(60_000) }
}

/// Sends notes to a connection until one is kept.
fn fill(world: &mut World, id: u64) {
    while world.server.net.conns[&id].out.is_empty() {
        world.server.net.send(id, &note(), &[]);
        assert!(world.server.net.doomed.is_empty());
    }
}

#[test]
fn the_loop_sleeps_until_a_user_has_time_again_and_others_are_heeded_meanwhile() {
    let used_ns = 5_000_000;
    // Repeated if the machine was so late that the time had come by the first turn.
    let (mut world, _sockets, due_ns) = loop {
        let mut world = World::new();
        let [(one, of_one), (other, of_other)] = [ONE, OTHER].map(|uid| world.connect(uid));
        let server = &mut world.server;
        let due_ns = server.now_ns + used_ns * RATION_TIMES;
        server.net.rations.wakes.charge(server.net.conns[&of_one].user, server.now_ns, used_ns);
        for id in [of_one, of_other] {
            server.net.rations.wakes.push(server.net.conns[&id].user, id);
        }
        world.turn();
        if world.server.now_ns < due_ns {
            break (world, [one, other], due_ns);
        }
    };
    assert_eq!(world.server.net.rations.wakes.due_ns(), Some(due_ns), "the other's is heeded at once");
    let mut turns = 0;
    while world.server.net.rations.wakes.due_ns().is_some() {
        world.turn();
        turns += 1;
    }
    // Nothing else wakes the loop before the connections count as silent.
    assert!((due_ns..due_ns + SILENT_NS / 2).contains(&world.server.now_ns));
    assert!(turns <= 3, "{turns} turns while nothing was to be done");
}

/// Segment and eventfd that a client hands over: in the segment nothing is used, the eventfd wakes the daemon.
fn segment_and_eventfd() -> (OwnedFd, OwnedFd) {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&file, SEGMENT_BYTES as u64).expect("room");
    let header = [MAGIC, PROTOCOL_VERSION, GROUPS as u32, QUEUES as u32, COUNTERS as u32, 0, 0];
    let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(rustix::io::pwrite(&file, &bytes, 0), Ok(bytes.len()));
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("seals");
    (file, rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"))
}

/// Sends the greeting of a program. Returns its segment, and the descriptor that wakes the daemon.
fn say_hello(socket: &OwnedFd) -> (OwnedFd, OwnedFd) {
    let (segment, eventfd) = segment_and_eventfd();
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("its own");
    let hello = ClientMsg::Hello { version: PROTOCOL_VERSION, options: ProgramOptions::default() };
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [segment.as_fd(), eventfd.as_fd(), pidfd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let packet = wire::encode(&hello).expect("a message");
    let sent = rustix::net::sendmsg(socket, &[std::io::IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(packet.len()));
    (segment, eventfd)
}

impl World {
    /// Attaches a program of a user. Returns the connection, its number, the segment, and the descriptor that wakes the daemon.
    fn attach(&mut self, uid: u32) -> (OwnedFd, u64, OwnedFd, OwnedFd) {
        let (socket, id) = self.connect(uid);
        let (segment, eventfd) = say_hello(&socket);
        while !self.server.programs.clients.contains_key(&id) {
            self.turn();
        }
        // The daemon identified the test's own user meanwhile.
        let conn = self.server.net.conns.get_mut(&id).expect("there");
        conn.user = crate::identity::pretended(uid);
        if let Some(client) = self.server.programs.clients.get_mut(&id) {
            let mut peer = (*client.peer).clone();
            (peer.user, peer.uid) = (crate::identity::pretended(uid), uid);
            client.peer = std::sync::Arc::new(peer);
        }
        self.settle();
        (socket, id, segment, eventfd)
    }
}

#[test]
fn a_program_that_wakes_the_daemon_without_pause_does_not_keep_it_awake_once_its_user_has_no_time_left() {
    let mut world = World::new();
    let (_socket, id, _segment, eventfd) = world.attach(ONE);
    let user = crate::identity::pretended(ONE);
    let wake = || assert!(rustix::io::write(&eventfd, &1u64.to_ne_bytes()).is_ok());
    let is_muted = |world: &World| world.server.net.conns[&id].wake.as_ref().is_some_and(|wake| wake.is_muted);
    let used_ns = 5_000_000;
    world.server.now_ns = now_ns();
    let due_ns = world.server.now_ns + used_ns * RATION_TIMES;
    world.server.net.rations.wakes.charge(user, world.server.now_ns, used_ns);
    wake();
    world.turn();
    assert!(is_muted(&world));
    let mut turns = 0;
    while is_muted(&world) {
        wake();
        world.turn();
        turns += 1;
    }
    assert!(world.server.now_ns >= due_ns);
    assert!(turns <= 3, "{turns} turns while nothing was to be done");
    // All wake-ups of the meantime are handled, and none is reported twice.
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let told = world.server.net.wait(&mut events, true).map(|()| events.len());
    assert_eq!((told, world.server.net.rations.wakes.due_ns()), (Ok(0), None));
}

#[test]
fn a_program_that_speaks_without_pause_does_not_keep_the_daemon_awake_once_its_user_has_no_time_left() {
    let mut world = World::new();
    let (socket, id, _segment, _eventfd) = world.attach(ONE);
    let user = crate::identity::pretended(ONE);
    let packet = wire::encode(&ClientMsg::ProgramHint { hints: Hints::default() }).expect("a message");
    let speak = || assert_eq!(rustix::net::send(&socket, &packet, SendFlags::NOSIGNAL), Ok(packet.len()));
    let used_ns = 20_000_000;
    world.server.now_ns = now_ns();
    let due_ns = world.server.now_ns + used_ns * RATION_TIMES;
    world.server.net.rations.messages.charge(user, world.server.now_ns, used_ns);
    let mut turns = 0;
    while world.server.now_ns < due_ns {
        speak();
        world.turn();
        turns += 1;
    }
    assert!(turns <= 6, "{turns} turns while nothing was to be done");
    // All messages of the meantime are heard.
    world.settle();
    assert!(world.server.net.conns.contains_key(&id));
    assert!(!crate::services::worker::readable(world.server.net.conns[&id].socket.as_fd(), Some(0)));
}

#[test]
fn a_command_of_a_user_without_time_waits_in_its_socket_while_the_loop_sleeps() {
    let mut world = World::new();
    let [(one, of_one), (other, of_other)] = [ONE, OTHER].map(|uid| world.connect(uid));
    for (socket, id) in [(&one, of_one), (&other, of_other)] {
        // The user is identified, so that the connection counts as a command.
        world.server.net.conns.get_mut(&id).expect("there").stage = Stage::Command(Answering::Nothing);
        assert!(ask(socket, Request::PolicyList));
    }
    let (user, used_ns) = (world.server.net.conns[&of_one].user, 5_000_000);
    let due_ns = world.server.now_ns + used_ns * RATION_TIMES;
    world.server.net.rations.commands.charge(user, world.server.now_ns, used_ns);
    let (mut is_answered, mut other_is, mut turns) = (false, false, 0);
    while !is_answered || !other_is {
        world.turn();
        turns += 1;
        is_answered |= !received(&one).is_empty();
        other_is |= !received(&other).is_empty();
        assert!(!is_answered || world.server.now_ns >= due_ns, "too soon");
    }
    assert!(world.server.now_ns < due_ns + SILENT_NS / 2);
    assert!(turns < 40, "{turns} turns while nothing was to be done");
}

#[test]
fn a_request_of_one_user_is_answered_before_the_backlog_of_another() {
    let mut world = World::new();
    const BACKLOG: usize = 50;
    let many: Vec<_> = (0..BACKLOG).map(|_| world.connect(ONE)).collect();
    let (socket, _) = world.connect(OTHER);
    for (flooding, _) in &many {
        assert!(ask(flooding, Request::PolicyList));
    }
    assert!(ask(&socket, Request::PolicyList));
    let mut answer = Vec::new();
    while !answer.contains(&DaemonMsg::End) {
        world.turn();
        answer.extend(received(&socket));
    }
    // For each message of the other user the flooding one got one, and as many as the last slice of time had room for.
    let done = many.iter().filter(|(flooding, _)| received(flooding).contains(&DaemonMsg::End)).count();
    assert!(done < BACKLOG / 2, "{done} of {BACKLOG}");
}

#[test]
fn a_command_that_does_not_read_is_told_no_more_and_asked_no_more() {
    let mut world = World::new();
    let (socket, id) = world.connect(ONE);
    let mut asked = 0;
    // Requests until the daemon takes no more.
    loop {
        while ask(&socket, Request::PolicyList) {
            asked += 1;
        }
        let blocked = |world: &World| !world.server.net.conns[&id].out.is_empty();
        if blocked(&world) {
            break;
        }
        world.turn();
    }
    // A slice of time may have ended before the loop saw that nothing is left to do.
    world.settle();
    assert_eq!(world.server.net.conns[&id].out.len(), 1, "one message is kept");
    let interest = world.server.net.conns[&id].flags;
    assert_eq!(interest, EventFlags::OUT | EventFlags::ET, "its requests are left where they are meanwhile");
    // The command gets all answers once it reads.
    let mut ends = 0;
    loop {
        ends += received(&socket).iter().filter(|m| **m == DaemonMsg::End).count();
        if ends == asked {
            break;
        }
        world.turn();
    }
    world.settle();
    assert_eq!(world.kept_bytes(ONE), 0);
    assert_eq!(world.server.net.conns[&id].out.capacity(), 0, "the memory is given back");
}

#[test]
fn the_bytes_kept_for_a_user_are_bounded_whatever_the_number_of_its_connections() {
    let mut world = World::new();
    let many: Vec<_> = (0..20).map(|_| world.connect(ONE)).collect();
    let (_socket, other) = world.connect(OTHER);
    for _ in 0..COMMAND_OUT_MAX_BYTES / 60_000 {
        for (_, id) in &many {
            world.server.net.send(*id, &note(), &[]);
            world.server.end_conns();
            assert!(world.kept_bytes(ONE) <= USER_OUT_MAX_BYTES.0);
        }
    }
    assert!(world.server.history.dropped_clients > 0, "it was too much");
    assert!(world.kept_bytes(ONE) > USER_OUT_MAX_BYTES.0 / 2, "not all are closed");
    fill(&mut world, other);
    assert!(world.server.net.conns.contains_key(&other), "another user has bytes of its own");
}

/// A killed program is distinguished from a dropped one, whichever event reports its end first.
#[test]
fn who_hung_up_has_gone_also_where_a_message_finds_that_out() {
    for keeps_some in [false, true] {
        let mut world = World::new();
        let (socket, id) = world.connect(ONE);
        if keeps_some {
            fill(&mut world, id);
        }
        drop(socket);
        if keeps_some {
            world.server.net.flush(id);
        } else {
            world.server.net.send(id, &note(), &[]);
        }
        assert!(world.server.net.conns[&id].gone, "{keeps_some}");
        assert_eq!(world.server.net.doomed, [(id, None)]);
    }
}

#[test]
fn a_connection_that_takes_nothing_for_some_time_is_closed_and_one_that_does_stays() {
    let mut world = World::new();
    let ((_silent, silent), (slow_socket, slow)) = (world.connect(ONE), world.connect(ONE));
    for id in [silent, slow] {
        fill(&mut world, id);
        world.server.net.send(id, &note(), &[]);
    }
    let began = world.server.now_ns;
    world.server.set_now(began + UNREAD_NS - 1);
    // Reading one packet makes room for another.
    let mut buffer = vec![0; MAX_PACKET];
    rustix::net::recv(&slow_socket, &mut buffer[..], RecvFlags::empty()).expect("a message");
    world.server.net.flush(slow);
    world.at(began + UNREAD_NS - 1);
    assert!(world.server.net.doomed.is_empty());
    world.at(began + UNREAD_NS);
    assert_eq!(world.server.net.doomed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [silent]);
    assert_eq!(world.server.net.unread_at, Some(began + 2 * UNREAD_NS - 1), "the next to be looked at");
}

#[test]
fn connections_that_take_nothing_are_closed_one_in_a_piece() {
    let mut world = World::new();
    let all: Vec<_> = (0..20).map(|_| world.connect(ONE)).collect();
    for (_, id) in &all {
        // State of a connection that reads nothing.
        let conn = world.server.net.conns.get_mut(id).expect("there");
        (conn.out, conn.unread_since_ns) = ([vec![0; 8]].into(), 1_000);
        conn.stage = Stage::Command(Answering::Nothing);
    }
    world.server.net.unread_at = Some(1_000 + UNREAD_NS);
    for n in 1..=all.len() {
        assert_eq!(world.server.net.unread_at, Some(1_000 + UNREAD_NS), "at once again, after what others want");
        world.at(1_000 + UNREAD_NS);
        world.server.end_conns();
        assert_eq!(world.server.net.conns.len(), all.len() - n, "one piece ends one");
    }
    assert_eq!(world.server.net.unread_at, None);
}

#[test]
fn a_connection_that_says_nothing_is_closed_after_a_while() {
    let mut world = World::new();
    let ((_silent, silent), (said, other)) = (world.connect(ONE), world.connect(ONE));
    assert!(ask(&said, Request::PolicyList));
    while world.server.net.conns[&other].stage != Stage::Command(Answering::Nothing) {
        world.turn();
    }
    let began = world.server.net.conns[&silent].since_ns;
    world.at(began + SILENT_NS - 1);
    assert!(world.server.net.doomed.is_empty());
    world.at(began + SILENT_NS);
    assert_eq!(world.server.net.doomed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [silent]);
    assert_eq!(world.server.net.silent_at, None, "all others have spoken");
}

#[test]
fn root_finds_a_place_whatever_the_others_have_taken() {
    let mut world = World::new();
    world.server.net.max_conns = 16;
    let _all: Vec<_> = (0..14).map(|n| world.connect(ONE + n / 4)).collect();
    assert_eq!(
        world.too_many(std::process::id(), crate::identity::pretended(OTHER + 9)),
        Some("all connections are taken")
    );
    assert_eq!(world.too_many(std::process::id(), crate::identity::pretended(0)), None);
    let root: Vec<_> = (0..2).map(|_| world.connect(0)).collect();
    assert_eq!(world.too_many(std::process::id(), crate::identity::pretended(0)), Some("all connections are taken"));
    drop(root);
    world.server.net.max_conns = 100;
    let of_user = (ONE..ONE + 3)
        .map(|uid| world.too_many(std::process::id(), crate::identity::pretended(uid)))
        .collect::<Vec<_>>();
    assert_eq!(of_user, [None, None, None]);
    while world.server.net.conns.len() > 14 {
        world.turn();
    }
    world.server.net.max_conns = 40;
    let _more: Vec<_> = (4..40 / 4 + COMMANDS_ROOM).map(|_| world.connect(ONE)).collect();
    let why = "its user has as many connections as a user may have";
    assert_eq!(world.too_many(std::process::id(), crate::identity::pretended(ONE)), Some(why), "a quarter of all");
}

#[test]
fn the_last_connections_are_for_users_with_few() {
    let mut world = World::new();
    world.server.net.max_conns = 128;
    // Three quarters of those that are not root's.
    let _all: Vec<_> = (0..84).map(|n| world.connect(ONE + n / 28)).collect();
    let many = world.too_many(std::process::id(), crate::identity::pretended(ONE));
    assert_eq!(many, Some("the connections that are left are for users with few"));
    assert_eq!(world.too_many(std::process::id(), crate::identity::pretended(OTHER + 9)), None, "it has none");
    assert_eq!(world.too_many(std::process::id(), crate::identity::pretended(0)), None);
}

#[test]
fn a_containers_root_has_no_more_connections_than_another_user_though_its_number_is_roots() {
    let mut world = World::new();
    world.server.net.max_conns = 40;
    let _many: Vec<_> = (0..40 / 4 + COMMANDS_ROOM).map(|_| world.connect(0)).collect();
    let nobody = crate::identity::User::unknown(0);
    // No process can have the first id: what has ended is not known to be of this machine.
    let why = "its user has as many connections as a user may have";
    assert_eq!([1 << 23, std::process::id()].map(|pid| world.too_many(pid, nobody)), [Some(why), None]);
}

#[test]
fn what_is_told_before_a_hang_up_is_done() {
    let mut world = World::new();
    let (socket, id) = world.connect(rustix::process::geteuid().as_raw());
    let announcement = Request::Announce { job: "j".into(), program: "sh train.sh".into() };
    assert!(ask(&socket, announcement));
    drop(socket);
    while world.server.net.conns.contains_key(&id) {
        world.turn();
    }
    assert_eq!(world.server.places.expected.len(), 1, "it was announced");
}

/// Lets the daemon work until a command has its whole answer.
fn answer(world: &mut World, socket: &OwnedFd) -> Vec<DaemonMsg> {
    let mut answer = received(socket);
    while answer.last() != Some(&DaemonMsg::End) {
        world.turn();
        answer.extend(received(socket));
    }
    answer
}

#[test]
fn many_that_ask_for_ps_share_a_look_and_it_is_never_older_than_the_question() {
    let mut world = World::new();
    const MANY: usize = 20;
    let many: Vec<_> = (0..MANY).map(|_| world.connect(ONE)).collect();
    many.iter().for_each(|(socket, _)| assert!(ask(socket, Request::Ps)));
    let asks = |c: &Conn| matches!(c.stage, Stage::Command(_));
    while world.server.net.conns.values().filter(|c| asks(c)).count() < MANY {
        world.turn();
    }
    for (socket, _) in &many {
        assert!(matches!(answer(&mut world, socket)[..], [DaemonMsg::Daemon(_), DaemonMsg::End]));
    }
    assert!(world.server.services.snapshots.looks < MANY as u64, "{}", world.server.services.snapshots.looks);
    // A change before the request is part of the answer.
    let (socket, _) = &many[0];
    for dropped in 1..=3 {
        world.server.history.dropped_clients = dropped;
        assert!(ask(socket, Request::Ps));
        let told = answer(&mut world, socket);
        assert!(matches!(&told[0], DaemonMsg::Daemon(info) if info.dropped_clients == dropped), "{told:?}");
    }
}

#[test]
fn a_command_that_has_hung_up_before_it_is_told_leaves_nothing_behind() {
    let mut world = World::new();
    let (socket, id) = world.connect(ONE);
    assert!(ask(&socket, Request::Ps));
    drop(socket);
    while world.server.net.conns.contains_key(&id) {
        world.turn();
    }
    let (socket, _) = world.connect(ONE);
    assert!(ask(&socket, Request::Ps));
    assert_eq!(answer(&mut world, &socket).len(), 2);
}

#[test]
fn the_memory_of_a_segment_goes_with_its_process_whoever_keeps_it_and_counts_until_then() {
    let mut world = World::new();
    let blocks = |file: &OwnedFd| rustix::fs::fstat(file).expect("a file").st_blocks;
    let (socket, id, segment, _eventfd) = world.attach(ONE);
    assert!(blocks(&segment) > 0);
    drop(socket);
    while world.server.net.conns.contains_key(&id) {
        world.turn();
    }
    // The process of the segment is this one, which has not ended.
    assert_eq!((world.server.programs.abandoned.len(), blocks(&segment) > 0), (1, true));
    let (socket, other, other_segment, _other_eventfd) = world.attach(OTHER);
    assert!(world.server.programs.abandoned.contains_key(&id), "that is another's segment");
    drop(socket);
    while world.server.net.conns.contains_key(&other) {
        world.turn();
    }
    assert!(world.server.too_much_kept(crate::identity::pretended(ONE)).is_none());
    world.server.net.max_conns = world.server.net.conns.len() + 2;
    let why = world.server.too_much_kept(crate::identity::pretended(ONE)).expect("two abandoned ones take all places");
    assert!(why.line().contains("all users together have as many programs"), "{}", why.line());
    let (_one, _) = world.connect(ONE);
    world.server.net.max_conns = 4;
    let why = world.server.too_much_kept(crate::identity::pretended(ONE)).expect("a quarter of all");
    assert!(why.line().contains("1 processes that have left"), "{}", why.line());
    // A segment that is attached again is no longer abandoned.
    world.server.adopt_segment(
        crate::identity::pretended(OTHER),
        crate::programs::memory::file_id(&other_segment).expect("a file"),
    );
    assert_eq!(world.server.programs.abandoned.keys().copied().collect::<Vec<_>>(), [id]);
    world.server.abandoned_process_ended(id);
    assert_eq!((world.server.programs.abandoned.len(), blocks(&segment)), (0, 0));
}

#[test]
fn texts_that_wait_take_no_more_memory_than_is_kept_of_them() {
    let long = || "x".repeat(40_000);
    let options = ProgramOptions {
        command: vec!["python3".into(), long()],
        title: Some(long()),
        exe: long(),
        ..ProgramOptions::default()
    };
    let options = crate::programs::client::bounded(options).expect("it may be long");
    let kept: usize = options.command.iter().map(String::capacity).sum();
    assert!(kept <= xsched_proto::program::COMMAND_MAX_BYTES, "{kept} bytes of the command");
    assert!(options.title.is_some_and(|title| title.capacity() <= xsched_proto::program::COMMAND_MAX_BYTES));
    assert!(options.exe.capacity() <= 4_096);
    let mut world = World::new();
    let (_socket, id) = world.connect(ONE);
    world.server.ask(id, Request::Announce { job: "j".into(), program: long() });
    let opening = world.server.programs.openings.get(&id).expect("it waits");
    let Opening::Command(Request::Announce { program, .. }) = opening else { panic!("another request") };
    assert!(program.capacity() <= crate::tuning::PROGRAM_MAX_BYTES);
    assert!(crate::pool::unsuitable::key(ONE, &long()).capacity() <= crate::tuning::PROGRAM_MAX_BYTES);
    let (socket, id) = world.connect(ONE);
    world.server.ask(id, Request::PoolRefused { pipe: long() });
    assert!(matches!(received(&socket)[..], [DaemonMsg::Refused(_)]));
}

#[test]
fn long_answers_of_a_user_are_few_at_a_time_and_the_others_wait() {
    let mut world = World::new();
    let many: Vec<_> = (0..3 * USER_ANSWERS_MAX).map(|_| world.connect(ONE)).collect();
    for (_, id) in &many {
        // The command has read nothing yet.
        fill(&mut world, *id);
        world.server.control(*id, Request::Trace { from: 0, since_us: 0 });
    }
    let under_way = |world: &World| world.server.long_answers().values().sum::<usize>();
    assert_eq!((under_way(&world), world.server.commands.waiting.len()), (USER_ANSWERS_MAX, 2 * USER_ANSWERS_MAX));
    let (other, id) = world.connect(OTHER);
    world.server.control(id, Request::Trace { from: 0, since_us: 0 });
    assert_eq!(under_way(&world), USER_ANSWERS_MAX + 1, "another user's is begun");
    world.server.net.enqueue(id);
    assert!(!answer(&mut world, &other).is_empty());
    // A command that waits and leaves has no trace afterwards.
    let (gone, id) = world.connect(ONE);
    world.server.control(id, Request::Trace { from: 0, since_us: 0 });
    drop(gone);
    world.server.net.doomed.push((id, None));
    world.server.end_conns();
    assert_eq!(world.server.commands.waiting.len(), 2 * USER_ANSWERS_MAX);
    for (socket, id) in &many {
        world.server.net.enqueue(*id);
        assert!(!answer(&mut world, socket).is_empty());
        assert!(under_way(&world) <= USER_ANSWERS_MAX);
    }
    assert!(world.server.commands.waiting.is_empty());
}

#[test]
fn a_program_that_ended_is_told_with_few_queues_only() {
    for (queues, told) in [(ENDED_QUEUES_MAX, ENDED_QUEUES_MAX), (ENDED_QUEUES_MAX + 1, 0)] {
        let mut world = World::new();
        let (socket, id, _segment, _eventfd) = world.attach(ONE);
        let add = ClientMsg::GroupAdd {
            slot: 0,
            device: "sim:0".into(),
            platform: wire::Platform::Sim,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: wire::Levels::ONE,
            sharing: wire::Sharing::Time,
        };
        world.server.program_message(id, add).expect("a group");
        for slot in 0..queues as u16 {
            world.server.program_message(id, ClientMsg::QueueAdd { slot, group: 0 }).expect("a queue");
        }
        drop(socket);
        while world.server.net.conns.contains_key(&id) {
            world.turn();
        }
        let now_ns = world.server.now_ns;
        let ended = world.server.history.ended.iter(now_ns).next().expect("it ended").info(now_ns);
        assert_eq!(ended.groups[0].queues.len(), told);
        assert!(wire::encode(&DaemonMsg::Program(Box::new(ended))).is_ok(), "it fits into a message");
    }
}

#[test]
fn what_the_other_side_does_not_read_takes_a_bounded_part_of_the_daemons_memory() {
    let mut world = World::new();
    let room = |world: &World, id: u64| {
        rustix::net::sockopt::socket_send_buffer_size(&world.server.net.conns[&id].socket).expect("a socket")
    };
    let (socket, id) = world.connect(ONE);
    assert!(room(&world, id) <= SOCKET_MAX_BYTES);
    world.server.net.send(id, &DaemonMsg::Note { text: "x".repeat(MAX_PACKET - 16) }, &[]);
    assert_eq!((received(&socket).len(), world.server.net.doomed.len()), (1, 0), "the largest message fits");
    let (_socket, id, _segment, _eventfd) = world.attach(ONE);
    assert!(room(&world, id) <= PROGRAM_SOCKET_MAX_BYTES);
}
