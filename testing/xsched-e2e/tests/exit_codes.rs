//! Exit codes in the table of `docs/reference/cli.md`: each row is tested by running its commands.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use xsched_e2e::{Place, Process, beside, signal, until};

/// Exit code of a command, as a shell computes it.
fn code(mut command: Command) -> i32 {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs");
    status.code().unwrap_or_else(|| 128 + status.signal().expect("ended by a signal"))
}

/// Exit code of a command that gets a signal once it has begun.
fn code_after(signal_to_it: Signal, command: Command, has_begun: impl Fn() -> bool) -> i32 {
    let process = Process::start(command);
    until("it has begun", has_begun);
    signal(process.pid(), signal_to_it);
    let (code, _, errors) = process.wait();
    assert!(code >= 0, "it has ended by itself: {errors}");
    code
}

/// Child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Reports whether a process of this name has a handler for a signal.
fn handles(pid: u32, name: &str, by: Signal) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |label: &str| text.lines().find_map(|line| line.strip_prefix(label)).map(str::trim);
    let caught = field("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    field("Name:") == Some(name) && caught & (1 << (by.as_raw() - 1)) != 0
}

/// Runs `top` in a terminal, and ends it by a signal. Returns the exit code.
fn top_ended_by(place: &Place, by: Signal) -> i32 {
    let line = format!("exec {} top", beside("xsched").display());
    let script = Process::start(place.command("script", &["-qefc", &line, "/dev/null"]));
    let mut top = 0;
    until("top runs", || {
        let below = children(script.pid());
        top = below.into_iter().find(|pid| handles(*pid, "xsched", by)).unwrap_or(0);
        top != 0
    });
    signal(top, by);
    script.wait().0
}

