//! Starting, ending, configuration, and questions to programs.

mod support;

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use support::{Client, Daemon, connect, hello, is_hung_up, is_turned_away, memfd, options, own_pidfd, receive, seals, send, send_raw};
use xsched_daemon::{Options, run};
use xsched_policy::registry;
use xsched_proto::Error;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::hint::Hints;
use xsched_proto::segment::SEGMENT_BYTES;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Described, Levels, Platform, ProgramOptions, Request, Sharing};
use xsched_testkit::until;

#[test]
fn a_daemon_that_is_told_to_end_leaves_nothing_behind_and_opens_every_gate() {
    let mut daemon = Daemon::start();
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    for client in [&low, &high] {
        client.group(0, "sim:0");
        client.ready(0);
    }
    low.until_closed(0);
    let (socket, folder) = (daemon.socket.clone(), daemon.socket.parent().unwrap().to_owned());
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    daemon.ask(Request::Stop).unwrap();
    daemon.join().unwrap();
    assert!(low.open(0));
    // Messages until then are about the running command (level 3); then the daemon hangs up.
    while let Some((message, _)) = receive(&low.socket) {
        assert!(matches!(message, DaemonMsg::Interrupt { .. }), "{message:?}");
    }
    assert!(!socket.exists());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_daemon_without_clients_ends_after_a_while_and_not_before() {
    let mut daemon = Daemon::start_with(|o| o.idle_exit = Some(Duration::from_millis(200)));
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    let socket = daemon.socket.clone();
    // With a client the daemon stays: it answers long after the idle time.
    let end = std::time::Instant::now() + Duration::from_millis(600);
    until("three times the idle time is over", || std::time::Instant::now() > end);
    assert_eq!(daemon.ps().1.len(), 1);
    drop(client);
    daemon.join().unwrap();
    assert!(!socket.exists());
}

#[test]
fn a_second_daemon_is_turned_away_and_a_stale_socket_replaced() {
    let daemon = Daemon::start();
    let second = run(Options { socket: daemon.socket.clone(), ..options(daemon.folder.path()) }).unwrap_err();
    assert_eq!(second.exit_code(), 3);
    let pid = std::process::id();
    let line = format!("another daemon (pid {pid}) already serves {}; end it or use --socket", daemon.socket.display());
    assert_eq!(second.to_string(), line);
    assert_eq!(daemon.ps().1.len(), 0, "the first goes on");

    let daemon = Daemon::start_with(|o| {
        std::fs::create_dir_all(o.socket.parent().unwrap()).unwrap();
        std::fs::set_permissions(o.socket.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&o.socket).unwrap());
        assert!(o.socket.exists());
    });
    assert_eq!(daemon.ps().1.len(), 0);
}

#[test]
fn what_is_in_the_way_is_not_removed_and_open_folders_are_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    std::fs::create_dir_all(options.socket.parent().unwrap()).unwrap();
    std::fs::set_permissions(options.socket.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(&options.socket, "precious").unwrap();
    let error = run(options.clone()).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains("in the way"), "{error}");
    assert_eq!(std::fs::read_to_string(&options.socket).unwrap(), "precious");
    std::fs::remove_file(&options.socket).unwrap();
    std::fs::set_permissions(options.socket.parent().unwrap(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = run(options.clone()).unwrap_err();
    assert!(error.to_string().contains("can be written by others"), "{error}");
    let error = run(Options { socket: folder.path().join("x".repeat(200)), ..options }).unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}

#[test]
fn a_link_or_a_fifo_in_the_place_of_the_lock_is_not_followed_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    let run_folder = options.socket.parent().unwrap();
    std::fs::create_dir_all(run_folder).unwrap();
    std::fs::set_permissions(run_folder, PermissionsExt::from_mode(0o700)).unwrap();
    let (lock, elsewhere) = (run_folder.join("xsched.sock.pid"), folder.path().join("precious"));
    std::fs::write(&elsewhere, "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
    let error = run(options.clone()).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("cannot lock"), "{error}");
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "precious");
    std::fs::remove_file(&lock).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &lock, kind, mode, 0).unwrap();
    let error = run(options).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains("it is not a file"), "{error}");
}

