//! A daemon of root serves all users, each within limits. Needs root, since only root can start processes of other users.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use support::{Client, Daemon, ask, is_hung_up, receive, set_policy};
use xsched_proto::hint::Hints;
use xsched_proto::segment::GROUPS;
use xsched_proto::trace::{What, Why};
use xsched_proto::wire::{
    ClientMsg, DaemonMsg, Levels, Platform, ProgramOptions, RefusedProgram, Request, Sharing, Target,
};
use xsched_testkit::until;

const NOBODY: u32 = 65_534;

/// No test by itself: actions of the other user, in a process of their own.
#[test]
#[ignore = "a process that the next test starts; `cargo test -p xsched-daemon --test users` as root"]
fn as_another_user() {
    let (Some(socket), Some(other)) = (std::env::var_os("XSCHED_TEST_SOCKET"), std::env::var_os("XSCHED_TEST_PID"))
    else {
        return;
    };
    let other: u32 = other.to_str().unwrap().parse().unwrap();
    let ask = |request| ask(socket.as_ref(), request);
    let much = Hints { weight: Some(10_000), timeslice_us: Some(10_000_000), ..Hints::default() };
    let wish = ProgramOptions { priority: Some(200), hints: much, ..ProgramOptions::default() };
    let client = Client::attach(socket.as_ref(), wish);
    let line = "priority 200 (realtime) is over your limit: 191 (high) counts; weight 10000 is over your limit: 1000 counts; timeslice 10 s is over your limit: 100 ms counts";
    assert_eq!(receive(&client.socket).map(|(told, _)| told), Some(DaemonMsg::Note { text: line.into() }));
    client.group(0, "sim:0");
    let answer = ask(Request::Ps).unwrap();
    let [DaemonMsg::Daemon(daemon), DaemonMsg::Program(own)] = answer.as_slice() else {
        panic!("it sees more than its own: {answer:?}")
    };
    assert_eq!((own.pid, own.uid, own.priority), (std::process::id(), NOBODY, 191), "clamped to its limit");
    assert_eq!(daemon.hidden_programs, 1, "it is told that there is another");
    let hints = [("weight".to_owned(), "1000".to_owned()), ("timeslice".into(), "100000".into())];
    assert_eq!(own.hints, hints.into(), "as is the time it may take from others");
    client.ready(0);
    client.until_open(0);
    sees_rivals_without_names(&ask(Request::Trace { from: 0, since_us: 0 }).unwrap(), own.pid);
    let more = Hints { weight: Some(5_000), ..Hints::default() };
    let target = Target::Pid(own.pid);
    let hint =
        Request::Hint { targets: vec![target], priority: None, hints: more, level: None, threshold: None, batch: None };
    let notes = ask(hint).unwrap();
    let says = |text: &str| notes.iter().any(|note| matches!(note, DaemonMsg::Note { text: it } if it == text));
    assert!(says("weight 5000 is over your limit: 1000 counts"), "{notes:?}");
    let hint = |pid, priority| Request::Hint {
        targets: vec![Target::Pid(pid)],
        priority: Some(priority),
        hints: Hints::default(),
        level: None,
        threshold: None,
        batch: None,
    };
    ask(hint(own.pid, 150)).unwrap();
    for (request, says) in [
        (hint(own.pid, 192), "your limit is class high (priority 191)"),
        (hint(other, 0), "is attached"),
        (Request::Suspend { targets: vec![Target::Pid(other)] }, "is attached"),
        (Request::Describe { pid: other }, "is attached"),
        (set_policy("up"), "only root and the daemon's own user"),
        (Request::Stop, "only root and the daemon's own user"),
    ] {
        let error = ask(request.clone()).unwrap_err();
        assert_eq!(error.exit_code(), 3, "{request:?}");
        assert!(error.line().contains(says), "{error}");
    }
}

/// Asserts that an answer has everything about the user's own program, and about the rival on its device only that it has to make room for
/// it, but neither whose it is nor why.
fn sees_rivals_without_names(answer: &[DaemonMsg], pid: u32) {
    let groups = answer.iter().find_map(|part| match part {
        DaemonMsg::TraceGroups(groups) => Some(groups),
        _ => None,
    });
    let [rival, own] = groups.unwrap().as_slice() else { panic!("{answer:?}") };
    assert_eq!(own.program.as_ref().map(|p| (p.pid, p.uid)), Some((pid, NOBODY)));
    assert_eq!(rival.program, None);
    let records = answer.iter().flat_map(|part| match part {
        DaemonMsg::TraceRecords(records) => records.as_slice(),
        _ => &[],
    });
    let records: Vec<_> = records.collect();
    let closed = records.iter().find(|r| (r.group, r.what) == (rival.id, What::Closed)).unwrap();
    assert_eq!((closed.why, closed.policy, closed.level, closed.value), (Why::Unsaid, 0, 0, 0));
    let opened = records.iter().find(|r| (r.group, r.what) == (own.id, What::Opened)).unwrap();
    assert_eq!(opened.why, Why::Policy);
}

