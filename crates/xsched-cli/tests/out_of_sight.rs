//! Lines of `run` and `ps` about a daemon that they do not use: of another user without a system daemon, and of a container on the same
//! machine.
//!
//! Needs root and namespaces. Each part has a pid namespace, with which its daemons end; their folders belong to the test.

mod common;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Place, Said, copy_program, said};
use xsched_testkit::skipped;

/// Beginning of each script. Daemons are ended by the kernel, with the pid namespace.
const BEGIN: &str = r#"
    set -eu
    mount -t tmpfs none /run || exit 99
    rm -rf "/tmp/xsched-$A" "/tmp/xsched-$B"
    as() { id=$1; shift; setpriv --reuid="$id" --regid="$id" --clear-groups "$@"; }
    until_ps() { tries=0; until "$@" "$BIN/xsched" ps >/dev/null 2>&1; do tries=$((tries + 1)); [ $tries -lt 600 ]; sleep 0.1; done; }
"#;

/// Ids of two users that no other test uses.
fn users() -> [u32; 2] {
    [0, 1].map(|n| 40_000 + std::process::id() % 10_000 * 2 + n)
}

/// Guard that removes the folders of the users' daemons, whatever the result of the test.
struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        for uid in users() {
            let _ = std::fs::remove_dir_all(format!("/tmp/xsched-{uid}"));
        }
    }
}

fn run(place: &Place, script: &str) -> Option<Said> {
    let script = format!("{BEGIN}{script}");
    let words = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script];
    let mut command = place.command(Path::new("unshare"), &words);
    command.env("BIN", place.path()).env_remove("XSCHED_SOCKET").env_remove("XDG_RUNTIME_DIR");
    let [a, b] = users();
    command.env("A", a.to_string()).env("B", b.to_string());
    command.env("CUDA_MPS_PIPE_DIRECTORY", place.join("mps"));
    let said = said(command);
    let lacks = said.code == Some(99) || said.err.contains("unshare: ") || said.err.contains("setpriv: ");
    (!lacks).then_some(said)
}

fn place() -> Place {
    let place = Place::new();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    copy_program(env!("CARGO_BIN_EXE_xsched").as_ref(), &place.join("xsched"));
    copy_program(&common::library(), &place.join("libxsched.so"));
    place
}

#[test]
fn daemons_that_do_not_know_of_each_other() {
    if !rustix::process::geteuid().is_root() {
        skipped("daemons of other users: needs root");
        return;
    }
    let (place, _left) = (place(), Left);
    let a = users()[0];
    let other = format!("user {a} has a daemon of its own (process ");
    let other = other.as_str();
    let theirs = r#"as $A "$BIN/xsched" run -- true; "#;
    let Some(two_users) = run(&place, &format!(r#"{theirs} as $B "$BIN/xsched" run -- true; as $B "$BIN/xsched" ps"#))
    else {
        skipped("daemons of other users: there can be no namespaces, or no setpriv");
        return;
    };
    assert_eq!(two_users.code, Some(0), "{two_users:?}");
    assert!(two_users.err.contains(other) && two_users.err.contains("systemctl enable"), "{two_users:?}");
    assert!(two_users.out.contains(other), "{two_users:?}");

    let required = run(&place, &format!(r#"{theirs} as $B "$BIN/xsched" run --require -- true"#)).unwrap();
    assert_eq!(required.code, Some(3), "{required:?}");
    assert!(required.err.contains(other) && required.err.contains("--require was given"), "{required:?}");

    // One user's daemon does not keep other users from the machine's.
    let system = r#"mkdir /run/xsched; "$BIN/xsched" daemon --socket /run/xsched/xsched.sock & until_ps as $B;"#;
    let asked = r#"as $B "$BIN/xsched" run --require -- true; as $B "$BIN/xsched" ps --json"#;
    let with_a_system_daemon = run(&place, &format!("{theirs} {system} {asked}")).unwrap();
    assert_eq!(with_a_system_daemon.code, Some(0), "{with_a_system_daemon:?}");
    assert!(with_a_system_daemon.err.contains(other), "{with_a_system_daemon:?}");
    assert!(with_a_system_daemon.out.contains(&format!(r#""uid": {a}"#)), "{with_a_system_daemon:?}");

    // Command as in a container that has its own process ids, and none of the machine's folders.
    let inside = r#"unshare --pid --fork --mount-proc setpriv --reuid=$A --regid=$A --clear-groups "$BIN/xsched""#;
    let container = run(
        &place,
        &format!(
            r#"{inside} run -- sleep 60 & until [ -S /tmp/xsched-$A/xsched.sock ]; do sleep 0.1; done
        as $B "$BIN/xsched" run -- true; kill -9 $!"#
        ),
    )
    .unwrap();
    assert!(container.err.contains("this is a container without the machine's daemon"), "{container:?}");
    assert!(
        container.err.contains(&format!("user {a} has a daemon of its own in a container (process ")),
        "{container:?}"
    );
}
