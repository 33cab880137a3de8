//! The daemon dies or stops while it holds a program: the program continues, and the next daemon schedules it again.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use xsched_e2e::{Lateness, Place, Process, least_of, now_ns, signal, until};

/// Promised times until gates open after a daemon hung up, and after it fell silent. The first takes some ms and the second 0.8 to 0.9 s
/// where the machine is quiet, a batch of kernels included, so that one try of a few is within it on a busy one.
const HANG_UP: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_secs(1);
/// Longest time until the next batch of a program that nothing delays.
const LONGEST_GAP: Duration = Duration::from_millis(500);
/// Tries at these times, see [`least_of`].
const TRIES: u32 = 5;

/// Starts an endless program, suspends it, and waits until it stands still.
fn held(place: &Place) -> Process {
    let steady = place.sim_program("steady");
    let mut program = place.run(&[], &steady, &[]);
    program.expect("ready");
    program.progress_after(0);
    place.ask(&["suspend", "--pid", &program.pid().to_string()]);
    place.await_state(program.pid(), "suspended");
    program.until_quiet();
    program
}

fn unscheduled(group: &serde_json::Value) -> u64 {
    group["unscheduled"]["attach"].as_u64().unwrap()
}

/// Waits until a new daemon schedules the program, by the program's own count. Returns the time that this took.
fn assert_scheduled_again(place: &Place, program: &mut Process) -> Duration {
    let pid = program.pid();
    let took = until("it attaches", || {
        place.group(pid).is_some_and(|g| ["running", "ready", "idle"].contains(&g["state"].as_str().unwrap()))
    });
    // From here on launches pass by the gate: all further ones are scheduled.
    let begin = place.group(pid).unwrap();
    assert!(unscheduled(&begin) > 0, "what went by without a daemon is counted: {begin}");
    until("it launches", || place.group(pid).unwrap()["launches"].as_u64() > begin["launches"].as_u64());
    let end = place.group(pid).unwrap();
    assert_eq!(unscheduled(&end), unscheduled(&begin), "{end}");
    // The new daemon can hold it, too.
    place.ask(&["suspend", "--pid", &pid.to_string()]);
    place.await_state(pid, "suspended");
    place.ask(&["resume", "--pid", &pid.to_string()]);
    program.progress_after(now_ns());
    took
}

/// Time from a signal to the daemon until a program that an operator holds has done another batch.
fn time_until_a_held_program_goes_on(sent: Signal) -> Duration {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let mut program = held(&place);
    let when = now_ns();
    signal(daemon.pid(), sent);
    program.progress_after(when)
}

#[test]
fn gates_open_within_a_tenth_of_a_second_after_a_hang_up() {
    least_of(TRIES, HANG_UP, "daemon killed: the held program's next batch was done after", || {
        time_until_a_held_program_goes_on(Signal::KILL)
    });
}

#[test]
fn gates_open_within_a_second_of_silence() {
    least_of(TRIES, SILENCE, "daemon stopped: the held program's next batch was done after", || {
        time_until_a_held_program_goes_on(Signal::STOP)
    });
}

#[test]
fn all_programs_of_a_killed_daemon_go_on() {
    least_of(TRIES, HANG_UP, "daemon killed: the program held for another's sake went on after", || {
        let place = Place::new();
        let daemon = place.daemon(&["--policy", "hpf"]);
        let (mut low, mut high) = place.low_held_by_high();
        let when = now_ns();
        signal(daemon.pid(), Signal::KILL);
        let after = low.progress_after(when);
        high.progress_after(when);
        for mut program in [low, high] {
            program.tell("end");
            assert_eq!(program.wait().0, 0);
        }
        after
    });
}

