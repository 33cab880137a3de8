//! Visibility of the library to a program: nothing that it did not ask for, and never a byte in a descriptor of its own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use xsched_e2e::{Place, Process, beside, finish, signal, skipped, until};

const SIGXFSZ: i32 = 25;
/// Silence of a daemon after which it holds nothing any more.
const LEASE: Duration = Duration::from_millis(800);

/// Runs `surroundings` and returns its findings and its output.
fn look(place: &Place, mut command: Command, name: &str, device: bool) -> (String, Vec<String>, String) {
    let file = place.join(name);
    command.arg(&file);
    if device {
        command.arg("device");
    }
    let (code, lines, errors) = Process::start(command).wait();
    assert_eq!(code, 0, "{errors}");
    // Pipes have other numbers each time.
    let text = std::fs::read_to_string(file).unwrap();
    let found = text.lines().map(|l| l.split_once(":[").map_or(l, |(kind, _)| kind)).collect::<Vec<_>>().join("\n");
    (found, lines, errors)
}

fn preloaded(place: &Place, program: &Path) -> Command {
    let mut command = place.command(program, &[]);
    command.env("LD_PRELOAD", beside("libxsched.so"));
    command
}

#[test]
fn a_program_without_a_device_sees_nothing() {
    let place = Place::new();
    let program = place.sim_program("surroundings");
    let _daemon = place.daemon(&[]);
    let bare = look(&place, place.command(&program, &[]), "bare", false);
    assert_eq!(look(&place, preloaded(&place, &program), "preloaded", false), bare);
    assert_eq!(look(&place, place.run_command(&[], &program, &[]), "run", false), bare);
    assert!(place.ps().unwrap()["programs"].as_array().unwrap().is_empty());
    assert!(place.stats().is_empty());
}

#[test]
fn disabled_means_not_there_at_all() {
    let place = Place::new();
    let program = place.sim_program("surroundings");
    let _daemon = place.daemon(&[]);
    let bare = look(&place, place.command(&program, &[]), "bare", true);
    let mut command = preloaded(&place, &program);
    command.env("XSCHED_DISABLE", "1");
    assert_eq!(look(&place, command, "disabled", true), bare);
    assert!(place.stats().is_empty());
    // Compared with the same program under the library.
    let ours = look(&place, preloaded(&place, &program), "preloaded", true);
    assert_eq!((ours.1, ours.2), (bare.1, bare.2), "the same output");
    assert_ne!(ours.0, bare.0, "it does see the agent thread");
    assert_eq!(place.stats().len(), 1);
}

#[test]
fn standard_descriptors_that_are_closed_do_not_become_ours() {
    let place = Place::new();
    let program = place.sim_program("surroundings");
    let _daemon = place.daemon(&[]);
    let shell = |under: &[&str]| {
        let mut command = place.command("sh", &["-c", "exec \"$@\" <&- >&- 2>&-", "sh"]);
        command.args(under).arg(&program);
        command
    };
    let mut under = std::ffi::OsString::from("LD_PRELOAD=");
    under.push(beside("libxsched.so"));
    let (bare, ..) = look(&place, shell(&["env"]), "bare", true);
    let (ours, ..) = look(&place, shell(&["env", under.to_str().unwrap()]), "ours", true);
    let standard = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    println!("with 0, 1 and 2 closed: bare {:?}, under xsched {:?}", standard(&bare), standard(&ours));
    assert_eq!(standard(&ours), standard(&bare));
    assert_eq!(place.stats().len(), 1, "it was attached");
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_clean() {
    // All numbers are taken over by a file, an eventfd, a socket, or by these in turn.
    for kind in [&["0"][..], &["2"], &[]] {
        let place = Place::new();
        let program = place.opencl_program("closes_descriptors");
        let _daemon = place.daemon(&[]);
        let folder = place.join("");
        let args = [&[folder.to_str().unwrap()], kind].concat();
        let (code, lines, errors) = place.run(&["--level", "1"], &program, &args).wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{kind:?}: {errors}");
        let ours = errors.lines().filter(|l| l.starts_with("xsched: ")).count();
        assert!(ours <= 1, "{errors}");
    }
}

/// Makes a command that is started by another one, which becomes it.
fn under(place: &Place, starter: &[&str], command: &Command) -> Command {
    let mut started = place.command(starter[0], &starter[1..]);
    started.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => started.env(name, value),
            None => started.env_remove(name),
        };
    }
    started
}

/// Makes a command with a limit on the size of files, in bytes.
fn limited(place: &Place, bytes: u64, command: &Command) -> Command {
    under(place, &["prlimit", &format!("--fsize={bytes}"), "--"], command)
}

