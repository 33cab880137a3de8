//! Bad input: exit code 2, one line, and no daemon is contacted or started. Environment errors: 3.

mod common;
use common::{Place, said};

#[test]
fn every_mistake_has_exit_code_2_and_one_line_that_says_what_is_accepted() {
    let place = Place::new();
    let cases: &[(&[&str], &str)] = &[
        (&["frobnicate"], "there is no command 'frobnicate': use run, ps, usage, top, trace, policy"),
        (&["run"], "<COMMAND>... is missing"),
        (&["run", "--"], "<COMMAND>... is missing"),
        (&["run", "--priority", "999", "--", "true"], "'999' is no priority: use low (or batch), normal, high"),
        (&["run", "--priority", "urgent", "true"], "a number from -255 to 255"),
        (&["run", "--priority", "--weight", "3", "true"], "'--weight' is no priority"),
        (&["run", "--priority"], "a value is required for '--priority"),
        (&["run", "--weight", "0", "true"], "'0' is no weight: use a number from 1 to 10000"),
        (&["run", "--weight", "-1", "true"], "'-1' is no weight"),
        (
            &["run", "--timeslice", "99us", "true"],
            "'99us' is no timeslice: use a time from 100 µs to 10 s, such as 5ms (a bare number is µs)",
        ),
        (&["run", "--deadline", "2h", "true"], "'2h' is no deadline: use a time from 1 µs to 1 h, such as 10ms"),
        (&["run", "--laxity", "5 parsecs", "true"], "'5 parsecs' is no laxity: use TIME or TIME:PRIORITY"),
        (&["usage", "--since", "12"], "'12' is no time: use a time from 1 s to 3650 d, such as 12h"),
        (&["trace", "--last", "2d"], "'2d' is no time: use a time from 1 ms to 1 d, such as 10s"),
        (&["top", "--interval", "1ms"], "'1ms' is no interval: use a time from 200 ms to 1 h, such as 2s"),
        (&["run", "--level", "4", "true"], "'4' is no preemption level: use auto, 1, 2 or 3"),
        (&["run", "--threshold", "many", "true"], "'many' is no threshold"),
        (
            &["run", "--memory-limit", "20", "true"],
            "'20' is no amount of memory: use an amount of memory such as 20GiB, 512MiB or 25%",
        ),
        (&["run", "--memory-reserve", "120%", "true"], "'120%' is no amount of memory"),
        (
            &["run", "--memory", "swap", "--memory-idle", "10ms", "true"],
            "'10ms' is no time: use a time from 1 s to 30 d, such as 5m (a bare number is s)",
        ),
        (&["run", "--job", "", "true"], "a job's name has 1 to 128 printable characters"),
        (
            &["run", "--job", "a\u{202e}b", "true"],
            "a job has only characters that are seen: the 2. of this one is U+202E",
        ),
        (&["run", "--local", "fifo", "true"], "'fifo' is no policy: use one of hpf"),
        (&["run", "--local", "hpf", "--no-daemon", "true"], "cannot be used with"),
        (&["run", "--local", "hpf", "--socket", "/s", "true"], "cannot be used with"),
        (&["run", "--no-daemon", "--require", "true"], "cannot be used with"),
        (&["run", "--socket", "", "true"], "is no path for a socket"),
        (&["run", "--share", "space", "true"], "possible values: time, pool, spatial, auto"),
        (&["run", "--prioritty", "high", "true"], "unexpected argument '--prioritty' found; a similar argument exists"),
        (&["daemon", "--policy", "fifo"], "'fifo' is no policy"),
        (&["daemon", "--idle-exit", "soon"], "'soon' is no idle time: use a time from 1 s to 365 d"),
        (&["daemon", "--config", "/does/not/exist.toml"], "/does/not/exist.toml is no file"),
        (&["daemon", "--seed", "x"], "--seed: 'x' is no seed: use a number from 0 to "),
        (&["policy", "set", "fifo"], "'fifo' is no policy"),
        (&["policy", "set", "kedf", "k=0"], "'0' is no k: use a number from 1 to 64"),
        (&["policy", "set", "hpf", "k=1"], "'k' is no parameter of hpf"),
        (&["policy", "set"], "<NAME> is missing"),
        (&["policy", "put"], "use list, get, set"),
        (&["hint", "--priority", "high"], "one of PID, --pid <PID>, --tree <PID>, "),
        (&["hint", "--pid", "1"], "one of --priority"),
        (&["hint", "--pid", "0", "--weight", "2"], "'0' is no process id"),
        (&["hint", "--queue", "1", "--weight", "2"], "'1' is no queue"),
        (&["hint", "--pid", "1", "--level", "auto"], "1, 2 or 3, not auto"),
        (&["suspend", "-5"], "unexpected argument '-5' found; see --help"),
        (&["suspend"], "one of PID, --pid <PID>, --tree <PID>"),
        (&["resume", "--pid", "x"], "'x' is no process id"),
        (&["freeze"], "one of PID, --pid <PID>, --tree <PID>"),
        (&["demo", "--device", "abacus"], "possible values: auto, cuda, opencl, sim"),
        (&["demo", "--secs", "0"], "'0' is no time: use a time from 1 s to 1 d, such as 30s (a bare number is s)"),
        (&["demo", "--secs", "1", "--rounds", "50"], "give at least 10"),
        (&["demo", "--json", "/does/not/exist/f.json"], "cannot write /does/not/exist/f.json"),
        (&["check", "--device", "abacus"], "possible values: auto, cuda, hip, opencl, sim"),
        (&["check", "--python", "/does/not/exist"], "'/does/not/exist' is no file"),
        (&["compare", "--high", "true"], "--low <COMMAND> is missing"),
        (&["compare", "--high", " ", "--low", "true"], "--high: there is no command"),
        (&["compare", "--from", "/does/not/exist/f"], "one of --svg <FILE>, --html <FILE> is needed"),
        (&["compare", "--from", "/does/not/exist/f", "--svg", "f"], "cannot read /does/not/exist/f"),
        (&["compare", "--from", "f", "--high", "true", "--svg", "f"], "--high"),
        (&["compare", "--high", "true", "--low", "true", "--requests", "ms"], "--requests: 'ms' takes no latency"),
        (&["compare", "--high", "true", "--low", "true", "--work", "("], "--work: '(' is no expression"),
        (
            &["compare", "--high", "true", "--low", "true", "--gap", "0"],
            "'0' is no pause: use a time from 100 µs to 1 m",
        ),
        (&["compare", "--high", "true", "--low", "true", "--warm-up", "x"], "'x' is no warm-up"),
        (
            &["compare", "--high", "true", "--low", "true", "--svg", "/does/not/exist/f"],
            "cannot write /does/not/exist/f",
        ),
        (&["completions", "csh"], "possible values: bash"),
    ];
    for (args, expected) in cases {
        eprintln!("{args:?}");
        said(place.xsched(args)).one_line(2, expected);
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing was started or left");
}

/// The library ignores values that it does not understand; the command refuses them before it starts the program.
#[test]
fn variables_that_the_library_would_leave_out_are_refused_unless_an_option_stands_for_them() {
    let place = Place::new();
    place.stand_in("library.so");
    let run = |options: &[&str], name: &str, value: &str| {
        let mut command = place.xsched(&["run"]);
        command.args(options).args(["--", "sh", "-c", "exit 4"]).env("XSCHED_PRELOAD", place.join("library.so"));
        command.env(name, value);
        said(command)
    };
    for (name, wrong, option, accepted) in [
        ("XSCHED_POLICY", "fifo", &["--local", "up"][..], "one of hpf, "),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "-257", &["--priority", "-255"], "-256 = never runs"),
        ("XSCHED_AUTO_XQUEUE_LEVEL", "0", &["--level", "auto"], "a number from 1 to 3, or auto"),
        ("XSCHED_FORCE_LEVEL", "0", &["--level", "auto"], "a number from 1 to 3, or auto"),
        ("XSCHED_AUTO_XQUEUE_THRESHOLD", "-1", &["--threshold", "0"], "a number from 1 to 1048576, or 0"),
        ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "x", &["--batch", "8"], "a number from 1 to 1048576, or 0"),
        ("XSCHED_AUTO_XQUEUE_LAXITY", "x", &["--laxity", "none"], "2ms:low:high"),
        ("XSCHED_SCHEDULER", "all", &["--local", "hpf"], "GLB, LCL or APP"),
    ] {
        let refused = run(&[], name, wrong);
        refused.one_line(2, name);
        refused.one_line(2, accepted);
        let local: &[&str] = if option[0] == "--local" { &[] } else { &["--local", "hpf"] };
        run(&[option, local].concat(), name, wrong).quiet(4);
    }
    assert!(place.daemon_pid().is_none(), "no daemon was started");
}

