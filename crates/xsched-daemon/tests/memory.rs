//! Limits of memory from the configuration and from programs, through a daemon.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;

use support::{Client, Daemon, receive};
use xsched_proto::account::{Amount, MemorySlot, UNLIMITED};
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::{ClientMsg, DaemonMsg, ProgramOptions, Request};
use xsched_testkit::until;

const GIB: u64 = 1 << 30;

fn words(client: &Client) -> &MemorySlot {
    &client.segment().memory[0]
}

/// A program that holds memory of a device of 80 GiB.
fn attach(daemon: &Daemon, options: ProgramOptions) -> Client {
    let client = Client::attach(&daemon.socket, options);
    client.say(&ClientMsg::MemoryDevice { slot: 0, device: "sim:0".into(), capacity_bytes: 80 * GIB });
    assert_eq!(answer(&client), (0, true, None));
    client
}

fn answer(client: &Client) -> (u32, bool, Option<String>) {
    loop {
        match receive(&client.socket) {
            Some((DaemonMsg::MemoryAnswer { slot: 0, number, granted, why, .. }, _)) => return (number, granted, why),
            Some((DaemonMsg::Note { .. }, _)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn allocate(client: &Client, bytes: u64) -> Result<(), String> {
    if words(client).take(bytes) {
        return Ok(());
    }
    client.say(&ClientMsg::MemoryAsk { slot: 0, number: 7, bytes, lacking: 0, returns: false, part: false });
    match answer(client) {
        (7, true, _) => {
            assert!(words(client).take(bytes));
            Ok(())
        }
        (7, false, Some(why)) => Err(why),
        other => panic!("{other:?}"),
    }
}

fn of_job(limit: Option<Amount>) -> ProgramOptions {
    ProgramOptions { job: Some("train".into()), memory_limit: limit, ..ProgramOptions::default() }
}

#[test]
fn processes_share_a_limit_and_what_a_killed_one_held_is_free_at_once() {
    let daemon = Daemon::start();
    let limited = || of_job(Some(Amount::Bytes(10 * GIB)));
    let (first, second) = (attach(&daemon, limited()), attach(&daemon, limited()));
    assert_eq!(allocate(&first, 6 * GIB), Ok(()));
    let why = allocate(&second, 5 * GIB).expect_err("6 of 10 are taken");
    assert!(why.starts_with("the limit of the program is 10 GiB, and 6 GiB are in use, 6 GiB of 80 GiB are "), "{why}");
    assert_eq!(allocate(&second, 4 * GIB), Ok(()));
    assert_eq!(words(&first).seen(70 * GIB, 80 * GIB).1, 10 * GIB);
    let (_, programs) = daemon.ps();
    let mut told: Vec<_> = programs.iter().flat_map(|program| &program.memory).collect();
    told.sort_by_key(|memory| memory.held.used_bytes);
    let figures = told.iter().map(|memory| (memory.held.used_bytes, memory.program_used_bytes, memory.limit_bytes));
    let total = 10 * GIB;
    assert_eq!(figures.collect::<Vec<_>>(), [(4 * GIB, total, Some(total)), (6 * GIB, total, Some(total))]);
    // The first one ends, with all that it holds.
    drop(first);
    until("the other one has all of it", || words(&second).allowance_bytes.load(SeqCst) == total);
    assert_eq!(allocate(&second, 6 * GIB), Ok(()));
}

#[test]
fn the_configuration_limits_users_rules_classes_and_the_device_and_follows_a_reload() {
    let daemon = Daemon::start_with(|options| {
        let uid = rustix::process::getuid().as_raw();
        let file = options.socket.parent().and_then(|run| run.parent()).expect("a folder").join("config.toml");
        let text = format!(
            "[memory]\ncapacity = \"40GiB\"\n[limits.users.{uid}]\nmemory = \"50%\"\n[classes.low]\nmemory = \"8GiB\"\n"
        );
        std::fs::write(&file, text).expect("written");
        options.config = vec![file];
    });
    let file = daemon.folder.path().join("config.toml");
    let low = attach(&daemon, ProgramOptions { priority: Some(-1), ..ProgramOptions::default() });
    let normal = attach(&daemon, ProgramOptions::default());
    let limit = |client: &Client| words(client).limit_bytes.load(SeqCst);
    assert_eq!((limit(&low), limit(&normal)), (8 * GIB, 40 * GIB));
    assert!(allocate(&low, 9 * GIB).expect_err("over it").contains("the limit of class low is 8 GiB"));
    assert!(allocate(&normal, 41 * GIB).expect_err("over it").contains("is 40 GiB"));
    std::fs::write(&file, "[[rule]]\nuser = 0\nexe = \"*\"\nmemory_limit = \"3GiB\"\nmemory_total = \"5GiB\"\n")
        .expect("written");
    daemon.ask(Request::Reload).expect("reloaded");
    if rustix::process::getuid().is_root() {
        assert_eq!((limit(&low), limit(&normal)), (3 * GIB, 3 * GIB));
        assert_eq!(allocate(&low, 3 * GIB), Ok(()));
        assert!(allocate(&normal, 3 * GIB).expect_err("5 in all").contains("programs of its rule is 5 GiB"));
    }
    std::fs::write(&file, "").expect("written");
    daemon.ask(Request::Reload).expect("reloaded");
    assert_eq!((limit(&low), words(&low).allowance_bytes.load(SeqCst)), (0, UNLIMITED));
}

#[test]
fn another_daemon_counts_what_programs_hold_already() {
    let daemon = Daemon::start();
    let limited = of_job(Some(Amount::Bytes(10 * GIB)));
    let holds = |daemon: &Daemon, bytes: u64| {
        let client = Client::attach(&daemon.socket, limited.clone());
        words(&client).allowance_bytes.store(UNLIMITED, SeqCst);
        words(&client).take_anyway(bytes);
        client.say(&ClientMsg::MemoryDevice { slot: 0, device: "sim:0".into(), capacity_bytes: 80 * GIB });
        assert_eq!(answer(&client), (0, true, None));
        client
    };
    let (first, second) = (holds(&daemon, 6 * GIB), holds(&daemon, 3 * GIB));
    let allowed = [&first, &second].map(|client| words(client).allowance_bytes.load(SeqCst));
    assert!(allowed[0] >= 6 * GIB && allowed[1] >= 3 * GIB && allowed[0] + allowed[1] <= 10 * GIB, "{allowed:?}");
    assert!(allocate(&second, 2 * GIB).is_err());
    assert_eq!(allocate(&first, GIB), Ok(()));
}

#[test]
fn a_reserve_follows_what_its_program_holds_without_being_asked() {
    let daemon = Daemon::start();
    let reserve = Some(Amount::PerMille(500));
    let urgent =
        attach(&daemon, ProgramOptions { priority: Some(128), memory_reserve: reserve, ..ProgramOptions::default() });
    let low = attach(&daemon, ProgramOptions { priority: Some(-1), ..ProgramOptions::default() });
    let kept = || words(&low).keep_free_bytes.load(SeqCst);
    assert_eq!(kept(), 40 * GIB);
    assert!(words(&urgent).take(15 * GIB));
    until("it is seen", || kept() == 25 * GIB);
    drop(urgent);
    until("it is gone", || kept() == 0);
}

#[test]
fn monitors_are_told_what_programs_hold_by_their_own_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, config) = (folder.path().join("m.sock"), folder.path().join("config.toml"));
    std::fs::write(&config, format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display())).expect("written");
    let state = folder.path().join("state");
    let daemon = Daemon::start_with(|options| (options.config, options.state) = (vec![config], Some(state)));
    let client = attach(&daemon, of_job(Some(Amount::Bytes(10 * GIB))));
    client.group(0, "sim:0");
    assert!(words(&client).take(3 * GIB));
    words(&client).overhead_bytes.store(GIB, SeqCst);
    words(&client).away_bytes.store(2 * GIB, SeqCst);
    words(&client).refuse(5 * GIB);
    let mut stream = UnixStream::connect(&socket).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("device=\"sim:0\"") && line.contains("job=\"train\""), "{line}");
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number") as u64
    };
    let names = ["held", "overhead", "exported", "away", "limit"].map(|name| format!("xsched_memory_{name}_bytes"));
    assert_eq!(names.map(|name| value(&name)), [3 * GIB, GIB, 0, 2 * GIB, 10 * GIB]);
    assert_eq!(value("xsched_memory_refusals_total"), 1);
    let usage = || daemon.ask(Request::Usage { since_ms: 0, by: UsageBy::Job }).expect("an answer");
    let memory = |part| if let DaemonMsg::Usage(row) = part { Some(row.memory_kib_s) } else { None };
    until("what it held is in the usage", || usage().into_iter().find_map(memory) > Some(0));
}