/// Processor time that the agent thread of a program has used, in ticks of 10 ms.
fn agent_ticks(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let is_agent = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap() == "xsched-agent\n";
    let stat = std::fs::read_to_string(tasks.into_iter().find(is_agent).expect("its agent").join("stat")).unwrap();
    // Fields 14 and 15 are utime and stime. The second field, in parentheses, may contain anything.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Agents must not wait without pause for a decision when no program is left.
#[test]
fn agents_of_a_killed_daemon_sleep() {
    let place = Place::new();
    let daemon = place.daemon(&["--policy", "hpf"]);
    place.device();
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    // Together the programs want more than the device can do, so that one of them wants it whenever the daemon dies, and each often waits
    // for its own commands.
    let requests = ["lc", "--us", "100", "--period-us", "800", "--requests", "1000000"];
    // The low program begins before the high one comes, which on a busy machine may leave it nothing.
    let programs = ["low", "high"].map(|priority| {
        let program = place.run(&["--priority", priority], &load, &requests);
        let launches = || place.group(program.pid()).and_then(|g| g["launches"].as_u64());
        until("it is at work", || launches().is_some_and(|n| n > 100));
        program
    });
    signal(daemon.pid(), Signal::KILL);
    assert_eq!(daemon.wait().0, -9);
    for program in &programs {
        until("it knows", || program.errors().contains("runs unscheduled until a daemon answers"));
        let (begin, before) = (now_ns(), agent_ticks(program.pid()));
        until("a second has passed", || now_ns() > begin + 1_000_000_000);
        let used = agent_ticks(program.pid()) - before;
        assert!(used < 10, "the agent ran for {used} of 100 ticks");
    }
}

#[test]
fn a_program_goes_on_when_the_daemon_stops_and_a_late_daemon_closes_nothing() {
    let place = Place::new();
    let daemon = place.daemon(&["--policy", "hpf"]);
    let (mut low, mut high) = place.low_held_by_high();
    let when = now_ns();
    signal(daemon.pid(), Signal::STOP);
    let after = low.progress_after(when);
    println!("daemon stopped: the held program's next batch was done after {after:?}");
    // Nothing is left for which the low program would have to wait.
    high.tell("end");
    assert_eq!(high.wait().0, 0);
    low.skip_lines();
    low.progress_after(now_ns());
    let control = Lateness::begin();
    signal(daemon.pid(), Signal::CONT);
    // Measured while the daemon is back and the program attaches again.
    let (gap, allowed) = (low.longest_gap(Duration::from_secs(3)), control.allows(LONGEST_GAP));
    assert!(gap < allowed, "a gap of {gap:?}, allowed {allowed:?}");
    let took = assert_scheduled_again(&place, &mut low);
    println!("attached again {took:?} later than 3 s after the daemon went on");
    low.tell("end");
    let (code, lines, errors) = low.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
}

#[test]
fn a_suspended_program_is_suspended_again_once_the_stopped_daemon_goes_on() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    let mut program = held(&place);
    let when = now_ns();
    signal(daemon.pid(), Signal::STOP);
    program.progress_after(when);
    signal(daemon.pid(), Signal::CONT);
    place.await_state(program.pid(), "suspended");
    place.ask(&["resume", "--pid", &program.pid().to_string()]);
    program.progress_after(now_ns());
    program.tell("end");
    assert_eq!(program.wait().0, 0);
}

/// Daemon's entry, and the process ids of its programs, as `ps` shows them.
fn arbiter(ps: &serde_json::Value) -> (u64, Vec<u64>) {
    let pids = ps["programs"].as_array().unwrap().iter().map(|program| program["pid"].as_u64().unwrap());
    (ps["daemon"]["pid"].as_u64().unwrap(), pids.collect())
}

/// The end of a session removes `/run/user/UID`, but the daemon and its programs continue.
#[test]
fn a_daemon_whose_folder_was_removed_is_the_one_that_the_next_program_finds() {
    let place = Place::new();
    let (folder, steady) = (place.join("session"), place.sim_program("steady"));
    let socket = folder.join("x.sock");
    let at = |mut command: std::process::Command| {
        command.env("XSCHED_SOCKET", &socket);
        command
    };
    let ps = || {
        let output = at(place.xsched(&["ps", "--json"])).output().unwrap();
        output.status.success().then(|| arbiter(&serde_json::from_slice(&output.stdout).unwrap()))
    };
    let daemon = Process::start(at(place.xsched(&["daemon"])));
    until("the daemon answers", || ps().is_some());
    let start = || {
        let mut program = Process::start(at(place.run_command(&["--require"], &steady, &["100", "1"])));
        program.expect("ready");
        program
    };
    let first = start();
    std::fs::remove_dir_all(&folder).unwrap();
    // The daemon need not notice: the next program asks it.
    let second = start();
    let expected = (u64::from(daemon.pid()), [first.pid(), second.pid()].map(u64::from));
    let (server, mut programs) = ps().expect("a daemon");
    programs.sort();
    assert_eq!(
        (server, programs),
        (expected.0, {
            let mut both = expected.1.to_vec();
            both.sort();
            both
        })
    );
    // A command makes the daemon restore its socket, too.
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(ps().map(|(server, programs)| (server, programs.len())), Some((expected.0, 2)));
    let log = daemon.errors();
    assert_eq!(log.matches("was gone: it is there again").count(), 2, "{log}");
    // A second daemon finds that there is one already.
    std::fs::remove_dir_all(&folder).unwrap();
    let (code, _, errors) = Process::start(at(place.xsched(&["daemon"]))).wait();
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains(&format!("another daemon (pid {}) already serves", daemon.pid())), "{errors}");
    for mut program in [first, second] {
        program.tell("end");
        assert_eq!(program.wait().0, 0);
    }
    signal(daemon.pid(), Signal::TERM);
    assert_eq!(daemon.wait().0, 0);
    assert!(!socket.exists());
}

