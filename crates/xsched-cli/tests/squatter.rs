//! Another user has taken the folder in which a user's own daemon would be. A system daemon is found all the same.
//!
//! Needs root, and a mount namespace in which `/run` belongs to the test.

mod common;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::{Place, Said, copy_program, said};
use xsched_testkit::skipped;

/// Folder of the other user, removed whatever the result of the test.
struct Taken(PathBuf);

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `run --require` as the user, with or without a system daemon.
fn run(place: &Place, uid: u32, daemon: bool) -> Said {
    // The shell ends the daemon by its process id.
    let script = r#"
        set -eu
        mount -t tmpfs none /run && mkdir /run/xsched || exit 99
        if [ "$DAEMON" = yes ]; then
            "$BIN/xsched" daemon --socket /run/xsched/xsched.sock & daemon=$!
            trap 'kill $daemon; wait $daemon || :' EXIT
            tries=0
            until "$BIN/xsched" ps >"$BIN/ps" 2>&1; do
                tries=$((tries + 1)); [ $tries -lt 600 ]; sleep 0.1
            done
        fi
        code=0
        setpriv --reuid="$ID" --regid="$ID" --clear-groups "$BIN/xsched" run --require -- sh -c 'exit 4' || code=$?
        exit $code"#;
    let mut command = place.command(Path::new("unshare"), &["--mount", "sh", "-c", script]);
    command.env("BIN", place.path()).env("ID", uid.to_string()).env("DAEMON", if daemon { "yes" } else { "no" });
    command.env_remove("XSCHED_SOCKET").env_remove("XDG_RUNTIME_DIR");
    // On a machine with NVIDIA's driver, this keeps the program away from an MPS daemon.
    command.env("CUDA_MPS_PIPE_DIRECTORY", place.join("mps"));
    said(command)
}

#[test]
fn a_system_daemon_is_found_whatever_stands_where_a_users_own_would_be() {
    if !rustix::process::geteuid().is_root() {
        skipped("a folder that another user has taken: needs root");
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    copy_program(env!("CARGO_BIN_EXE_xsched").as_ref(), &place.join("xsched"));
    copy_program(&common::library(), &place.join("libxsched.so"));
    let uid = 40_000 + std::process::id() % 20_000;
    let taken = Taken(PathBuf::from(format!("/tmp/xsched-{uid}")));
    std::fs::create_dir(&taken.0).unwrap();
    std::os::unix::fs::chown(&taken.0, Some(uid + 1), None).unwrap();
    let without = run(&place, uid, false);
    if without.code == Some(99) || without.err.contains("unshare: ") || without.err.contains("setpriv: ") {
        skipped("a folder that another user has taken: there can be no mount namespace, or no setpriv");
        return;
    }
    without.one_line(3, &format!("belongs to user {}", uid + 1));
    let with = run(&place, uid, true);
    assert_eq!(with.code, Some(4), "{with:?}");
    assert!(!with.err.contains("require"), "{with:?}");
}