#[test]
fn a_limit_on_the_size_of_files_costs_scheduling_and_ends_no_program() {
    let place = Place::new();
    let program = place.sim_program("launches");
    let log = place.join("log");
    std::fs::write(&log, [b' '; 8192]).unwrap();
    // As a control, a program that exceeds the limit itself is ended by SIGXFSZ.
    let writes = place.command("sh", &["-c", "exec echo more >> \"$0\"", log.to_str().unwrap()]);
    assert_eq!(Process::start(limited(&place, 4096, &writes)).wait().0, -SIGXFSZ);
    let (segment, small) = (xsched_proto::segment::SEGMENT_BYTES as u64, [0, 4096]);

    // A daemon that can neither write its log nor its state goes on.
    let mut daemon = place.xsched(&["daemon", "--log", log.to_str().unwrap()]);
    daemon.env("XSCHED_LOG", "debug");
    let mut daemon = Process::start(limited(&place, 4096, &daemon));
    until("the daemon answers", || {
        assert_eq!(daemon.has_ended(), None, "{}", daemon.errors());
        place.ps().is_some()
    });
    for bytes in small.into_iter().chain([segment - 1]) {
        let (code, lines, errors) = Process::start(limited(&place, bytes, &preloaded(&place, &program))).wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{bytes}: {errors}");
        let why = format!(
            "xsched: runs unscheduled: cannot make the shared segment: the file-size limit (ulimit -f) of {bytes} "
        );
        assert!(errors.starts_with(&why) && errors.lines().count() == 1, "{errors}");
        // Even the line may exceed the limit.
        let into_file =
            place.command("sh", &["-c", "exec \"$0\" 2>>\"$1\"", program.to_str().unwrap(), log.to_str().unwrap()]);
        let mut into_file = limited(&place, bytes.min(4096), &into_file);
        into_file.env("LD_PRELOAD", beside("libxsched.so"));
        assert_eq!(Process::start(into_file).wait().0, 0);
    }
    // With just enough room for the segment it is scheduled; only its final statistics find no room.
    std::fs::File::create(place.join("stats")).unwrap().set_len(segment + 1).unwrap();
    let (code, _, errors) = Process::start(limited(&place, segment, &preloaded(&place, &program))).wait();
    assert!(code == 0 && errors.starts_with("xsched: XSCHED_STATS: nothing is written"), "{code}: {errors}");
    std::fs::remove_file(place.join("stats")).unwrap();
    assert_eq!(daemon.has_ended(), None);
    assert!(place.ps().is_some());
    drop(daemon);

    // The limit also applies to a daemon that `run` starts.
    let _ = std::fs::remove_file(place.socket());
    for bytes in small {
        let run = place.run_command(&[], &program, &[]);
        let (code, lines, errors) = Process::start(limited(&place, bytes, &run)).wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{bytes}: {errors}");
        if place.ps().is_some() {
            continue;
        }
        // Only with CAP_SYS_RESOURCE may `run` lift the limit for the daemon.
        assert_eq!((bytes, errors.lines().count()), (0, 1), "{errors}");
        assert!(
            errors.starts_with("xsched: the daemon cannot begin: the file-size limit (ulimit -f) of 0 bytes"),
            "{errors}"
        );
    }
}

/// Makes a command whose CLOCK_MONOTONIC is ahead of the machine's by `seconds`.
fn ahead(place: &Place, seconds: u32, command: &Command) -> Command {
    under(place, &["unshare", "--time", "--monotonic", &seconds.to_string(), "--"], command)
}

#[test]
fn a_program_whose_clock_is_another_is_scheduled() {
    let place = Place::new();
    if !ahead(&place, 1, &place.command("true", &[])).status().is_ok_and(|status| status.success()) {
        return skipped("no right to make time namespaces");
    }
    const HOUR: u32 = 3600;
    let steady = place.sim_program("steady");
    for (of_daemon, of_program) in [(0, HOUR), (HOUR, 0), (HOUR, 2 * HOUR)] {
        let case = format!("daemon {of_daemon} s ahead, program {of_program} s");
        let daemon = Process::start(ahead(&place, of_daemon, &place.xsched(&["daemon"])));
        until("the daemon answers", || place.ps().is_some());
        let run = place.run_command(&["--level", "1"], &steady, &[]);
        let mut program = Process::start(ahead(&place, of_program, &run));
        program.expect("ready");
        let pid = place.ps().unwrap()["programs"][0]["pid"].as_u64().expect("it is attached") as u32;
        place.ask(&["suspend", "--pid", &pid.to_string()]);
        place.await_state(pid, "suspended");
        let (began, launches) = (Instant::now(), place.launches(pid));
        // Measured for twice as long as a daemon may be silent.
        std::thread::sleep(2 * LEASE);
        assert_eq!((place.launches(pid), program.errors().as_str()), (launches, ""), "{case}: it is held");
        let waits_us = place.group(pid).unwrap()["wait_us"].as_u64().unwrap();
        let most_us = began.elapsed().as_micros() as u64 + 60_000_000;
        assert!((1_000_000..most_us).contains(&waits_us), "{case}: {waits_us} us at the gate");
        // A stopped daemon counts as silent all the same.
        program.skip_lines();
        signal(daemon.pid(), Signal::STOP);
        program.progress_after(0);
        until("it says why it goes on", || program.errors().contains("the daemon is silent"));
        signal(daemon.pid(), Signal::CONT);
        program.tell("end");
        assert_eq!(program.wait().0, 0, "{case}");
        drop(daemon);
        let _ = std::fs::remove_file(place.socket());
    }
}

