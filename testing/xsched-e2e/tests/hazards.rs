//! Habits of programs that a library inside them must survive: one small program each, beside a rival and a scheduler that suspends and
//! resumes both at random.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use xsched_e2e::{Lateness, Place, Process, beside, is_asleep, now_ns, signal, skipped, until};

/// Starts a daemon that suspends at random, and a program that shares the device.
fn unrest(place: &Place) -> (Process, Process) {
    let steady = place.sim_program("steady");
    let daemon = place.daemon(&["--policy", "chaos"]);
    let mut rival = place.run(&[], &steady, &["100", "4"]);
    rival.expect("ready");
    (daemon, rival)
}

fn end(place: &Place, mut program: Process) {
    program.tell("end");
    let lines = program.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"));
    place.assert_counts(&lines);
}

/// Runs a program that ends well by itself, alone and beside a rival.
fn runs(name: &str, args: &[&str]) {
    let place = Place::new();
    let program = place.sim_program(name);
    {
        let _daemon = place.daemon(&[]);
        let lines = place.run(&[], &program, args).finish();
        assert_eq!(lines.last().map(String::as_str), Some("ok"), "{lines:?}");
        place.assert_counts(&lines);
    }
    let (_daemon, rival) = unrest(&place);
    let lines = place.run(&[], &program, args).finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"), "{lines:?}");
    place.assert_counts(&lines);
    end(&place, rival);
}

/// Starts a program that goes on until the test ends it, and holds it.
fn held(place: &Place, mut program: Process) -> Process {
    program.expect("ready");
    place.ask(&["suspend", "--pid", &program.pid().to_string()]);
    place.await_state(program.pid(), "suspended");
    program.until_quiet();
    program
}

/// Asserts that less time has passed than a machine as busy as this one allows.
#[track_caller]
fn assert_soon(begin: Instant, control: &Lateness, within: Duration) {
    let (took, allowed) = (begin.elapsed(), control.allows(within));
    assert!(took < allowed, "{took:?}, allowed {allowed:?}");
}

#[test]
fn parents_and_children_by_fork_and_exec() {
    runs("processes", &[]);
}

/// Lines of a program but those with process ids.
fn without_counts(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| !line.starts_with("launched ")).collect()
}

#[test]
fn children_by_clone_without_the_handlers_of_fork_get_what_they_get_without_the_library() {
    let place = Place::new();
    let program = place.sim_program("raw_children");
    let all = ["clone", "_Fork"]
        .into_iter()
        .flat_map(|way| ["use", "use_exit", "exit", "exec", "fork"].map(|does| [way, does]));
    for args in all {
        let (code, bare, errors) = Process::start(place.command(&program, &args)).wait();
        assert_eq!(code, 0, "{args:?}: {bare:?} {errors}");
        if bare == ["no _Fork"] {
            continue;
        }
        let uses = args[1].starts_with("use");
        let check = |(code, lines, errors): (i32, Vec<String>, String)| {
            assert_eq!((code, without_counts(&lines)), (0, without_counts(&bare)), "{args:?}: {errors}");
            let told =
                "xsched: runs unscheduled: it was made by clone or _Fork without the C library's fork handlers\n";
            assert_eq!(errors, if uses { told } else { "" }, "{args:?}");
            if !uses {
                place.assert_counts(&lines);
            }
        };
        {
            let _daemon = place.daemon(&[]);
            check(place.run(&[], &program, &args).wait());
        }
        let (_daemon, rival) = unrest(&place);
        check(place.run(&[], &program, &args).wait());
        end(&place, rival);
    }
}

#[test]
fn a_child_by_clone_that_must_not_run_unscheduled_ends_at_its_first_use() {
    let place = Place::new();
    let program = place.sim_program("raw_children");
    let _daemon = place.daemon(&[]);
    let (code, lines, errors) = place.run(&["--require"], &program, &["clone", "use"]).wait();
    assert_eq!((code, lines), (0, vec!["ended with 3".into(), "ok".to_string()]), "{errors}");
    assert!(errors.contains("--require was given"), "{errors}");
}