#[test]
fn configuration_counts_and_its_mistakes_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let exe = std::env::current_exe().unwrap();
    let rule =
        format!("[[rule]]\nexe = \"{}*\"\npriority = \"low\"\nceiling = \"normal\"\nweight = 7\n", exe.display());
    let config = vec![
        write("a.toml", "policy = \"up\"\nbudget_us = 900\n"),
        write("b.toml", &format!("policy = \"hpf\"\n{rule}")),
    ];
    let daemon = Daemon::start_with(|o| o.config = config.clone());
    assert_eq!(daemon.ps().0.policy, "hpf", "the later file wins");
    let plain = Client::attach(&daemon.socket, ProgramOptions::default());
    let hints = Hints { weight: Some(9), ..Hints::default() };
    let proud = Client::attach(&daemon.socket, ProgramOptions { priority: Some(200), hints, ..Default::default() });
    let programs = daemon.ps().1;
    let given: Vec<_> = programs.iter().map(|p| (p.priority, p.weight)).collect();
    assert_eq!(given, [(-128, 7), (127, 9)]);
    let cut = "priority 200 (realtime) is over the ceiling of a rule: 127 (normal) counts";
    assert_eq!(receive(&proud.socket).map(|(told, _)| told), Some(DaemonMsg::Note { text: cut.into() }));
    plain.group(0, "sim:0");
    proud.group(0, "sim:0");
    assert_eq!(plain.words(0).budget_us.load(std::sync::atomic::Ordering::SeqCst), 900);
    let daemon = Daemon::start_with(|o| (o.config, o.policy) = (config, Some("Pup".into())));
    assert_eq!(daemon.ps().0.policy, "pup", "the command line wins over files");

    let bad = |options: Options| {
        let error = run(options).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    let with = |text: &str| Options { config: vec![write("bad.toml", text)], ..options(folder.path()) };
    let place = folder.path().join("bad.toml").display().to_string();
    let line = bad(with("policy = \"hpf\"\n\n[limits]\nmax_clas = \"high\"\n"));
    assert!(
        line.starts_with(&format!("{place}:4: unknown key `max_clas` of [limits]: did you mean `max_class`?")),
        "{line}"
    );
    let line = bad(with("policy = \"fifo\"\n"));
    assert_eq!(line, format!("{place}:1: 'fifo' is no policy: use one of {}", registry::names()));
    let line = bad(Options { policy: Some("fifo".into()), ..options(folder.path()) });
    assert_eq!(line, format!("'fifo' is no policy: use one of {}", registry::names()));
    let line = bad(Options { config: vec![folder.path().join("none.toml")], ..options(folder.path()) });
    assert!(line.contains("cannot read the configuration") && line.contains("none.toml"), "{line}");
    assert!(!options(folder.path()).socket.exists(), "judged before anything is made");
}

#[test]
fn a_question_is_passed_on_and_answered_or_refused_in_time() {
    let daemon = Daemon::start();
    let client = daemon.attach(0);
    let describe = Request::Describe { pid: std::process::id() };
    let note = |text: &str| Described::Note { text: text.into() };
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| daemon.ask(describe.clone()));
        let Some((DaemonMsg::Describe { token }, _)) = receive(&client.socket) else { panic!("no question") };
        client.say(&ClientMsg::Description { token, more: true, lines: vec![note("one")] });
        client.say(&ClientMsg::Description { token, more: false, lines: vec![note("two")] });
        let answer = asked.join().unwrap().unwrap();
        assert_eq!(answer, [DaemonMsg::Description(vec![note("one")]), DaemonMsg::Description(vec![note("two")])]);
    });
    let error = daemon.ask(describe.clone()).unwrap_err();
    let line = error.line();
    assert_eq!(error.exit_code(), 3);
    assert!(line.contains("did not answer within 1 s"), "{line}");
    assert_eq!(daemon.ask(Request::Describe { pid: 1 }).unwrap_err().exit_code(), 3);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| daemon.ask(describe));
        // Two questions: the one that timed out, and this one.
        receive(&client.socket).unwrap();
        receive(&client.socket).unwrap();
        drop(client);
        let error = asked.join().unwrap().unwrap_err();
        assert!(error.line().contains("ended before it answered"), "{error}");
    });
}

#[test]
fn another_version_is_told_so() {
    let daemon = Daemon::start();
    for message in [
        ClientMsg::Hello { version: PROTOCOL_VERSION + 1, options: ProgramOptions::default() },
        ClientMsg::Control { version: PROTOCOL_VERSION + 1, request: Request::Stop },
    ] {
        let socket = connect(&daemon.socket);
        send(&socket, &message, &[]);
        match receive(&socket).unwrap().0 {
            DaemonMsg::Refused(Error::Environment(line)) => assert!(line.contains("protocol"), "{line}"),
            other => panic!("{other:?}"),
        }
    }
    // The rest of the messages may look like anything.
    for first in [0, 1] {
        let socket = connect(&daemon.socket);
        send_raw(&socket, &[&[first, PROTOCOL_VERSION as u8 - 1][..], &[0xff; 30]].concat(), &[]).unwrap();
        let (why, again_ms) = is_turned_away(&socket);
        assert_eq!(again_ms, None, "only an operator helps");
        let why = why.expect("a reason");
        assert!(why.contains(&format!("this program {}: install one version", PROTOCOL_VERSION - 1)), "{why}");
    }
    assert_eq!(daemon.ps().0.dropped_clients, 0, "an old program is no attacker");
}