/// A folder of xsched's own name is made again without a request.
#[test]
fn a_user_daemon_makes_its_folder_again() {
    let place = Place::new();
    if std::path::Path::new("/run/xsched/xsched.sock").exists() {
        xsched_testkit::skipped("a user's own daemon: this machine has a system daemon");
        return;
    }
    let steady = place.sim_program("steady");
    let mut run = place.run_command(&[], &steady, &["100", "1"]);
    run.env_remove("XSCHED_SOCKET");
    let mut program = Process::start(run);
    program.expect("ready");
    let folder = place.join("xsched");
    std::fs::remove_dir_all(&folder).unwrap();
    until("it listens again", || folder.join("xsched.sock").exists());
    let mut ps = place.xsched(&["ps", "--json"]);
    let output = ps.env_remove("XSCHED_SOCKET").output().unwrap();
    let (daemon, programs) = arbiter(&serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(programs, [u64::from(program.pid())]);
    program.tell("end");
    assert_eq!(program.wait().0, 0);
    signal(u32::try_from(daemon).unwrap(), Signal::TERM);
    until("the daemon has ended", || !folder.join("xsched.sock").exists());
}

/// As with a login manager: the session's folder is removed, and made again at the next login. Needs root, and a mount namespace in which
/// `/run` is the test's own.
#[test]
fn programs_before_between_and_after_two_sessions_have_one_daemon() {
    if !rustix::process::geteuid().is_root() {
        xsched_testkit::skipped("the end of a session: needs root");
        return;
    }
    let place = Place::new();
    let steady = place.sim_program("steady");
    place.share_build();
    let uid = 40_000 + std::process::id() % 20_000;
    let script = r#"
        set -eu
        mount -t tmpfs none /run || exit 99
        as="setpriv --reuid=$ID --regid=$ID --clear-groups"
        $as true || exit 99
        pids= daemon=
        trap 'kill $pids $daemon 2>/dev/null || :' EXIT
        soon() { tries=0; until "$@"; do tries=$((tries + 1)); [ $tries -lt 200 ]; sleep 0.1; done; }
        login() { mkdir -p "/run/user/$ID"; chown "$ID:$ID" "/run/user/$ID"; chmod 700 "/run/user/$ID"; }
        shown() { $as "$BIN/xsched" ps --json | tr -d ' ' | grep -q "\"pid\":$1,"; }
        start() {
            $as "$BIN/xsched" run -- "$STEADY" 100 1 <"$HOLD" >"$HOLD.out" & pids="$pids $!"
            soon shown $!
        }
        export XDG_RUNTIME_DIR="/run/user/$ID"
        mkfifo "$HOLD"; chmod 666 "$HOLD"; exec 9<>"$HOLD"
        login
        start
        daemon=$($as "$BIN/xsched" ps | sed -n 's/.*daemon \([0-9]*\) up.*/\1/p')
        rm -rf "/run/user/$ID"
        start
        login
        start
        $as "$BIN/xsched" ps --json
        kill $pids $daemon
        gone() { ! kill -0 $daemon 2>/dev/null; }
        soon gone
        rm -rf "/tmp/xsched-$ID""#;
    let mut command = place.command("unshare", &["--mount", "bash", "-c", script]);
    command.env("BIN", place.join("build")).env("ID", uid.to_string()).env("STEADY", &steady);
    command.env("LD_LIBRARY_PATH", place.join("build")).env("HOLD", place.join("hold"));
    command.env_remove("XSCHED_SOCKET").env_remove("XSCHED_STATS").env("CUDA_MPS_PIPE_DIRECTORY", place.join("mps"));
    use std::os::unix::fs::PermissionsExt;
    for (path, mode) in [(place.join(""), 0o755), (place.join("sim.sock"), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let output = xsched_testkit::finish(
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap(),
        Duration::from_secs(120),
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || errors.contains("unshare: ") || errors.contains("setpriv: ") {
        xsched_testkit::skipped("the end of a session: there can be no mount namespace, or no setpriv");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let (_, programs) = arbiter(&serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(programs.len(), 3, "{errors}");
}