/// No test by itself: actions of a container's root, in namespaces of their own.
#[test]
#[ignore = "a process that a test below starts; `cargo test -p xsched-daemon --test users` as root"]
fn as_root_of_a_container() {
    let (Some(socket), Some(other)) = (std::env::var_os("XSCHED_TEST_SOCKET"), std::env::var_os("XSCHED_TEST_PID"))
    else {
        return;
    };
    let other: u32 = other.to_str().unwrap().parse().unwrap();
    let ask = |request| ask(socket.as_ref(), request);
    assert!(rustix::process::geteuid().is_root());
    let answer = ask(Request::Ps).unwrap();
    assert!(matches!(answer.as_slice(), [DaemonMsg::Daemon(_)]), "it sees none of the machine's: {answer:?}");
    for (request, says) in [
        (Request::Suspend { targets: vec![Target::Pid(other)] }, "is attached"),
        (Request::Describe { pid: other }, "is attached"),
        (set_policy("up"), "only root and the daemon's own user"),
        (Request::Stop, "only root and the daemon's own user"),
    ] {
        let error = ask(request.clone()).unwrap_err();
        assert!(error.line().contains(says), "{request:?}: {error}");
    }
}

/// No test by itself: another user with more groups and jobs than one user may have.
#[test]
#[ignore = "a process that a test below starts; `cargo test -p xsched-daemon --test users` as root"]
fn as_another_user_with_too_much() {
    let Some(socket) = std::env::var_os("XSCHED_TEST_SOCKET") else { return };
    let attach = |job: Option<String>| Client::attach(socket.as_ref(), ProgramOptions { job, ..Default::default() });
    let refused = |client: &Client, slot, device: &str| {
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
    };
    let refusals = || -> Vec<RefusedProgram> {
        let parts = ask(socket.as_ref(), Request::Ps).unwrap().into_iter();
        parts
            .filter_map(|part| if let DaemonMsg::RefusedProgram(refused) = part { Some(refused) } else { None })
            .collect()
    };
    {
        let full = [attach(None), attach(None)];
        for (client, slot) in full.iter().flat_map(|client| (0..GROUPS as u16).map(move |slot| (client, slot))) {
            client.group(slot, "sim:0");
        }
        let late = attach(None);
        late.group(0, "sim:1");
        let why = refused(&late, 1, "sim:0");
        assert!(why.contains("user 65534 has 128 groups on sim:0, as many as a user may have"), "{why}");
        assert_eq!(refusals().len(), 1, "ps tells of it");
        assert_eq!(
            (refusals()[0].pid, &refusals()[0].why),
            (std::process::id(), &why.replace("refused by the daemon: ", ""))
        );
        full[0].say(&ClientMsg::GroupRemove { slot: 5 });
        let accepted = attach(None);
        accepted.group(0, "sim:0");
        assert_eq!(refusals(), [], "it was accepted");
    }
    let gone = || !ask(socket.as_ref(), Request::Ps).unwrap().iter().any(|part| matches!(part, DaemonMsg::Program(_)));
    until("all are forgotten", gone);
    {
        let full: Vec<Client> = (0..8).map(|_| attach(None)).collect();
        for (at, client) in full.iter().enumerate() {
            (0..GROUPS as u16).for_each(|slot| _ = client.group(slot, &format!("sim:{at}")));
        }
        let why = refused(&attach(None), 0, "sim:9");
        assert!(why.contains("user 65534 has 512 groups, as many as a user may have"), "{why}");
    }
    until("all are forgotten", gone);
    for round in 0..2 {
        // The number of made-up devices is limited. Without groups they give their places back, as no time was charged on them.
        let full = attach(None);
        (0..GROUPS as u16).for_each(|slot| _ = full.group(slot, &format!("made-up:{round}-{slot}")));
        let late = attach(None);
        late.group(0, &format!("made-up:{round}-0"));
        let why = refused(&late, 1, "made-up:one-more");
        assert!(why.contains("user 65534 has 64 devices with time that is not recorded yet"), "{why}");
        drop((full, late));
        until("all are forgotten", gone);
    }
    let jobs: Vec<Client> = (0..17).map(|n| attach(Some(format!("job {n}")))).collect();
    for client in &jobs {
        client.group(0, "sim:0");
    }
    for client in &jobs[..16] {
        client.group(1, "sim:1");
        client.group(2, "sim:2");
    }
    jobs[16].group(1, "sim:0");
    let why = refused(&jobs[16], 2, "sim:1");
    assert!(why.contains("user 65534 has 16 jobs on several devices"), "{why}");
}