#[test]
fn a_program_that_is_never_to_run_is_not_started_without_a_word() {
    let place = Place::new();
    place.stand_in("library.so");
    for (options, until) in [(&["--local", "hpf"][..], "for ever, since --local"), (&[], "until `xsched hint ")] {
        let mut command = place.xsched(&["run", "-p", "-256"]);
        command.args(options).args(["--", "sh", "-c", "exit 4"]).env("XSCHED_PRELOAD", place.join("library.so"));
        said(command).one_line(4, &format!("priority -256: it waits at its first launch {until}"));
    }
}

#[test]
fn without_a_daemon_whoever_needs_one_says_what_to_do() {
    let place = Place::new();
    for args in [
        &["ps"][..],
        &["ps", "--json"],
        &["policy", "get"],
        &["policy", "set", "hpf"],
        &["hint", "--pid", "1", "--weight", "2"],
        &["suspend", "--pid", "1"],
        &["resume", "--pid", "1"],
        &["thaw", "--pid", "1"],
    ] {
        eprintln!("{args:?}");
        said(place.xsched(args)).one_line(3, "`xsched run` starts one");
    }
}

#[test]
fn help_version_completions_and_the_manual_are_there() {
    let place = Place::new();
    let version = said(place.xsched(&["--version"]));
    version.quiet(0);
    assert_eq!(version.out, format!("xsched {}\n", env!("CARGO_PKG_VERSION")));
    let help = said(place.xsched(&["run", "--help"]));
    help.quiet(0);
    for line in ["realtime         192           192..254", "XSCHED_DISABLE=1", "xsched run --priority high"] {
        assert!(help.out.contains(line), "{line}: {}", help.out);
    }
    assert_eq!(said(place.xsched(&["help", "run"])).out, help.out);
    assert_eq!(said(place.xsched(&["help"])).out, said(place.xsched(&["--help"])).out);
    let set = said(place.xsched(&["help", "policy", "set"]));
    assert_eq!(set.out, said(place.xsched(&["policy", "set", "--help"])).out);
    said(place.xsched(&["help", "rnu"])).one_line(2, "'rnu' is no command: use run, ps, ");
    said(place.xsched(&["help", "policy", "put"])).one_line(2, "'put' is no command: use list, get, set");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = said(place.xsched(&["completions", shell]));
        script.quiet(0);
        assert!(script.out.contains("XSCHED_COMPLETE"), "{shell}");
    }
    let man = said(place.xsched(&["man"]));
    man.quiet(0);
    assert!(
        man.out.contains(".TH XSCHED 1") && man.out.contains("xsched\\-daemon") && !man.out.contains("demo\\-worker")
    );
    assert!(said(place.xsched(&["man", "daemon"])).out.contains("\\-\\-idle\\-exit"));
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let place = Place::new();
    let mut shell = place.command("/bin/sh".as_ref(), &["-c", "\"$1\" man | head -n 1 >/dev/null", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_xsched"));
    said(shell).quiet(0);
}

#[test]
fn the_list_of_policies_needs_no_daemon() {
    let place = Place::new();
    let list = said(place.xsched(&["policy", "list", "--json"]));
    list.quiet(0);
    let v: serde_json::Value = serde_json::from_str(&list.out).unwrap();
    assert_eq!((&v["version"], &v["current"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(v["policies"][0]["name"], "hpf");
    assert!(v["policies"].as_array().unwrap().iter().all(|p| p["name"] != "chaos"));
}
