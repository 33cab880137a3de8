//! A daemon of root serves all users, each within limits. Needs root: another user's process cannot be made without.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use support::{Client, Daemon, ask, set_policy};
use xsched_proto::hint::Hints;
use xsched_proto::wire::{DaemonMsg, ProgramOptions, Request, Target};

const NOBODY: u32 = 65_534;

/// Not a test: what the other user does, in a process of its own.
#[test]
#[ignore = "a process that the next test starts; `cargo test -p xsched-daemon --test users` as root"]
fn as_another_user() {
    let (Some(socket), Some(other)) = (std::env::var_os("XSCHED_TEST_SOCKET"), std::env::var_os("XSCHED_TEST_PID"))
    else {
        return;
    };
    let other: u32 = other.to_str().unwrap().parse().unwrap();
    let ask = |request| ask(socket.as_ref(), request);
    let wish = ProgramOptions { priority: Some(200), ..ProgramOptions::default() };
    let client = Client::attach(socket.as_ref(), wish);
    client.group(0, "sim:0");
    let answer = ask(Request::Ps).unwrap();
    let [DaemonMsg::Daemon(_), DaemonMsg::Program(own)] = answer.as_slice() else {
        panic!("it sees more than its own: {answer:?}")
    };
    assert_eq!((own.pid, own.uid, own.priority), (std::process::id(), NOBODY, 191), "clamped to its limit");
    let hint = |pid, priority| Request::Hint {
        target: Target::Pid(pid),
        priority: Some(priority),
        hints: Hints::default(),
        level: None,
        threshold: None,
    };
    ask(hint(own.pid, 150)).unwrap();
    for (request, says) in [
        (hint(own.pid, 192), "your limit is class high (priority 191)"),
        (hint(other, 0), "is attached"),
        (Request::Suspend { pid: other }, "is attached"),
        (Request::Describe { pid: other }, "is attached"),
        (set_policy("up"), "only root and the daemon's own user"),
        (Request::Stop, "only root and the daemon's own user"),
    ] {
        let error = ask(request.clone()).unwrap_err();
        assert_eq!(error.exit_code(), 3, "{request:?}");
        assert!(error.line().contains(says), "{error}");
    }
}

#[test]
fn another_user_sees_and_controls_only_its_own_and_keeps_to_its_limit() {
    if !rustix::process::geteuid().is_root() {
        return xsched_testkit::skipped(
            "another user's view of a daemon: only root can make a process of another user",
        );
    }
    let reachable = |path: &std::path::Path| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    let daemon = Daemon::start_with(|o| {
        let folder = o.socket.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        reachable(folder);
        reachable(folder.parent().unwrap());
    });
    let own = daemon.attach(0);
    own.group(0, "sim:0");
    let exe = daemon.folder.path().join("program");
    // Another process copies: what a thread here forked meanwhile would else have it open for writing.
    assert!(Command::new("cp").args([&std::env::current_exe().unwrap(), &exe]).status().unwrap().success());
    reachable(&exe);
    let status = Command::new(&exe)
        .args(["--exact", "--ignored", "as_another_user"])
        .env("XSCHED_TEST_SOCKET", &daemon.socket)
        .env("XSCHED_TEST_PID", std::process::id().to_string())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(daemon.ps().0.dropped_clients, 0);
}