/// No test by itself: part of the next test that runs in a process of its own.
#[test]
#[ignore = "a process that the next test starts; `cargo test -p xsched-daemon --test lifecycle a_killed_program`"]
fn attach_and_hold_the_device() {
    let Some(socket) = std::env::var_os("XSCHED_TEST_SOCKET") else { return };
    let client = Client::attach(socket.as_ref(), ProgramOptions { priority: Some(128), ..Default::default() });
    client.group(0, "sim:0");
    client.ready(0);
    // The child inherits the connection and keeps it open after this process is killed.
    rustix::io::fcntl_setfd(&client.socket, rustix::io::FdFlags::empty()).unwrap();
    let mut child = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
    std::fs::write(std::env::var_os("XSCHED_TEST_READY").unwrap(), "").unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_program_leaves_the_device_at_once_even_if_a_child_keeps_its_connection() {
    let daemon = Daemon::start();
    let low = daemon.attach(0);
    low.group(0, "sim:0");
    low.ready(0);
    low.until_open(0);
    let ready = daemon.folder.path().join("ready");
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "attach_and_hold_the_device"])
        .env("XSCHED_TEST_SOCKET", &daemon.socket)
        .env("XSCHED_TEST_READY", &ready)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    low.until_closed(0);
    until("it has a child", || ready.exists());
    let stdin = program.stdin.take();
    // The child keeps the connection open: unless the daemon watches the program itself, this would never end.
    program.kill().unwrap();
    low.until_open(0);
    assert_eq!(daemon.ps().1.len(), 1);
    program.wait().unwrap();
    drop(stdin);
}

#[test]
fn a_program_too_many_is_told_so_and_commands_have_room() {
    let uid = rustix::process::geteuid().as_raw();
    let daemon = Daemon::start_with(|o| {
        let config = o.socket.parent().unwrap().parent().unwrap().join("config.toml");
        std::fs::write(&config, format!("[limits.users.{uid}]\nconnections = 2\n")).unwrap();
        o.config = vec![config];
    });
    let attached = [daemon.attach(0), daemon.attach(0)];
    let refusals = || {
        let parts = daemon.ask(Request::Ps).unwrap().into_iter();
        let refused = parts.filter_map(|part| if let DaemonMsg::RefusedProgram(r) = part { Some(r) } else { None });
        refused.map(|refused| (refused.pid, refused.uid, refused.why)).collect::<Vec<_>>()
    };
    assert_eq!(refusals(), [], "a command has room beside all programs that may be");
    let (socket, event) = (connect(&daemon.socket), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let segment = memfd(SEGMENT_BYTES, seals());
    send(&socket, &hello(ProgramOptions::default()), &[segment.as_fd(), event.as_fd(), own_pidfd().as_fd()]);
    let why = format!("user {uid} has 2 programs attached, as many as a user may have: see xsched ps");
    // Room may come soon: the program is told when to ask again.
    let soon = |again_ms: Option<u32>| again_ms.is_some_and(|ms| (1_500..2_000).contains(&ms));
    let (told, again_ms) = is_turned_away(&socket);
    assert_eq!((told.as_deref(), soon(again_ms)), (Some(&*why), true), "{again_ms:?}");
    assert_eq!(refusals(), [(std::process::id(), uid, why)]);
    // Not even commands have room without an end, and one more is told that.
    let commands: Vec<_> = (0..8).map(|_| connect(&daemon.socket)).collect();
    let more = connect(&daemon.socket);
    let (told, again_ms) = is_turned_away(&more);
    assert!(told.expect("a reason").contains("its user has as many connections as a user may have") && soon(again_ms));
    drop((attached, commands));
    let is_program = |part: &DaemonMsg| matches!(part, DaemonMsg::Program(_));
    let ask = || xsched_proto::ask::ask(&daemon.socket, Request::Ps, Duration::from_secs(30));
    until("there is room again", || ask().is_ok_and(|answer| !answer.iter().any(is_program)));
    let accepted = daemon.attach(0);
    accepted.group(0, "sim:0");
    assert_eq!(refusals(), []);
}

#[test]
fn a_priority_over_the_ceiling_of_a_rule_is_told_to_the_program() {
    let daemon = Daemon::start_with(|o| {
        let config = o.socket.parent().unwrap().parent().unwrap().join("config.toml");
        std::fs::write(&config, "[[rule]]\nexe = \"*\"\nceiling = \"normal\"\n").unwrap();
        o.config = vec![config];
    });
    let note = |priority| {
        let client = daemon.attach(priority);
        client.say(&ClientMsg::GroupAdd {
            slot: 0,
            device: "sim:0".into(),
            platform: Platform::Sim,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: Levels::ONE,
            sharing: Sharing::Time,
        });
        let mut notes = Vec::new();
        loop {
            match receive(&client.socket).expect("a message").0 {
                DaemonMsg::Note { text } => notes.push(text),
                DaemonMsg::GroupAdded { .. } => return notes,
                _ => {}
            }
        }
    };
    assert_eq!(note(128), ["priority 128 (high) is over the ceiling of a rule: 127 (normal) counts"]);
    assert_eq!(note(5), [""; 0]);
}
