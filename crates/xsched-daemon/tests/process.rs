//! The daemon as a process of its own: signals, and no work while nothing changes. Without a test harness, which
//! would have threads beside the daemon's.

mod support;

use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Client, options, try_connect};
use xsched_daemon::run;
use xsched_proto::wire::ProgramOptions;
use xsched_testkit::{TIMEOUT, until};

const FOLDER: &str = "XSCHED_TEST_FOLDER";

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return match run(options(folder.as_ref())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("xsched: {e}");
                ExitCode::from(e.exit_code())
            }
        };
    }
    for signal in [Signal::TERM, Signal::INT] {
        a_signal_ends_it_cleanly(signal);
    }
    a_killed_daemon_leaves_a_socket_that_the_next_one_replaces();
    a_daemon_does_nothing_while_nothing_changes();
    println!("process: 4 tests passed");
    ExitCode::SUCCESS
}

struct Daemon {
    folder: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn start(folder: tempfile::TempDir) -> Daemon {
        let child = Command::new(std::env::current_exe().unwrap()).env(FOLDER, folder.path()).spawn().unwrap();
        let daemon = Daemon { folder, child };
        until("the daemon listens", || try_connect(&daemon.socket()).is_some());
        daemon
    }

    fn socket(&self) -> std::path::PathBuf {
        options(self.folder.path()).socket
    }

    fn attach(&self, priority: i32) -> Client {
        Client::attach(&self.socket(), ProgramOptions { priority: Some(priority), ..ProgramOptions::default() })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Processor time used and times it was put to sleep.
    fn work(&self) -> (u64, u64) {
        let pid = self.child.id();
        let schedstat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        (schedstat.split(' ').next().unwrap().parse().unwrap(), sleeps.trim().parse().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn a_signal_ends_it_cleanly(signal: Signal) {
    let mut daemon = Daemon::start(tempfile::tempdir().unwrap());
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    daemon.signal(signal);
    assert!(support::receive(&client.socket).is_none(), "hung up");
    assert!(daemon.child.wait().unwrap().success());
    let left = std::fs::read_dir(daemon.socket().parent().unwrap()).unwrap().count();
    assert_eq!(left, 0, "nothing is left");
}

fn a_killed_daemon_leaves_a_socket_that_the_next_one_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut daemon = Daemon::start(folder);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert!(options(&path).socket.exists());
    let folder = std::mem::replace(&mut daemon.folder, tempfile::tempdir().unwrap());
    let next = Daemon::start(folder);
    next.attach(0).group(0, "sim:0");
}

fn a_daemon_does_nothing_while_nothing_changes() {
    let daemon = Daemon::start(tempfile::tempdir().unwrap());
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    for client in [&low, &high] {
        client.group(0, "sim:0");
        client.ready(0);
    }
    low.until_closed(0);
    high.idle(0);
    low.until_open(0);
    // One timer that was set while the gate was closed may still go off; after that, nothing.
    let quiet = |time: Duration| {
        let (before, end) = (daemon.work(), std::time::Instant::now() + time);
        until("some time has passed", || std::time::Instant::now() > end);
        daemon.work() == before
    };
    let end = std::time::Instant::now() + TIMEOUT;
    while !quiet(Duration::from_millis(300)) {
        assert!(std::time::Instant::now() < end, "it never comes to rest");
    }
    assert!(quiet(Duration::from_secs(1)), "it works though nothing changes");
}