#[test]
fn another_user_sees_and_controls_only_its_own_and_keeps_to_its_limit() {
    let Some(log) = beside_another_user("as_another_user") else { return };
    let pid = std::process::id();
    let refused = format!("refused: process {pid} is of user 0: by user {NOBODY} (process ");
    assert_eq!(log.matches(&refused).count(), 3, "{log}");
    for line in [format!("attached process {pid} of user 0, class normal (option): "), "hint process ".into()] {
        assert!(log.contains(&line), "{line}: {log}");
    }
}

#[test]
fn root_of_a_container_has_no_rights_of_roots() {
    let unshare = ["unshare", "--pid", "--fork", "--mount", "--kill-child"];
    let can = Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|status| status.success());
    if !can {
        return xsched_testkit::skipped("root of a container: no namespaces can be made here");
    }
    let Some(log) = beside("as_root_of_a_container", &unshare, 0) else { return };
    let refused = format!("refused: process {} is of user 0: by user 0 of container ", std::process::id());
    assert_eq!(log.matches(&refused).count(), 2, "{log}");
}

#[test]
fn another_user_has_so_many_groups_and_jobs_and_others_are_served_as_before() {
    beside_another_user("as_another_user_with_too_much");
}

/// No test by itself: a user with programs of these weights, who sees its own parts of the device among those of all.
#[test]
#[ignore = "a process that the next test starts; `cargo test -p xsched-daemon --test users` as root"]
fn as_a_user_with_shares() {
    let (Some(socket), Ok(given)) = (std::env::var_os("XSCHED_TEST_SOCKET"), std::env::var("XSCHED_TEST_SHARES"))
    else {
        return;
    };
    let (weights, expected) = given.split_once(' ').unwrap();
    let weights: Vec<u32> = weights.split(',').map(|weight| weight.parse().unwrap()).collect();
    let attach = |weight: &u32| {
        let hints = Hints { weight: Some(*weight), ..Hints::default() };
        let client = Client::attach(socket.as_ref(), ProgramOptions { hints, ..ProgramOptions::default() });
        client.group(0, "sim:0");
        client
    };
    let clients: Vec<Client> = weights.iter().map(attach).collect();
    let of_others = USERS_WITH_SHARES.iter().map(|(_, weights, _)| weights.len()).sum::<usize>() - weights.len();
    let ps = || ask(socket.as_ref(), Request::Ps).unwrap();
    let hidden = |part: &DaemonMsg| matches!(part, DaemonMsg::Daemon(d) if d.hidden_programs as usize == of_others);
    until("the programs of the other user are there", || ps().iter().any(hidden));
    assert_eq!(shares(&ps()), [(rustix::process::geteuid().as_raw(), expected.to_owned())], "its own, and no other's");
    // A second device tells root's side that this side is done.
    clients[0].group(1, "sim:1");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut std::io::stdin(), &mut rest).unwrap();
}

/// Users, the weights of their programs, and the parts of the device that these ask for, in %: users come first under `fair`.
const USERS_WITH_SHARES: [(u32, &[u32], &str); 2] = [(NOBODY, &[100], "67"), (60_001, &[100, 900], "3,30")];

/// Users in an answer to `ps`, with the parts of sim:0 that their programs ask for, in %.
fn shares(answer: &[DaemonMsg]) -> Vec<(u32, String)> {
    let mut of_users = std::collections::BTreeMap::<u32, Vec<f64>>::new();
    for part in answer {
        let DaemonMsg::Program(program) = part else { continue };
        let here = program.groups.iter().filter(|group| group.device == "sim:0");
        of_users.entry(program.uid).or_default().extend(here.map(|group| group.share_asked_percent.expect("a part")));
    }
    let text = |mut percents: Vec<f64>| {
        percents.sort_by(f64::total_cmp);
        percents.iter().map(|percent| format!("{percent:.0}")).collect::<Vec<_>>().join(",")
    };
    of_users.into_iter().rev().map(|(uid, percents)| (uid, text(percents))).collect()
}