#[test]
fn threads_by_the_hundred() {
    runs("threads", &[]);
}

#[test]
fn use_of_the_device_in_a_destructor_of_thread_local_storage() {
    runs("destructor", &[]);
}

#[test]
fn a_library_is_opened_uses_the_device_and_is_closed() {
    let place = Place::new();
    let libraries = beside("libsimdev.so");
    let folder = libraries.parent().unwrap().to_str().unwrap();
    let flags = ["-shared", "-fPIC", "-L", folder, "-lsimdev", "-lm"];
    let plugin = place.compile("programs/hazards/plugin.c", &flags);
    let program = place.compile("programs/hazards/loads_plugin.c", &["-ldl"]);
    let (_daemon, rival) = unrest(&place);
    let lines = place.run(&[], &program, &[plugin.to_str().unwrap()]).finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"));
    place.assert_counts(&lines);
    end(&place, rival);
}

#[test]
fn the_end_inside_a_callback_of_the_device() {
    let place = Place::new();
    let program = place.sim_program("exit_in_callback");
    let (_daemon, rival) = unrest(&place);
    for _ in 0..3 {
        let (code, lines, errors) = place.run(&[], &program, &[]).wait();
        assert_eq!((code, errors.as_str()), (7, ""));
        assert_eq!(lines.len(), 1);
    }
    end(&place, rival);
    until("nothing of them is shown", || place.ps().unwrap()["programs"].as_array().unwrap().is_empty());
}

#[test]
fn the_end_of_main_while_a_thread_is_held() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("exit_at_gate");
    let mut program = held(&place, place.run(&[], &program, &[]));
    let (begin, control) = (Instant::now(), Lateness::begin());
    program.tell("end");
    let (code, _, errors) = program.wait();
    assert_eq!((code, errors.as_str()), (5, ""));
    assert_soon(begin, &control, Duration::from_secs(1));
}

#[test]
fn signals_end_a_held_program_at_once() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let steady = place.sim_program("steady");
    for (which, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let program = held(&place, place.run(&[], &steady, &[]));
        let (begin, control) = (Instant::now(), Lateness::begin());
        signal(program.pid(), which);
        assert_eq!(program.wait().0, -number);
        println!("signal {number} ended a held program within {:?}", begin.elapsed());
        assert_soon(begin, &control, Duration::from_millis(500));
    }
    until("nothing is shown", || place.ps().unwrap()["programs"].as_array().unwrap().is_empty());
}

#[test]
fn a_signal_handler_lets_one_command_of_a_held_program_pass() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let steady = place.sim_program("steady");
    let mut program = held(&place, place.run(&["--level", "1"], &steady, &["200", "1"]));
    for _ in 0..5 {
        let when = now_ns();
        signal(program.pid(), Signal::USR1);
        program.progress_after(when);
        assert_eq!(program.line_within(Duration::from_millis(100)), None, "one and no more");
    }
    let group = place.group(program.pid()).unwrap();
    assert_eq!(group["signal_overrides"], 5, "{group}");
    place.ask(&["resume", "--pid", &program.pid().to_string()]);
    program.progress_after(now_ns());
    program.tell("end");
    let lines = program.finish();
    assert!(lines.contains(&"handled 5".to_owned()), "handlers ran: {lines:?}");
    place.assert_counts(&lines);
}

/// Number of ticks that a `ticks` program has seen, and number of its launches that signals have let through.
fn ticks(place: &Place, program: &mut Process) -> (u64, u64) {
    program.tell("ticks");
    let ticks = program.find("a count of ticks", |line| line.strip_prefix("ticks ")?.parse().ok());
    (ticks, place.group(program.pid()).unwrap()["signal_overrides"].as_u64().unwrap())
}