#[test]
fn a_program_that_cannot_make_a_pidfd_is_scheduled() {
    // Errors ENOSYS and EPERM. In the first case `run` starts the daemon, which then has no pidfds either.
    for (error, begins) in [("38", true), ("1", false)] {
        let place = Place::new();
        let steady = place.sim_program("steady");
        let without = place.compile("programs/hazards/without_pidfd.c", &[]);
        let start = |command: &Command| Process::start(under(&place, &[without.to_str().unwrap(), error], command));
        assert_eq!(start(&place.command("true", &[])).wait().0, 0, "the filter works");
        let _daemon = (!begins).then(|| place.daemon(&[]));
        let mut program = start(&place.run_command(&["--level", "1"], &steady, &[]));
        program.expect("ready");
        let pid = program.pid();
        place.ask(&["suspend", "--pid", &pid.to_string()]);
        place.await_state(pid, "suspended");
        assert_eq!(program.errors(), "");
        // The daemon notices the program's death all the same.
        drop(program);
        until("it is gone", || place.program(pid).is_none());
    }
}

/// After `sudo -E` or `su` the environment still names the folders of the previous user. Files that root makes in them keep that user out.
/// Needs root, and a mount namespace in which `/run` is the test's own.
#[test]
fn folders_of_another_user_are_left_alone_and_stay_usable_for_their_owner() {
    if !rustix::process::geteuid().is_root() {
        skipped("another user's folders: needs root");
        return;
    }
    let place = Place::new();
    let steady = place.sim_program("steady");
    place.share_build();
    let uid = 40_000 + std::process::id() % 20_000;
    for folder in ["runtime", "home"] {
        let folder = place.join(folder);
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(uid), Some(uid)).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    }
    for (path, mode) in [(place.join(""), 0o755), (place.join("sim.sock"), 0o666)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    // Root runs a program in the user's environment, then the user runs one in the user's own: with --require it must find or start a
    // daemon.
    let script = r#"
        set -eu
        mount -t tmpfs none /run && mount -t tmpfs none ~root || exit 99
        as="setpriv --reuid=$ID --regid=$ID --clear-groups"
        $as true || exit 99
        mkdir -p /run/user/0; chmod 700 /run/user/0
        export XDG_RUNTIME_DIR="$AT/runtime" HOME="$AT/home"
        daemons=
        trap 'kill $daemons 2>/dev/null || :' EXIT
        daemon() { "$@" "$BIN/xsched" ps | sed -n 's/.*daemon \([0-9]*\) up.*/\1/p'; }
        "$BIN/xsched" run -- "$STEADY" 100 1 </dev/null >/dev/null
        daemons="$(daemon env)"
        "$BIN/xsched" policy set up >/dev/null
        kill $daemons
        tries=0; while kill -0 $daemons 2>/dev/null; do tries=$((tries + 1)); [ $tries -lt 200 ]; sleep 0.1; done
        daemons=
        echo "foreign: $(find "$AT/runtime" "$AT/home" ! -user "$ID" | wc -l)"
        echo "session: $(find /run/user/0 -name xsched.sock.log | wc -l)"
        echo "kept: $(grep -lr up ~root --include='*.toml' | wc -l)"
        $as "$BIN/xsched" run -- "$STEADY" 100 1 </dev/null | tail -n 1
        daemons="$(daemon $as)"
        echo "own: $(find "$AT/runtime/xsched" -name xsched.sock -user "$ID" | wc -l)""#;
    let mut command = place.command("unshare", &["--mount", "bash", "-c", script]);
    command.env("BIN", place.join("build")).env("ID", uid.to_string()).env("AT", place.join(""));
    command.env("LD_LIBRARY_PATH", place.join("build")).env("STEADY", &steady);
    for name in ["XSCHED_SOCKET", "XSCHED_STATS", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command.env("CUDA_MPS_PIPE_DIRECTORY", place.join("mps")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finish(command.spawn().unwrap(), Duration::from_secs(120));
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if output.status.code() == Some(99) || errors.contains("unshare: ") || errors.contains("setpriv: ") {
        skipped("another user's folders: there can be no mount namespace, or no setpriv");
        return;
    }
    assert_eq!(said.lines().collect::<Vec<_>>(), ["foreign: 0", "session: 1", "kept: 1", "ok", "own: 1"], "{errors}");
}
