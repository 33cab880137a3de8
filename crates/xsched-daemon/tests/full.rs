//! Reaches the bounds of a user, which are small here: the memory that each thing takes in the daemon, in bytes, and that it is given back.
//! A test program of its own, whose allocator counts.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use rustix::event::{EventfdFlags, eventfd};
use support::{Client, Daemon, connect, hello, is_hung_up, memfd, own_pidfd, seals, send};
use xsched_proto::segment::SEGMENT_BYTES;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Levels, Platform, ProgramOptions, Request, Sharing};
use xsched_testkit::until;

/// Allocator that counts the bytes of all threads but the test's: of the daemon's threads.
struct Counting;

/// Begins above zero, since the daemon frees the options that the test allocated.
static BYTES: AtomicUsize = AtomicUsize::new(1 << 30);

thread_local! {
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

fn count(change: impl FnOnce(&AtomicUsize)) {
    // At the end of a thread its local values may be gone.
    if !IS_TEST.try_with(Cell::get).unwrap_or(false) {
        change(&BYTES);
    }
}

// SAFETY: the system's allocator does it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|bytes| _ = bytes.fetch_add(layout.size(), SeqCst));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(|bytes| _ = bytes.fetch_sub(layout.size(), SeqCst));
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bounds of the test's user.
const PROGRAMS: usize = 64;
const ALL_GROUPS: usize = 48;
const DEVICE_GROUPS: usize = 32;
const JOBS: usize = 4;
const ALL_QUEUES: usize = 4_096;
/// Number of ended programs that are reported, of the daemon's own user: `USER_ENDED_MAX`.
const ENDED: usize = 256;
/// Length of names, in bytes.
const NAME_BYTES: usize = 256;

/// Largest memory of one of each, in bytes, with the longest names and lines that the daemon keeps: a quarter more than was measured.
/// Tables have room for up to twice as many entries as they hold.
const PROGRAM_BYTES: usize = 5_200;
const GROUP_BYTES: usize = 5_800;
const QUEUE_BYTES: usize = 200;
const ENDED_BYTES: usize = 4_000;
/// Memory that may remain in use when the last program is gone, in bytes: room in tables.
const LEFT_BYTES: usize = 512 << 10;

fn name(begin: &str) -> String {
    format!("{begin:x<NAME_BYTES$}")
}

fn options(n: usize) -> ProgramOptions {
    let (command, title) = (vec!["c".repeat(16 << 10)], Some("t".repeat(8 << 10)));
    ProgramOptions { job: Some(name(&format!("job {n} "))), command, title, ..ProgramOptions::default() }
}

/// Asks for a group that the daemon refuses, which ends the connection. Returns the reason.
fn refused_group(client: &Client, slot: u16, device: &str) -> String {
    client.say(&ClientMsg::GroupAdd {
        slot,
        device: device.into(),
        platform: Platform::Sim,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ONE,
        sharing: Sharing::Time,
    });
    is_hung_up(&client.socket).expect("a reason")
}

/// Waits until this many things take no more memory than they may since `before`: an answer that is being made takes memory, too.
fn until_small(what: &str, before: usize, things: usize, each: usize) -> usize {
    let most = before + things * each;
    until(
        &format!(
            "{things} {what} take {each} bytes each at most, and now {}",
            BYTES.load(SeqCst).saturating_sub(before) / things
        ),
        || BYTES.load(SeqCst) <= most,
    );
    let now = BYTES.load(SeqCst);
    println!("{what}: {} bytes each, {each} at most", now.saturating_sub(before) / things);
    now
}

#[test]
fn each_thing_takes_a_bounded_part_of_memory_and_gives_it_back() {
    IS_TEST.set(true);
    let uid = rustix::process::geteuid().as_raw();
    // The daemon needs four descriptors for a program.
    let bounds = format!(
        "[limits.users.{uid}]\ngroups = {ALL_GROUPS}\ndevice_groups = {DEVICE_GROUPS}\njobs = {JOBS}\nqueues = {ALL_QUEUES}\n\
         descriptors = {}\n",
        4 * PROGRAMS
    );
    let daemon = Daemon::start_with(|o| {
        let config = o.socket.parent().unwrap().parent().unwrap().join("config.toml");
        std::fs::write(&config, bounds).unwrap();
        o.config = vec![config];
    });
    let programs = || daemon.ps().1.len();
    let attach = |n| Client::attach(&daemon.socket, options(n));
    // Structures that are made for the first program stay.
    let first = attach(0);
    first.group(0, "first");
    first.queue(0, 0);
    until("it has a queue", || daemon.ps().1.iter().any(|p| p.groups.iter().any(|g| !g.queues.is_empty())));
    drop(first);
    until("it is gone", || programs() == 0);
    let empty = BYTES.load(SeqCst);

    let clients: Vec<Client> = (0..PROGRAMS).map(attach).collect();
    let with_programs = until_small("programs", empty, PROGRAMS, PROGRAM_BYTES);
    let (socket, event) = (connect(&daemon.socket), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let segment = memfd(SEGMENT_BYTES, seals());
    send(&socket, &hello(options(PROGRAMS)), &[segment.as_fd(), event.as_fd(), own_pidfd().as_fd()]);
    let why = is_hung_up(&socket).expect("a reason");
    assert!(why.contains("descriptors, as many as a user may have"), "{why}");

    // The last clients send the requests that are refused, since a refusal ends the connection.
    let common = name("common ");
    for client in &clients[..DEVICE_GROUPS] {
        client.group(0, &common);
    }
    let why = refused_group(&clients[PROGRAMS - 1], 0, &common);
    assert!(why.contains(&format!("{DEVICE_GROUPS} groups on {common}, as many as a user may have")), "{why}");
    for (n, client) in clients[..JOBS].iter().enumerate() {
        client.group(1, &name(&format!("device {n} ")));
    }
    let why = refused_group(&clients[JOBS], 1, &name("device 0 "));
    assert!(why.contains(&format!("{JOBS} jobs on several devices")), "{why}");
    until("those refused are gone", || programs() == PROGRAMS - 2);
    // One program has lost its group.
    let has = DEVICE_GROUPS - 1 + JOBS;
    for (n, client) in clients.iter().enumerate().take(ALL_GROUPS).skip(has) {
        client.group(2, &name(&format!("device {n} ")));
    }
    let why = refused_group(&clients[PROGRAMS - 2], 0, "another");
    assert!(why.contains(&format!("{ALL_GROUPS} groups, as many as a user may have")), "{why}");
    until("that one, too", || programs() == PROGRAMS - 3);
    let with_groups = until_small("groups", with_programs, ALL_GROUPS, GROUP_BYTES);

    for n in 0..ALL_QUEUES {
        clients[JOBS + 1 + n / 256].queue((n % 256) as u16, 0);
    }
    let queues = || daemon.ps().1.iter().flat_map(|p| &p.groups).map(|g| g.queues.len()).sum::<usize>();
    until("the queues are there", || queues() == ALL_QUEUES);
    until_small("queues", with_groups, ALL_QUEUES, QUEUE_BYTES);
    clients[DEVICE_GROUPS - 1].say(&ClientMsg::QueueAdd { slot: 0, group: 0 });
    let why = is_hung_up(&clients[DEVICE_GROUPS - 1].socket).expect("a reason");
    assert!(why.contains(&format!("{ALL_QUEUES} queues, as many as a user may have")), "{why}");

    drop(clients);
    until("all are gone", || programs() == 0);

    let before = BYTES.load(SeqCst);
    for n in 0..ENDED {
        let client = attach(n);
        client.group(0, "one after the other");
    }
    until("all are gone", || programs() == 0);
    let ended = daemon.ask(Request::PsAll).unwrap().iter().filter(|m| matches!(m, DaemonMsg::Program(_))).count();
    assert_eq!(ended, ENDED);
    until_small("programs that ended", before, ENDED, ENDED_BYTES);
    let further = attach(ENDED);
    further.group(0, "one after the other");
    drop(further);
    until("all are gone", || programs() == 0);
    let all = daemon.ask(Request::PsAll).unwrap();
    assert_eq!(all.iter().filter(|m| matches!(m, DaemonMsg::Program(_))).count(), ENDED, "the first one is forgotten");
    until_small("things that are left", empty, 1, LEFT_BYTES + ENDED * ENDED_BYTES);
}
