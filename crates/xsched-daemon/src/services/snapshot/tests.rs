use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use xsched_policy::ProgramId;
use xsched_proto::wire::{self, DaemonInfo, DaemonMsg, MAX_PACKET};
use xsched_testkit::until;

use super::*;
use crate::history::ended::Ended;
use crate::history::recent::Recent;

/// Users that are neither root nor the daemon's own.
const ONE: u32 = 60_001;
const OTHER: u32 = 60_002;

/// Snapshot of a daemon without programs, with some ended programs of these users.
fn sight(policy: &str, ended: &[(u32, u32)]) -> Sight {
    let mut list = Ended::default();
    for (uid, pid) in ended {
        list.push(crate::identity::pretended(*uid), ProgramId(0), 1, crate::history::ended::tests::program(*pid));
    }
    Sight {
        now_ns: 2,
        started_ns: 0,
        daemon: DaemonInfo {
            pid: 1,
            version: String::new(),
            policy: policy.into(),
            device_policies: Default::default(),
            uptime_s: 0,
            dropped_clients: 0,
            hidden_programs: 0,
            configuration: Vec::new(),
            configuration_fault: None,
            scheduler_failure: None,
            warnings: Vec::new(),
            panics: 0,
        },
        recent: Recent::default(),
        devices: Vec::new(),
        programs: Vec::new(),
        refused: Vec::new(),
        ended: list.iter(2).cloned().collect(),
    }
}

/// An asker, and the other end of its socket.
fn asker(conn: u64, uid: u32) -> (Asker, OwnedFd) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
    (Asker { conn, epoch: 0, user: crate::identity::pretended(uid), all: true, socket: ours }, theirs)
}

fn root() -> User {
    crate::identity::pretended(0)
}

/// Policies and process ids in the messages that have arrived, and `end`.
fn received(socket: &OwnedFd) -> Vec<String> {
    let mut buffer = vec![0; MAX_PACKET];
    let mut all = Vec::new();
    while let Ok((len, _)) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT)
        && len > 0
    {
        all.push(match wire::decode(&buffer[..len]).expect("a message") {
            DaemonMsg::Daemon(info) => info.policy,
            DaemonMsg::Program(info) => info.pid.to_string(),
            DaemonMsg::End => "end".into(),
            other => panic!("{other:?}"),
        });
    }
    all
}

#[test]
fn each_user_is_told_of_its_own_programs_and_root_of_all() {
    let mut snapshots = Snapshots::new().expect("events");
    let mut sockets = Vec::new();
    for (conn, uid) in [(1, ONE), (2, OTHER), (3, 0)] {
        let (asker, socket) = asker(conn, uid);
        let user = asker.user;
        let sight = sight("p", &[(ONE, 11), (OTHER, 12), (ONE, 13)]);
        assert!(snapshots.deliver(user, sight, vec![asker], 0).is_ok());
        sockets.push(socket);
    }
    let mut told = Vec::new();
    until("all are told", || {
        told.extend(snapshots.take());
        told.len() == 3
    });
    assert!(told.iter().all(|told| told.failed.is_none()));
    let received: Vec<Vec<String>> = sockets.iter().map(received).collect();
    assert_eq!(received, [vec!["p", "11", "13", "end"], vec!["p", "12", "end"], vec!["p", "11", "12", "13", "end"]]);
}

