//! The daemon as a process of its own: signals, and no work while nothing changes. Without a test harness, whose threads would run beside
//! the daemon's.

mod support;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Client, options, try_connect};
use xsched_daemon::{Options, run};
use xsched_proto::hint::Hints;
use xsched_proto::wire::{DaemonMsg, GroupState, ProgramOptions, Request, Target};
use xsched_testkit::{TIMEOUT, until};

const FOLDER: &str = "XSCHED_TEST_FOLDER";
/// Environment variables with the process that another one gives a hint, and the daemon's socket.
const HINTED: &str = "XSCHED_TEST_HINTED";
const SOCKET: &str = "XSCHED_TEST_SOCKET";

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let options = Options {
            usual_config: vec![folder.join("config.toml")],
            log: Some(folder.join("log")),
            log_details: false,
            state: Some(folder.join("state")),
            ..options(folder)
        };
        return match run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("xsched: {e}");
                ExitCode::from(e.exit_code())
            }
        };
    }
    if let (Ok(pid), Some(socket)) = (std::env::var(HINTED), std::env::var_os(SOCKET)) {
        let pid = pid.parse().unwrap();
        // The daemon checks whether the command's process descends from the one that the hint is for.
        until("its parent has ended", || parent_of(std::os::unix::process::parent_id()) != Some(pid));
        support::ask(socket.as_ref(), hint(pid, -5)).unwrap();
        return ExitCode::SUCCESS;
    }
    for signal in [Signal::TERM, Signal::INT] {
        a_signal_ends_it_cleanly(signal);
    }
    a_killed_daemon_leaves_a_socket_that_the_next_one_replaces();
    a_daemon_does_nothing_while_nothing_changes();
    a_configuration_is_read_again_and_one_that_is_wrong_changes_nothing();
    what_commands_have_set_outlives_the_daemon();
    what_a_program_says_of_itself_is_not_kept();
    a_file_that_another_could_have_made_is_not_believed();
    a_service_manager_is_told_how_it_goes();
    a_daemon_that_could_not_decide_says_so();
    println!("process: 10 tests passed");
    ExitCode::SUCCESS
}

struct Daemon {
    folder: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn start(folder: tempfile::TempDir) -> Daemon {
        Daemon::start_with(folder, |_| ())
    }

    fn start_with(folder: tempfile::TempDir, change: impl FnOnce(&mut Command)) -> Daemon {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FOLDER, folder.path());
        change(&mut command);
        let child = command.spawn().unwrap();
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

    fn ask(&self, request: Request) -> Vec<DaemonMsg> {
        support::ask(&self.socket(), request).unwrap()
    }

    /// Policy in force, and the priority of each program with whether it is suspended.
    fn state(&self) -> (String, Vec<(i32, bool)>) {
        let (mut policy, mut programs) = (String::new(), Vec::new());
        for message in self.ask(Request::Ps) {
            match message {
                DaemonMsg::Daemon(info) => policy = info.policy,
                DaemonMsg::Program(p) => {
                    programs.push((p.priority, p.groups.iter().any(|g| g.state == GroupState::Suspended)));
                }
                other => panic!("{other:?}"),
            }
        }
        (policy, programs)
    }