/// Cases of a row, with the exit codes that they had.
fn codes(place: &Place, row: &str) -> Vec<i32> {
    let x = |words: &[&str]| code(place.xsched(words));
    match row {
        "done; `daemon`: ended by SIGTERM or SIGINT" => {
            let ended = [Signal::TERM, Signal::INT].map(|by| {
                let daemon = place.daemon(&[]);
                signal(daemon.pid(), by);
                daemon.wait().0
            });
            [x(&["policy"]), x(&["config", "check"])].into_iter().chain(ended).collect()
        }
        "`check`: something differs under xsched" => {
            let python = place.join("python");
            let step = r#"echo '{"step":"import torch","outcome":{"ok":"'"$XSCHED_DISABLE"'"}}'"#;
            std::fs::write(&python, format!("#!/bin/sh\n{step}\n")).unwrap();
            std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
            vec![x(&["check", "--device", "opencl", "--python", python.to_str().unwrap()])]
        }
        "bad input; found before a daemon is contacted" => vec![
            x(&["hnit"]),
            x(&["run", "--priority", "hihg", "true"]),
            x(&["policy", "set", "fifo"]),
            x(&["hint", "1"]),
            x(&["ps", "all"]),
        ],
        "the machine does not allow it: no daemon, no permission, no device, a level that no device has" => {
            let no_daemon = x(&["ps"]);
            let daemon = place.daemon(&[]);
            let nothing_matches = x(&["suspend", "--job", "none"]);
            // On OpenCL there is level 1 only.
            let provides = place.opencl_program("provides_later_cl");
            let mut program = place.run(&[], &provides, &[]);
            program.expect("ready");
            let no_such_level = x(&["hint", &program.pid().to_string(), "--level", "3"]);
            drop((program, daemon));
            vec![no_daemon, nothing_matches, no_such_level, x(&["check", "--device", "cuda", "--python", "none"])]
        }
        "`doctor`: a check failed, or with `--strict` is a note" => {
            let mut strict = place.xsched(&["doctor", "--strict"]);
            strict.env("XSCHED_DISABEL", "1");
            vec![x(&["doctor", "4194304"]), code(strict)]
        }
        "`run --require`: the program would run unscheduled" => {
            let mut disabled = place.xsched(&["run", "--require", "true"]);
            disabled.env("XSCHED_DISABLE", "1");
            vec![code(disabled), x(&["run", "--require", "--socket", "/none/x.sock", "true"])]
        }
        "`run`: the command cannot be executed, as in a shell" => {
            vec![x(&["run", "--no-daemon", "--", "/etc/passwd"]), x(&["run", "--no-daemon", "--", "/tmp"])]
        }
        "`run`: the command is not found, as in a shell" => {
            vec![x(&["run", "--no-daemon", "--", "no-such-command"]), x(&["run", "--no-daemon", "--", "/no/such"])]
        }
        "`run`: signal n ended the command, as a shell tells it: `run` has become the command" => {
            let killed = |by: &str| x(&["run", "--no-daemon", "--", "sh", "-c", &format!("kill -{by} $$")]) - 128;
            vec![killed("9"), killed("15")]
        }
        "`top`: ended by signal n, the terminal restored" => {
            let _daemon = place.daemon(&[]);
            [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(|by| top_ended_by(place, by) - 128).to_vec()
        }
        "`check`, `compare`, `demo`: interrupted by SIGINT or SIGTERM, and cleaned up" => {
            let ended = |words: &[&str], by| {
                let begun = place.join("begun");
                let _ = std::fs::remove_file(&begun);
                let mut command = place.xsched(words);
                command.current_dir(place.join(""));
                code_after(by, command, || begun.exists())
            };
            let line = "touch begun; exec sleep 600";
            let python = place.join("slow");
            std::fs::write(&python, format!("#!/bin/sh\ntouch {}; exec sleep 600\n", place.join("begun").display()))
                .unwrap();
            std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
            let check = ["check", "--device", "opencl", "--python", python.to_str().unwrap()];
            let compare = ["compare", "--high", line, "--low", line];
            [
                ended(&check, Signal::INT),
                ended(&check, Signal::TERM),
                ended(&compare, Signal::INT),
                ended(&compare, Signal::TERM),
            ]
            .into_iter()
            .chain([Signal::INT, Signal::TERM].map(|by| demo_ended_by(place, by)))
            .collect()
        }
        "`run`: the command's own" => {
            [1, 2, 3, 77, 126, 255].map(|n| x(&["run", "--no-daemon", "--", "sh", "-c", &format!("exit {n}")])).to_vec()
        }
        other => panic!("no command for the row '{other}'"),
    }
}

/// Ends the demo by a signal once it measures. Returns the exit code.
fn demo_ended_by(place: &Place, by: Signal) -> i32 {
    let mut demo = Process::start(place.xsched(&["demo", "--device", "sim", "--secs", "600", "--rounds", "1"]));
    until("it measures", || {
        assert!(demo.has_ended().is_none(), "{}", demo.errors());
        children(demo.pid()).into_iter().any(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.split(|b| *b == 0).any(|w| w == b"lc"))
        })
    });
    signal(demo.pid(), by);
    demo.wait().0
}

#[test]
fn every_row_of_the_table_is_what_the_commands_do() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md")).unwrap();
    let (_, table) = page.split_once("## Exit codes\n").expect("the section");
    let rows = table.lines().skip_while(|line| !line.starts_with("| --- ")).skip(1);
    let rows = rows.take_while(|line| line.starts_with("| ")).map(|line| line.trim_matches('|').trim());
    let mut count = 0;
    for row in rows {
        let (name, meaning) = row.split_once(" | ").expect("two cells");
        let place = Place::new();
        let expected: &[i32] = match (name, meaning) {
            ("128 + n", meaning) if meaning.starts_with("`top`") => &[1, 2, 3, 15],
            ("128 + n", _) => &[9, 15],
            ("any other", _) => &[1, 2, 3, 77, 126, 255],
            (number, _) => &[number.parse().expect("a number")],
        };
        let found = codes(&place, meaning);
        let is_one = expected.len() == 1 && found.iter().all(|code| *code == expected[0]);
        assert!(is_one || found == expected, "{row}: {found:?}");
        count += 1;
    }
    assert_eq!(count, 12);
}