#[test]
fn the_ticks_of_a_timer_open_no_gate() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("ticks");
    let start = |ms| held(&place, place.run(&["--level", "1"], &program, &[ms]));
    let (mut control, mut ticking) = (start("0"), start("2"));
    let launches = |program: &Process| place.launches(program.pid());
    let before = [&control, &ticking].map(launches);
    let (first, passed_first) = ticks(&place, &mut ticking);
    let (mut seen, mut passed, began) = (0, 0, Instant::now());
    until("a thousand ticks while it is held", || {
        let (now, passed_now) = ticks(&place, &mut ticking);
        (seen, passed) = (now - first, passed_now - passed_first);
        seen >= 1000
    });
    let most = began.elapsed().as_secs() + 8;
    println!("of {seen} ticks {passed} let a launch through");
    assert!(passed <= most && passed * 10 <= seen, "{passed} of {seen}");
    assert_eq!(ticks(&place, &mut control), (0, 0));
    let after = [&control, &ticking].map(launches);
    assert_eq!(after[0], before[0], "nothing of the control passes");
    assert!(after[1] - before[1] <= most + 8, "{before:?} {after:?}");
    // A flag that a handler sets is noticed all the same.
    for program in [&mut control, &mut ticking] {
        signal(program.pid(), Signal::TERM);
        program.expect("stopped");
    }
}

#[test]
fn ticks_and_ctrl_c_reach_the_handlers_of_a_held_python() {
    let place = Place::new();
    place.device();
    let _daemon = place.daemon(&[]);
    let mut program = held(&place, python(&place, &["0.002"]));
    let (pid, began) = (program.pid(), Instant::now());
    let passed = || place.group(pid).unwrap()["signal_overrides"].as_u64().unwrap();
    let before = passed();
    for _ in 0..3 {
        program.expect("ticked");
    }
    let (passed, most) = (passed() - before, began.elapsed().as_millis() as u64 / 50 + 2);
    println!("{passed} launches passed for 15 runs of the handler, within {:?}", began.elapsed());
    assert!(passed <= most, "{passed} of {most}");
    signal(pid, Signal::INT);
    program.find("the interrupt", |line| (line == "interrupted").then_some(()));
    program.finish();
}

/// Processors that a thread may use, and its policy (0 = the ordinary one, 1 = SCHED_FIFO), from the kernel.
fn processors_and_policy(pid: u32, thread: &str) -> (String, String) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let is_it =
        |task: &std::path::PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == thread);
    let task = tasks.into_iter().find(is_it).expect("a thread of this name");
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let stat = std::fs::read_to_string(task.join("stat")).unwrap();
    let policy = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap();
    (allowed.trim().to_owned(), policy.to_owned())
}

#[test]
fn the_agent_of_a_thread_that_spins_on_its_processor_gets_to_run() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("spins");
    let mut program = place.run(&[], &program, &[]);
    if program.line() == "not allowed" {
        return skipped("no right to SCHED_FIFO");
    }
    let pid = program.pid();
    // Its only processor is never free again, and only the agent can find the group idle.
    until("the group is idle", || place.group(pid).is_some_and(|group| group["state"] == "idle"));
    let whole = std::fs::read_to_string("/proc/self/status").unwrap();
    let whole = whole.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    let (pinned, policy) = processors_and_policy(pid, "spins");
    assert_eq!((pinned.parse::<u32>().is_ok(), policy.as_str()), (true, "1"), "the control is on one processor");
    assert_eq!(processors_and_policy(pid, "xsched-agent"), (whole, "0".to_owned()));
    program.tell("end");
    assert_eq!(program.finish(), ["ok"]);
}

/// Runtime library of a sanitizer, if the compiler has one.
fn sanitizer(name: &str) -> Option<std::path::PathBuf> {
    let asked = std::process::Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = std::path::PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    path.is_absolute().then(|| path.canonicalize().ok()).flatten()
}