    /// Writes a configuration, makes the daemon read it, and waits until the log reports the outcome.
    fn configure(&self, text: &str, outcome: &str) {
        std::fs::write(self.folder.path().join("config.toml"), text).unwrap();
        let before = self.log().matches(outcome).count();
        self.signal(Signal::HUP);
        until("the configuration is read", || self.log().matches(outcome).count() > before);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills the daemon, so that it can prepare nothing, and starts the next one in the same folder.
    fn replace(mut self) -> Daemon {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Daemon::start(folder)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Processor time used, and number of times that the daemon went to sleep.
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
    // A timer that was set while the gate was closed may still expire once.
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

fn a_configuration_is_read_again_and_one_that_is_wrong_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.toml"), "policy = \"hpf\"\n").unwrap();
    let daemon = Daemon::start(folder);
    let client = Client::attach(&daemon.socket(), ProgramOptions::default());
    client.group(0, "sim:0");
    assert_eq!(daemon.state(), ("hpf".into(), vec![(0, false)]));
    daemon.configure("policy = \"up\"\n[[rule]]\nexe = \"*\"\npriority = \"low\"\n", "was read again");
    assert_eq!(daemon.state(), ("up".into(), vec![(-128, false)]));
    daemon.configure(
        "policy = \"up\"\n\nplicy = 1\n",
        "config.toml:3: unknown key `plicy` of the top level: did you mean `policy`?",
    );
    assert_eq!(daemon.state(), ("up".into(), vec![(-128, false)]), "as it was");
    // An account that is not known keeps nobody from a daemon.
    let account =
        "[[rule]]\nuser = \"no-such-account\"\npriority = \"high\"\n[limits.users.no-such-account]\njobs = 1\n";
    daemon.configure(
        &format!("policy = \"up\"\n{account}[[rule]]\nexe = \"*\"\npriority = 7\n"),
        "config.toml:3: there is no account 'no-such-account' on this machine: the rule for it counts once there is one",
    );
    until("the rest of the file counts", || daemon.state() == ("up".into(), vec![(7, false)]));
    // A FIFO that nobody writes to holds nothing up.
    let fifo = daemon.folder.path().join("config.toml");
    std::fs::remove_file(&fifo).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    daemon.signal(Signal::HUP);
    until("it is told", || daemon.log().contains("the configuration stays as it was: cannot read the configuration"));
    assert!(daemon.log().contains("it is a FIFO: use a file"), "{}", daemon.log());
    std::fs::remove_file(&fifo).unwrap();
    // A policy that a command set stays until the configuration names another one.
    daemon.ask(support::set_policy("cfs"));
    daemon.configure("policy = \"up\"\nstarvation_s = 3\n", "was read again");
    assert_eq!(daemon.state(), ("cfs".into(), vec![(0, false)]), "there is no rule any more");
    daemon.configure("policy = \"mlfq\"\n[devices.\"sim:1\"]\npolicy = \"up\"\n", "was read again");
    assert_eq!(daemon.state().0, "mlfq");
    // A hint stays, limited by a new ceiling. This one came from the daemon's own user, to whom no ceiling applies.
    let pid = std::process::id();
    daemon.ask(hint(pid, 128));
    daemon.configure("[[rule]]\nexe = \"*\"\npriority = \"low\"\n", "was read again");
    assert_eq!(daemon.state(), ("hpf".into(), vec![(128, false)]));
    drop(client);
}

fn hint(pid: u32, priority: i32) -> Request {
    let (hints, target) = (Hints { weight: Some(700), ..Hints::default() }, Target::Pid(pid));
    Request::Hint { targets: vec![target], priority: Some(priority), hints, level: None, threshold: None, batch: None }
}

/// Parent of a process that has not ended.
fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn what_commands_have_set_outlives_the_daemon() {
    let daemon = Daemon::start(tempfile::tempdir().unwrap());
    let pid = std::process::id();
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    daemon.ask(Request::Suspend { targets: vec![Target::Pid(pid)] });
    // The hint comes from a process that is no child of this one.
    let mut stranger = Command::new("setsid");
    stranger.arg("--fork").arg(std::env::current_exe().unwrap()).env(HINTED, pid.to_string());
    assert!(stranger.env(SOCKET, daemon.socket()).status().unwrap().success());
    until("it has the hint", || daemon.state().1 == [(-5, true)]);
    daemon.ask(support::set_policy("up"));
    until("the state is written", || written(&daemon).contains("\"up\"") && written(&daemon).contains("700"));
    let daemon = daemon.replace();
    assert_eq!(daemon.state(), ("up".into(), vec![]));
    let client = Client::attach(&daemon.socket(), ProgramOptions::default());
    client.group(0, "sim:0");
    client.ready(0);
    assert_eq!(daemon.state(), ("up".into(), vec![(-5, true)]));
    // A setting that was undone is not kept.
    daemon.ask(Request::Resume { targets: vec![Target::Pid(pid)] });
    client.until_open(0);
    until("the state is written", || written(&daemon).contains("held = false"));
    let daemon = daemon.replace();
    let client = Client::attach(&daemon.socket(), ProgramOptions::default());
    client.group(0, "sim:0");
    assert_eq!(daemon.state(), ("up".into(), vec![(-5, false)]));
    // Another process may have got the pid: the state file then has another start time.
    drop(client);
    let text = written(&daemon);
    let start = text.lines().find_map(|line| line.strip_prefix("start = ")).unwrap();
    let other = text.replace(&format!("start = {start}"), "start = 1");
    let file = state_file(&daemon).unwrap();
    let daemon = {
        let mut daemon = daemon;
        daemon.child.kill().unwrap();
        daemon.child.wait().unwrap();
        std::fs::write(&file, other).unwrap();
        daemon.replace()
    };
    let client = Client::attach(&daemon.socket(), ProgramOptions::default());
    client.group(0, "sim:0");
    assert_eq!(daemon.state(), ("up".into(), vec![(0, false)]));
}

/// Finds the state file. A file that is still being written has another extension.
fn state_file(daemon: &Daemon) -> Option<PathBuf> {
    let files = std::fs::read_dir(daemon.folder.path().join("state")).ok()?;
    files.map(|file| file.unwrap().path()).find(|file| file.extension().is_some_and(|end| end == "toml"))
}

/// Text of the state file.
fn written(daemon: &Daemon) -> String {
    state_file(daemon).and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default()
}

fn what_a_program_says_of_itself_is_not_kept() {
    let daemon = Daemon::start(tempfile::tempdir().unwrap());
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    daemon.ask(hint(std::process::id(), -5));
    assert_eq!(daemon.state().1, [(-5, false)]);
    daemon.ask(support::set_policy("up"));
    until("the state is written", || written(&daemon).contains("\"up\""));
    let daemon = daemon.replace();
    let client = Client::attach(&daemon.socket(), ProgramOptions::default());
    client.group(0, "sim:0");
    assert_eq!(daemon.state(), ("up".into(), vec![(0, false)]));
}

fn a_file_that_another_could_have_made_is_not_believed() {
    let daemon = Daemon::start(tempfile::tempdir().unwrap());
    daemon.ask(support::set_policy("up"));
    until("the state is written", || written(&daemon).contains("\"up\""));
    let file = state_file(&daemon).unwrap();
    let elsewhere = daemon.folder.path().join("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    let daemon = daemon.replace();
    assert_eq!(daemon.state().0, "hpf");
    until("it says so", || daemon.log().contains("is not used"));
    // State of an earlier boot, and nonsense, are not used.
    std::fs::remove_file(&file).unwrap();
    let text = std::fs::read_to_string(&elsewhere).unwrap();
    let boot = text.lines().find(|line| line.starts_with("boot = ")).unwrap();
    std::fs::write(&file, text.replace(boot, "boot = \"another\"")).unwrap();
    let daemon = daemon.replace();
    assert_eq!(daemon.state().0, "hpf");
    std::fs::write(&file, "nonsense [").unwrap();
    assert_eq!(daemon.replace().state().0, "hpf");
}

fn a_service_manager_is_told_how_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut daemon = Daemon::start_with(folder, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").env_remove("WATCHDOG_PID");
    });
    let next = || {
        let mut buffer = [0; 200];
        let got = manager.recv(&mut buffer).expect("a word");
        String::from_utf8(buffer[..got].to_vec()).unwrap()
    };
    let heard = |wanted: &str| {
        while !next().starts_with(wanted) {}
    };
    assert_eq!(next(), "READY=1");
    heard("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    heard("RELOADING=1\nMONOTONIC_USEC=");
    heard("READY=1");
    // The loop itself reports that it turns: nothing is reported while it does not.
    daemon.signal(Signal::STOP);
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.child.id())).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    };
    until("it is stopped", is_stopped);
    manager.set_nonblocking(true).unwrap();
    let mut buffer = [0; 200];
    while manager.recv(&mut buffer).is_ok() {}
    let end = std::time::Instant::now() + Duration::from_millis(400);
    until("four of its times are over", || std::time::Instant::now() > end);
    assert!(manager.recv(&mut buffer).is_err(), "a stopped loop does not turn");
    manager.set_nonblocking(false).unwrap();
    daemon.signal(Signal::CONT);
    heard("WATCHDOG=1");
    daemon.signal(Signal::TERM);
    heard("STOPPING=1");
    assert!(daemon.child.wait().unwrap().success());
}

fn a_daemon_that_could_not_decide_says_so() {
    let daemon = Daemon::start(tempfile::tempdir().unwrap());
    let (low, high) = (daemon.attach(0), daemon.attach(128));
    for client in [&low, &high] {
        client.group(0, "sim:0");
        client.ready(0);
    }
    // A closed gate needs a timer.
    low.until_closed(0);
    daemon.signal(Signal::STOP);
    let end = std::time::Instant::now() + Duration::from_millis(700);
    until("some time has passed", || std::time::Instant::now() > end);
    daemon.signal(Signal::CONT);
    until("it says so", || daemon.log().contains("no decision for "));
    high.idle(0);
    low.until_open(0);
}
