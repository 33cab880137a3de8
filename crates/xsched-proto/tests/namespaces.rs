//! Trust of a program in a user namespace in a daemon. Needs root, since no other user can start a daemon of another user.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use xsched_proto::trust::check_daemon;

const NOBODY: u32 = 65_534;
/// User of the program: not the overflow user, so that program and daemon have different numbers.
const USER: u32 = 12_345;
const SOCKET: &str = "XSCHED_TEST_SOCKET";

/// No test by itself: a program in a user namespace, which prints whether it trusts the daemon.
#[test]
#[ignore = "a process that the next test starts; `cargo test -p xsched-proto --test namespaces` as root"]
fn in_a_user_namespace() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let stream = UnixStream::connect(&socket).unwrap();
    match check_daemon(stream.as_fd(), Path::new(&socket)) {
        Ok(()) => println!("it is trusted"),
        Err(why) => println!("it is not: {why}"),
    }
}

#[test]
fn the_machines_daemon_is_trusted_at_a_mount_only() {
    if !rustix::process::geteuid().is_root() {
        return xsched_testkit::skipped("a user namespace with the machine's daemon: it needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(folder.path(), 0o755);
    let run = folder.path().join("run");
    std::fs::create_dir(&run).unwrap();
    mode(&run, 0o755);
    let socket = run.join("xsched.sock");
    let _daemon = UnixListener::bind(&socket).unwrap();
    mode(&socket, 0o666);
    let exe = folder.path().join("program");
    // Another process makes the copy: if this one did, a child forked meanwhile by another thread would have the file open for writing.
    assert!(Command::new("cp").args([&std::env::current_exe().unwrap(), &exe]).status().unwrap().success());
    mode(&exe, 0o755);
    let says = |before: &str| {
        let line = format!("{before} exec \"$0\" --exact --ignored --nocapture in_a_user_namespace");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &line]).arg(&exe);
        let output = command.env(SOCKET, &socket).current_dir("/").uid(USER).gid(USER).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mount = format!("mount --bind {0} {0} &&", run.display());
    let mounted = says(&mount);
    if mounted.is_empty() {
        return xsched_testkit::skipped("a user namespace with the machine's daemon: none can be made here");
    }
    assert!(mounted.contains("it is trusted"), "{mounted}");
    let elsewhere = says("");
    assert!(elsewhere.contains(&format!("it belongs to user {NOBODY}")), "{elsewhere}");
    // Folder that the program's user could fill itself.
    mode(&run, 0o777);
    let writable = says(&mount);
    assert!(writable.contains("it is not: "), "{writable}");
}