#[test]
fn an_answer_that_is_read_late_goes_on_with_the_last_look_and_keeps_no_older_one() {
    let mut answers = Answers::default();
    let many: Vec<(u32, u32)> = (1..=1_000).map(|pid| (ONE + pid % 20, pid)).collect();
    let (late, socket) = asker(1, 0);
    answers.begin(root(), Sheet::new(sight("first", &many), root()), vec![late]);
    while answers.full.is_empty() {
        assert!(answers.go_on().is_empty(), "the socket has no room for all");
    }
    let before = received(&socket);
    assert_eq!(before[0], "first");
    let (other, other_socket) = asker(2, 0);
    answers.begin(root(), Sheet::new(sight("second", &many), root()), vec![other]);
    let more = eventfd(0, EventfdFlags::CLOEXEC).expect("an event");
    let (mut after, mut others, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    until("both are told", || {
        ended.extend(answers.wait_for_room(more.as_fd()));
        ended.extend(answers.go_on());
        after.extend(received(&socket));
        others.extend(received(&other_socket));
        ended.len() == 2
    });
    let told: Vec<String> = before.into_iter().chain(after).skip(1).collect();
    assert_eq!(told, others[1..], "each program once, though the look is another");
    assert!(answers.sheets.is_empty(), "nothing is kept for no answer");
}

#[test]
fn one_that_takes_nothing_or_hangs_up_is_told_no_more() {
    let mut answers = Answers::default();
    let many: Vec<(u32, u32)> = (1..=1_000).map(|pid| (ONE + pid % 20, pid)).collect();
    let ((silent, _silent), (gone, hung_up)) = (asker(1, 0), asker(2, 0));
    drop(hung_up);
    answers.begin(root(), Sheet::new(sight("p", &many), root()), vec![silent, gone]);
    let mut ended = Vec::new();
    while answers.full.is_empty() {
        ended.extend(answers.go_on());
    }
    assert_eq!(ended.iter().map(|told| (told.conn, told.failed)).collect::<Vec<_>>(), [(2, Some(Failed::Gone))]);
    let since = answers.all.get_mut(&1).expect("it is being told");
    since.since_ns = since.since_ns.saturating_sub(UNREAD_NS);
    let ended = answers.wait_for_room(eventfd(0, EventfdFlags::CLOEXEC).expect("an event").as_fd());
    assert_eq!(ended.iter().map(|told| (told.conn, told.failed)).collect::<Vec<_>>(), [(1, Some(Failed::Unread))]);
    assert!(answers.all.is_empty());
}

#[test]
fn the_next_look_of_a_user_waits_for_a_multiple_of_what_the_last_one_took_and_that_of_another_does_not() {
    let mut snapshots = Snapshots::new().expect("events");
    let [one, other] = [ONE, OTHER].map(crate::identity::pretended);
    assert_eq!(snapshots.deadline_ns(), None, "nothing is asked");
    snapshots.ask(one, 1, false);
    assert!(snapshots.is_due(0), "the first one is taken at once");
    assert_eq!(snapshots.next(0), Some((one, vec![(1, false)])));
    snapshots.ask(one, 1, false);
    let before = now_ns();
    let (asker, _socket) = asker(1, ONE);
    assert!(snapshots.deliver(one, sight("p", &[]), vec![asker], 1_000_000).is_ok());
    let mut next = None;
    until("the messages are made", || {
        next = snapshots.deadline_ns();
        next.is_some()
    });
    let rest = Duration::from_nanos(next.expect("it was asked") - before);
    assert!(rest >= Duration::from_millis(SIGHT_REST), "{rest:?}");
    assert!(!snapshots.is_due(before) && snapshots.is_due(before + 1_000_000_000));
    assert_eq!(snapshots.next(before + 1_000_000_000), Some((one, vec![(1, false)])));
    snapshots.ask(one, 1, false);
    snapshots.ask(other, 2, true);
    assert!(snapshots.is_due(before), "it has had none");
    assert_eq!(snapshots.next(before), Some((other, vec![(2, true)])));
    assert_eq!(snapshots.next(before), None);
}

#[test]
fn one_that_has_read_while_the_thread_had_other_work_is_told_the_rest() {
    let more = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an event");
    let mut answers = Answers::default();
    let (one, reads) = asker(1, 0);
    let (other, _silent) = asker(2, 0);
    for asker in [&one, &other] {
        // Until there is no room.
        while socket::send(&asker.socket, &[0; 1_000], &[]).is_ok() {}
    }
    answers.begin(root(), Sheet::new(sight("hpf", &[]), root()), vec![one, other]);
    assert!(answers.go_on().is_empty());
    assert_eq!(answers.full.len(), 2);
    // The messages of the next snapshot have taken long. Meanwhile one command has read everything.
    answers.all.values_mut().for_each(|answer| answer.since_ns -= 2 * UNREAD_NS);
    let mut buffer = vec![0; MAX_PACKET];
    while rustix::net::recv(&reads, &mut buffer[..], RecvFlags::DONTWAIT).is_ok() {}
    let ended: Vec<u64> = answers.wait_for_room(more.as_fd()).into_iter().map(|told| told.conn).collect();
    assert_eq!(ended, [2]);
    answers.go_on();
    assert_eq!(received(&reads), ["hpf", "end"]);
}