#[test]
fn the_parts_of_two_users_are_the_same_for_root_and_for_each_of_them() {
    if !rustix::process::geteuid().is_root() {
        return xsched_testkit::skipped("parts of two users: only root can make processes of other users");
    }
    let daemon = Daemon::start_with(|o| {
        let config = reachable_folder(o).join("config.toml");
        std::fs::write(&config, format!("policy = \"fair\"\n[limits.users.{NOBODY}]\nweight = 200\n")).unwrap();
        o.config = vec![config];
    });
    let exe = copy_of_this_program(&daemon);
    let start = |(uid, weights, expected): &(u32, &[u32], &str)| {
        let weights = weights.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        Command::new(&exe)
            .args(["--exact", "--ignored", "as_a_user_with_shares"])
            .env("XSCHED_TEST_SOCKET", &daemon.socket)
            .env("XSCHED_TEST_SHARES", format!("{weights} {expected}"))
            .current_dir("/")
            .stdin(std::process::Stdio::piped())
            .uid(*uid)
            .gid(*uid)
            .spawn()
            .unwrap()
    };
    let mut children: Vec<_> = USERS_WITH_SHARES.iter().map(start).collect();
    // A user that saw something wrong has ended, and never gets to its second device.
    let done = |answer: &[DaemonMsg]| {
        let is_done = |part: &&DaemonMsg| matches!(part, DaemonMsg::Program(p) if p.groups.len() == 2);
        answer.iter().filter(is_done).count() == USERS_WITH_SHARES.len()
    };
    let ended = |child: &mut std::process::Child| child.try_wait().unwrap().is_some();
    until("both users have seen theirs", || done(&daemon.ask(Request::Ps).unwrap()) || children.iter_mut().any(ended));
    let seen = shares(&daemon.ask(Request::Ps).unwrap());
    for child in &mut children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "what a user sees");
    }
    assert_eq!(seen, USERS_WITH_SHARES.map(|(uid, _, expected)| (uid, expected.to_owned())), "what root sees");
}

/// Makes the folder of a daemon's socket, in which other users may look, and returns the one that it is in.
fn reachable_folder(options: &xsched_daemon::Options) -> std::path::PathBuf {
    let folder = options.socket.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    reachable(folder);
    reachable(folder.parent().unwrap());
    folder.parent().unwrap().to_owned()
}

fn reachable(path: &std::path::Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Copies the program of this test to a place where other users may execute it.
fn copy_of_this_program(daemon: &Daemon) -> std::path::PathBuf {
    let exe = daemon.folder.path().join("program");
    // `cp` copies in another process: a child forked here meanwhile would have the file open for writing.
    assert!(Command::new("cp").args([&std::env::current_exe().unwrap(), &exe]).status().unwrap().success());
    reachable(&exe);
    exe
}

/// See [`beside`].
fn beside_another_user(what: &str) -> Option<String> {
    beside(what, &[], NOBODY)
}

/// Starts a daemon of root with a client, and a user's actions in a process beside it, which a command may start. Returns the daemon's log,
/// or none without root.
fn beside(what: &str, command: &[&str], uid: u32) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        xsched_testkit::skipped("another user's view of a daemon: only root can make a process of another user");
        return None;
    }
    let daemon = Daemon::start_with(|o| {
        let folder = reachable_folder(o);
        o.log = Some(folder.join("log"));
    });
    let own = daemon.attach(0);
    own.group(0, "sim:0");
    own.ready(0);
    let exe = copy_of_this_program(&daemon);
    let line: Vec<&std::ffi::OsStr> = command.iter().map(|word| word.as_ref()).chain([exe.as_os_str()]).collect();
    let status = Command::new(line[0])
        .args(&line[1..])
        .args(["--exact", "--ignored", what])
        .env("XSCHED_TEST_SOCKET", &daemon.socket)
        .env("XSCHED_TEST_PID", std::process::id().to_string())
        .current_dir("/")
        .uid(uid)
        .gid(uid)
        .status()
        .unwrap();
    assert!(status.success());
    let high = daemon.attach(128);
    high.group(0, "sim:0");
    high.ready(0);
    own.until_closed(0);
    let (info, _) = daemon.ps();
    assert_eq!((info.dropped_clients, info.hidden_programs), (0, 0));
    let path = daemon.folder.path().join("log");
    let folder = daemon.end();
    let log = std::fs::read_to_string(path).unwrap();
    drop(folder);
    Some(log)
}