#[test]
fn programs_built_with_a_sanitizer_run_as_without_the_library_and_are_scheduled() {
    let place = Place::new();
    place.device();
    let _daemon = place.daemon(&[]);
    for (name, library) in [("address", "libasan.so"), ("thread", "libtsan.so"), ("undefined", "libubsan.so")] {
        if sanitizer(library).is_none() {
            skipped(&format!("no {library}"));
            continue;
        }
        let flag = format!("-fsanitize={name}");
        let program = place.compile("programs/hazards/launches.c", &[&flag, "-lsimdev", "-lpthread", "-lm"]);
        let mut preloaded = place.command(&program, &[]);
        preloaded.env("LD_PRELOAD", beside("libxsched.so"));
        let child = place.run_command(&[], "sh".as_ref(), &["-c", "exec \"$0\"", program.to_str().unwrap()]);
        let ways = [
            ("bare", place.command(&program, &[]), 0),
            ("preloaded", preloaded, 1),
            ("run", place.run_command(&[], &program, &[]), 1),
            ("a child of run", child, 1),
        ];
        for (way, command, scheduled) in ways {
            let before = place.stats().len();
            let (code, lines, errors) = Process::start(command).wait();
            assert_eq!((code, lines, errors.as_str()), (0, vec!["secure 0".into(), "ok".into()], ""), "{name}, {way}");
            assert_eq!(place.stats().len() - before, scheduled, "{name}, {way}");
        }
    }
}

#[test]
fn a_preloaded_sanitizer_stays_the_first_library() {
    let Some(runtime) = sanitizer("libasan.so") else { return skipped("no libasan.so") };
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("launches");
    for mut command in [place.command(&program, &[]), place.run_command(&[], &program, &[])] {
        command.env("LD_PRELOAD", &runtime).env("ASAN_OPTIONS", "detect_leaks=0");
        let (code, lines, errors) = Process::start(command).wait();
        assert_eq!((code, lines, errors.as_str()), (0, vec!["secure 0".into(), "ok".into()], ""));
    }
    assert_eq!(place.stats().len(), 1);
}

#[test]
fn a_signal_handler_leaves_a_held_command_by_longjmp() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("longjmp");
    let mut program = held(&place, place.run(&[], &program, &[]));
    let pid = program.pid();
    for _ in 0..5 {
        signal(pid, Signal::USR1);
        program.expect("jumped");
        // The only place where the thread sleeps is the gate.
        until("it is back at the gate", || is_asleep(pid, pid));
    }
    place.ask(&["resume", "--pid", &pid.to_string()]);
    program.tell("go on");
    program.expect_counts_line();
    program.expect("quiet");
    until("it is idle, the commands left behind notwithstanding", || place.group(pid).unwrap()["state"] == "idle");
    program.tell("end");
    assert_eq!(program.finish(), ["ok"]);
}

#[test]
fn a_thread_is_cancelled_while_it_is_held() {
    // The cancellation is deferred: an asynchronous one inside of a device's library is undefined with and without us.
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let program = place.sim_program("cancel");
    let mut program = held(&place, place.run(&[], &program, &[]));
    program.tell("cancel");
    program.expect("cancelled");
    let pid = program.pid();
    place.ask(&["resume", "--pid", &pid.to_string()]);
    program.expect("joined");
    program.tell("go on");
    let lines = program.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"));
    place.assert_counts(&lines);
}

/// Python program that is to be interrupted.
fn python(place: &Place, args: &[&str]) -> Process {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/programs/hazards/interrupt.py");
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|p| {
        std::process::Command::new(p).arg("-c").arg("import ctypes").output().is_ok_and(|o| o.status.success())
    });
    let python = python.expect("a Python with ctypes");
    let mut command = place.xsched(&["run", "--level", "1", "--", python, script]);
    command.arg(beside("libsimdev.so")).args(args);
    Process::start(command)
}

#[test]
fn ctrl_c_reaches_a_held_python() {
    let place = Place::new();
    place.device();
    let _daemon = place.daemon(&[]);
    let mut program = held(&place, python(&place, &[]));
    let (begin, control) = (Instant::now(), Lateness::begin());
    signal(program.pid(), Signal::INT);
    program.expect("interrupted");
    println!("KeyboardInterrupt after {:?}", begin.elapsed());
    assert_soon(begin, &control, Duration::from_secs(1));
    program.finish();
}
