//! `xsched run` turns into the command: same process id, signals, exit status and environment.

mod common;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Place, copy_program, said};

/// Runs `xsched run` with a stand-in for the library and without a daemon, so that only the command is tested.
fn run(place: &Place, args: &[&str]) -> Command {
    let library = place.join("stand-in.so");
    if !library.exists() {
        place.stand_in("stand-in.so");
    }
    let mut command = place.xsched(&["run", "--local", "hpf"]);
    command.args(args).env("XSCHED_PRELOAD", library);
    command
}

#[test]
fn exit_status_signals_and_process_id_are_the_commands_own() {
    let place = Place::new();
    said(run(&place, &["--", "sh", "-c", "exit 42"])).quiet(42);
    let killed = said(run(&place, &["--", "sh", "-c", "kill -TERM $$"]));
    assert_eq!((killed.code, killed.signal), (None, Some(15)));
    let child = run(&place, &["--", "sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), pid.to_string());
    // Without `--`, too, words after the command belong to the command.
    let echo = said(run(&place, &["echo", "--weight", "-x"]));
    echo.quiet(0);
    assert_eq!(echo.out, "--weight -x\n");
}

#[test]
fn a_broken_pipe_ends_the_command_as_it_would_without_us() {
    let place = Place::new();
    let ignored = |command: Command| -> String {
        let status = said(command);
        status.out.lines().find(|l| l.starts_with("SigIgn")).unwrap().to_owned()
    };
    let status = ["grep", "SigIgn", "/proc/self/status"];
    let bare = ignored(place.command("/usr/bin/env".as_ref(), &status));
    assert_eq!(ignored(run(&place, &status)), bare);
    let nohup = |args: &[&str]| {
        let mut shell = place.command("/bin/sh".as_ref(), &["-c", "trap '' PIPE; exec \"$@\"", "sh"]);
        shell.args(args).env("XSCHED_PRELOAD", place.join("stand-in.so"));
        ignored(shell)
    };
    let xsched = [&[env!("CARGO_BIN_EXE_xsched"), "run", "--local", "hpf"][..], &status].concat();
    assert_eq!(nohup(&xsched), nohup(&status), "SIGPIPE stays ignored where it was");
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let open = "code=0; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && code=$((code + (1 << n))); done; exit $code";
    let looks = ["sh", "-c", open];
    let xsched = [&[env!("CARGO_BIN_EXE_xsched"), "run", "--local", "hpf"][..], &looks].concat();
    for (redirection, expected) in [("", 7), ("<&-", 6), (">&-", 5), ("2>&-", 3), ("<&- >&- 2>&-", 0)] {
        let code = |command: &[&str]| {
            let mut shell = place.command("/bin/sh".as_ref(), &["-c", &format!("\"$@\" {redirection}"), "sh"]);
            shell.args(command).env("XSCHED_PRELOAD", place.join("stand-in.so"));
            said(shell).code
        };
        assert_eq!((code(&looks), code(&xsched)), (Some(expected), Some(expected)), "with {redirection:?}");
    }
}

#[test]
fn what_cannot_be_run_ends_as_in_a_shell() {
    let place = Place::new();
    said(run(&place, &["no-such-command"])).one_line(127, "no-such-command: command not found");
    said(run(&place, &["/no/such/file"])).one_line(127, "/no/such/file: not found");
    said(run(&place, &["/etc"])).one_line(126, "/etc: cannot execute: is a directory");
    let file = place.join("plain");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    said(run(&place, &[file.to_str().unwrap()])).one_line(126, "cannot execute: permission denied");
    let mut in_path = run(&place, &["plain"]);
    in_path.env("PATH", format!("{}:/usr/bin:/bin", place.path().display()));
    said(in_path).one_line(126, "plain: cannot execute: permission denied");
    let script = place.join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    said(run(&place, &[script.to_str().unwrap()])).one_line(127, "its interpreter /no/such/interpreter is not found");
}

#[test]
fn the_environment_holds_what_was_given_and_nothing_else() {
    let place = Place::new();
    let environment = |command: Command| -> Vec<String> {
        let env = said(command);
        env.quiet(0);
        let mut lines: Vec<_> = env.out.lines().filter(|l| l.starts_with("XSCHED_")).map(str::to_owned).collect();
        // These name paths, and the process.
        let [preload, socket, process] = ["XSCHED_PRELOAD=", "XSCHED_SOCKET=", "XSCHED_RUN="];
        assert_eq!(lines.iter().filter(|l| l.starts_with(process)).count(), 1, "{lines:?}");
        lines.retain(|l| ![preload, socket, process].iter().any(|name| l.starts_with(name)));
        lines.sort();
        lines
    };
    let bare = environment(run(&place, &["env"]));
    let [job, policy, scheduler] = bare.as_slice() else { panic!("{bare:?}") };
    assert!(job.starts_with("XSCHED_JOB=run-"));
    assert_eq!((policy.as_str(), scheduler.as_str()), ("XSCHED_POLICY=hpf", "XSCHED_SCHEDULER=LCL"));
    let full = environment(run(
        &place,
        &[
            "--priority",
            "HIGH",
            "--weight",
            "7",
            "--timeslice",
            "500",
            "--level",
            "2",
            "--threshold",
            "3",
            "--job",
            "j 1",
            "--memory-limit",
            "1.5GiB",
            "--memory-reserve",
            "25 %",
            "--memory",
            "swap",
            "--memory-idle",
            "5m",
            "env",
        ],
    ));
    assert_eq!(
        full,
        [
            "XSCHED_AUTO_XQUEUE_LEVEL=2",
            "XSCHED_AUTO_XQUEUE_PRIORITY=128",
            "XSCHED_AUTO_XQUEUE_THRESHOLD=3",
            "XSCHED_AUTO_XQUEUE_TIMESLICE=500",
            "XSCHED_JOB=j 1",
            "XSCHED_MEMORY=swap",
            "XSCHED_MEMORY_IDLE=300s",
            "XSCHED_MEMORY_LIMIT=1536MiB",
            "XSCHED_MEMORY_RESERVE=25%",
            "XSCHED_POLICY=hpf",
            "XSCHED_SCHEDULER=LCL",
            "XSCHED_SHARE=time",
            "XSCHED_WEIGHT=7",
        ]
    );
    let mut inherited = run(&place, &["--priority", "-3", "env"]);
    inherited.env("XSCHED_WEIGHT", "9").env("XSCHED_AUTO_XQUEUE_PRIORITY", "200");
    let inherited = environment(inherited);
    assert!(inherited.contains(&"XSCHED_WEIGHT=9".to_owned()), "what was not given stays: {inherited:?}");
    assert!(inherited.contains(&"XSCHED_AUTO_XQUEUE_PRIORITY=-3".to_owned()), "a flag wins: {inherited:?}");
}

#[test]
fn the_library_comes_first_in_ld_preload_and_the_rest_stays() {
    let place = Place::new();
    let other = place.compile("other.so", "int other;", &["-shared", "-fPIC"]);
    let script = "echo $LD_PRELOAD; echo $ATTACHED";
    let mut command = run(&place, &["sh", "-c", script]);
    command.env("LD_PRELOAD", &other);
    let answer = said(command);
    answer.quiet(0);
    assert_eq!(answer.out, format!("{}:{}\nyes\n", place.join("stand-in.so").display(), other.display()));
    // Within another run, the library is preloaded once.
    let nested = said(run(&place, &[env!("CARGO_BIN_EXE_xsched"), "run", "--local", "hpf", "sh", "-c", script]));
    nested.quiet(0);
    assert_eq!(nested.out, format!("{}\nyes\n", place.join("stand-in.so").display()));
}

#[test]
fn a_library_path_that_ld_preload_cannot_hold_goes_through_a_link() {
    let place = Place::new();
    for folder in ["a folder", "a:b", "$ORIGIN"] {
        std::fs::create_dir(place.join(folder)).unwrap();
        let library = place.stand_in(&format!("{folder}/lib.so"));
        for _ in 0..2 {
            let mut command = run(&place, &["sh", "-c", "echo $ATTACHED; echo $LD_PRELOAD"]);
            command.env("XSCHED_PRELOAD", &library);
            let answer = said(command);
            answer.quiet(0);
            let (attached, preload) = answer.out.trim_end().split_once('\n').unwrap();
            assert_eq!(attached, "yes", "{folder}");
            assert_eq!(std::fs::read_link(preload).unwrap(), library);
        }
    }
    // The path of the program has no limits on its characters.
    let program = place.compile("a folder/my program", "int main(void) { return 5; }", &[]);
    said(run(&place, &[program.to_str().unwrap()])).quiet(5);
}

#[test]
fn the_kill_switch_runs_the_command_bare_and_silently() {
    let place = Place::new();
    let mut command = run(&place, &["--priority", "high", "sh", "-c", "echo \"$ATTACHED.$LD_PRELOAD.$XSCHED_JOB\""]);
    command.env("XSCHED_DISABLE", "1");
    let answer = said(command);
    answer.quiet(0);
    assert_eq!(answer.out, "..\n");
    // With the switch, not even a missing library is an error.
    let mut command = run(&place, &["true"]);
    command.env("XSCHED_DISABLE", "1").env("XSCHED_PRELOAD", "/no/such/library.so");
    said(command).quiet(0);
}

#[test]
fn a_missing_library_is_said_with_what_to_do() {
    let place = Place::new();
    let mut command = run(&place, &["true"]);
    command.env("XSCHED_PRELOAD", "/no/such/library.so");
    said(command).one_line(3, "XSCHED_PRELOAD names /no/such/library.so, which is no file; correct or unset it");
    // This copy of the command has no library beside it.
    let alone = place.join("bin");
    std::fs::create_dir(&alone).unwrap();
    copy_program(Path::new(env!("CARGO_BIN_EXE_xsched")), &alone.join("xsched"));
    let command = place.command(&alone.join("xsched"), &["run", "--local", "hpf", "true"]);
    said(command).one_line(3, "install it there or set XSCHED_PRELOAD");
    // The library at its place in an installation.
    std::fs::create_dir_all(place.join("lib/xsched")).unwrap();
    place.stand_in("lib/xsched/libxsched.so");
    let command = place.command(&alone.join("xsched"), &["run", "--local", "hpf", "sh", "-c", "echo $ATTACHED"]);
    assert_eq!(said(command).out, "yes\n");
}

#[test]
fn without_a_daemon_on_purpose_one_line_says_so() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let mut command = place.xsched(&["run", "--no-daemon", "sh", "-c", "echo $ATTACHED $XSCHED_NO_DAEMON; exit 9"]);
    command.env("XSCHED_PRELOAD", place.join("stand-in.so"));
    let answer = said(command);
    answer.one_line(9, "runs unscheduled");
    assert_eq!(answer.out, "yes 1\n");
    assert!(!place.socket().exists());
}

#[test]
fn a_program_does_not_attach_to_a_daemon_that_is_not_trusted() {
    let place = Place::new();
    place.stand_in("stand-in.so");
    let folder = place.join("anybodys");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let socket = folder.join("x.sock");
    let run = |options: &[&str]| {
        let mut command = place.xsched(&["run"]);
        command.args(options).args(["--", "sh", "-c", "echo ${XSCHED_SOCKET-none} $XSCHED_NO_DAEMON"]);
        command.env("XSCHED_PRELOAD", place.join("stand-in.so")).env("XSCHED_SOCKET", &socket);
        said(command)
    };
    let check = || {
        let said = run(&[]);
        said.one_line(0, "others may write to the folder; sh runs unscheduled");
        assert_eq!(said.out, "none 1\n");
        run(&["--require"]).one_line(3, "others may write to the folder; --require was given");
    };
    // Before there is a daemon, which any user could put there, and beside one that listens.
    check();
    assert!(!socket.exists());
    let listener = seqpacket(&socket);
    check();
    let mut ps = place.xsched(&["ps"]);
    ps.env("XSCHED_SOCKET", &socket);
    said(ps).one_line(3, "others may write to the folder");
    drop(listener);
}

fn seqpacket(path: &Path) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    socket
}
