//! Class of a program: default, operator's rule, its own wish, a hint, each overriding the one named before it, and none above the
//! operator's ceiling. And the guarantees of the configuration for a class.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use xsched_e2e::{Place, Process, now_ns, one_of, until};

fn with_config(place: &Place, text: &str) -> Process {
    let path: PathBuf = place.join("config.toml");
    std::fs::write(&path, text).unwrap();
    place.daemon(&["--config", path.to_str().unwrap()])
}

/// Class of a program, its origin, and whether it was cut.
fn shown(place: &Place, program: &Process) -> (Value, Value, Value) {
    let entry = place.program(program.pid()).expect("attached");
    (entry["class"].clone(), entry["class_from"].clone(), entry["limited"].clone())
}

fn class(name: &str, from: &str, limited: bool) -> (Value, Value, Value) {
    (json!(name), json!(from), json!(limited))
}

#[test]
fn each_step_of_the_precedence_counts_before_the_last() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let start = |options: &[&str]| {
        let mut program = place.run(options, &steady, &["100", "1"]);
        program.expect("ready");
        program
    };
    {
        let _daemon = place.daemon(&[]);
        let program = start(&[]);
        assert_eq!(shown(&place, &program), class("normal", "default", false));
    }
    let _daemon = with_config(
        &place,
        "[[rule]]\nexe = \"*/steady\"\npriority = \"low\"\nceiling = \"high\"\n[[rule]]\npriority = \"realtime\"\n",
    );
    let program = start(&[]);
    assert_eq!(shown(&place, &program), class("low", "rule", false), "the first rule that matches");
    let program = start(&["--priority", "high"]);
    assert_eq!(shown(&place, &program), class("high", "option", false));
    place.ask(&["hint", "--pid", &program.pid().to_string(), "--priority", "normal"]);
    assert_eq!(shown(&place, &program), class("normal", "hint", false));
    let program = start(&["--priority", "system"]);
    assert_eq!(shown(&place, &program), class("high", "option", true), "no more than the ceiling");
    let text = place.ask(&["ps", "--wide"]);
    assert!(text.lines().any(|line| line.contains("high") && line.contains("option+")), "{text}");
}

#[test]
fn rules_ask_for_the_user_and_the_cgroup_too() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let cgroup = cgroup.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("").to_owned();
    let uid = rustix::process::geteuid().as_raw();
    for (rule, chosen) in [
        (format!("user = {uid}\ncgroup = \"{cgroup}\""), "high"),
        (format!("user = {}", uid + 1), "normal"),
        ("cgroup = \"/nowhere/*\"".to_owned(), "normal"),
        ("container = \"no-such-container\"".to_owned(), "normal"),
    ] {
        let _daemon = with_config(&place, &format!("[[rule]]\n{rule}\npriority = \"high\"\n"));
        let mut program = place.run(&[], &steady, &["100", "1"]);
        program.expect("ready");
        assert_eq!(shown(&place, &program).0, chosen, "{rule}");
    }
}

#[test]
fn rules_mean_the_name_by_which_a_program_was_run_too() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let (link, script) = (place.join("serve"), place.join("train.sh"));
    std::os::unix::fs::symlink(&steady, &link).unwrap();
    std::fs::write(&script, format!("exec {} 100 1\n", steady.display())).unwrap();
    let _daemon = with_config(
        &place,
        "[[rule]]\nexe = \"serve\"\npriority = \"high\"\n[[rule]]\nexe = \"train.sh\"\npriority = \"low\"\n\
         [[rule]]\nexe = \"stead*\"\npriority = 7\n",
    );
    for (program, args, expected) in [
        (&link, &["100", "1"][..], 128),
        (&std::path::PathBuf::from("sh"), &[script.to_str().unwrap()], -128),
        (&steady, &["100", "1"], 7),
    ] {
        let mut program = place.run(&[], program, args);
        program.expect("ready");
        let entry = place.program(program.pid()).expect("attached");
        assert_eq!((&entry["priority"], &entry["class_from"]), (&json!(expected), &json!("rule")), "{args:?}: {entry}");
    }
}

#[test]
fn a_class_has_the_part_of_the_device_that_it_was_promised() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let of = |program: &Process, what: &str| place.group(program.pid()).map_or(0, |g| g[what].as_u64().unwrap());
    let share = |config: &str| {
        let _daemon = with_config(&place, config);
        let start = |class: &str| {
            // Large batches: a program whose thread gets no processor for a while is not to leave the device to the other for that.
            let mut program = place.run(&["--priority", class], &steady, &["200", "128"]);
            program.expect("ready");
            program
        };
        let (low, high) = (start("low"), start("high"));
        until("both run", || of(&high, "launches") > 100);
        // Device time is promised. The work that a program does in it depends on how soon its threads wake up.
        let used = || {
            let groups = place.groups_at_once([low.pid(), high.pid()]);
            groups.map(|group| group["device_us"].as_f64().expect("device time"))
        };
        let before = used();
        std::thread::sleep(Duration::from_secs(3)); // what is measured
        let after = used();
        let [low, high] = [0, 1].map(|n| after[n] - before[n]);
        100.0 * low / (low + high)
    };
    let promise = "[classes.low]\nguarantee_percent = 20\nquantum_us = 5000\n";
    for (config, within) in [("", 0.0..2.0), (promise, 18.0..22.0)] {
        one_of(5, "part of the device time of low beside high", || {
            let percent = share(config);
            let what = format!("{percent:.1} %, {within:?} wanted with {config:?}");
            println!("{what}");
            if within.contains(&percent) { Ok(()) } else { Err(what) }
        });
    }
}

/// Commands launched while a program is alone are not followed, and while the program waits for them it launches nothing. It must not count
/// as idle then for ever, since the rival never is: interrupted commands do not end.
#[test]
fn who_waits_for_what_was_given_alone_has_its_part_too() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let _daemon = with_config(&place, "[classes.low]\nguarantee_percent = 40\nquantum_us = 5000\n");
    // Two batches of 0.24 s of work, so that its thread nearly always waits for half of that.
    let mut low = place.run(&["--priority", "low"], &steady, &["500", "480"]);
    low.expect("ready");
    low.progress_after(0);
    let mut high = place.run(&["--priority", "high"], &steady, &["200", "128"]);
    high.expect("ready");
    for _ in 0..2 {
        high.progress_after(now_ns());
        low.progress_after(now_ns());
    }
    let states = [&low, &high].map(|program| place.group(program.pid()).expect("a group"));
    assert!(states.iter().all(|group| group["suspensions"].as_u64() > Some(10)), "{states:?}");
    for mut program in [low, high] {
        program.tell("end");
        assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
    }
}

#[test]
fn mistakes_in_class_tables_are_told_with_their_line() {
    let place = Place::new();
    let path = place.join("config.toml");
    for (text, says) in [
        ("[classes.low]\nquantum_us = 5\n", "2: '5' is out of range: use a number from 100 to 10000000"),
        ("[classes.urgent]\n", "'urgent' is no class"),
        ("[classes.low]\nguarantee_percent = 60\n[classes.high]\nguarantee_percent = 60\n", "make 120 %"),
        ("[classes.low]\npreemptible = 1\n", "2: invalid type"),
    ] {
        std::fs::write(&path, text).unwrap();
        let out = place.xsched(&["daemon", "--config", path.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{text}: {said}");
        assert!(said.contains(says), "{text}: {said}");
    }
}

/// Servers write a title over their command line (`setproctitle`) before they touch a device.
#[test]
fn a_rule_for_a_command_means_the_one_of_the_start() {
    let place = Place::new();
    let titled = place.sim_program("titled");
    let _daemon = with_config(
        &place,
        "[[rule]]\ncommand = \"a title\"\npriority = \"low\"\n[[rule]]\ncommand = \"*titled serve --model m*\"\npriority = \"high\"\n",
    );
    let shell = format!("{} serve --model m-of-a-shell; true", titled.display());
    // Two cases: the program that `run` becomes, and one that another program starts.
    for (program, args) in [(titled.clone(), &["serve", "--model", "m"][..]), ("sh".into(), &["-c", &shell])] {
        let mut program = place.run(&[], &program, args);
        program.expect("ready");
        let ps = place.ps().unwrap();
        let entry = &ps["programs"][0];
        assert_eq!((&entry["class"], &entry["class_from"]), (&json!("high"), &json!("rule")), "{args:?}: {entry}");
        assert_eq!((&entry["title"], &entry["command"][1]), (&json!("a title"), &json!("serve")), "{entry}");
        let text = place.ask(&["ps", "--wide"]);
        assert!(text.contains("titled serve --model m") && text.contains("[a title]"), "{text}");
        program.tell("end");
        assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
    }
}

#[test]
fn a_program_over_a_limit_is_told_once_everywhere_and_is_scheduled_once_there_is_room() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let uid = rustix::process::geteuid().as_raw();
    let daemon = with_config(&place, &format!("[limits.users.{uid}]\ndevice_groups = 1\n"));
    let start = || {
        let mut program = place.run(&[], &steady, &["100", "1"]);
        program.expect("ready");
        program
    };
    let first = start();
    until("the first one has its group", || place.group(first.pid()).is_some());
    let mut second = start();
    let pid = second.pid();
    let why = format!("user {uid} has 1 groups on sim:0, as many as a user may have");
    let refused = || place.ps()?["refused"].as_array()?.iter().find(|refused| refused["pid"] == pid).cloned();
    // Without a growing wait the program would have asked ten times a second.
    until("it was refused, and for some time", || {
        refused().is_some_and(|refused| refused["since_s"].as_u64() >= Some(3))
    });
    let refusal = refused().expect("still");
    assert!(refusal["why"].as_str().unwrap().starts_with(&why) && refusal["name"] == "steady", "{refusal}");
    let attempts = daemon.errors().matches(&format!("attached process {pid} ")).count() as u64;
    assert!(attempts <= 2 + refusal["since_s"].as_u64().unwrap() / 2, "{attempts} attempts: {}", daemon.errors());
    assert_eq!(daemon.errors().matches(&format!("refused process {pid} ")).count(), 1, "{}", daemon.errors());
    let said = second.errors();
    let line = format!("xsched: runs unscheduled until the daemon takes it: refused by the daemon: {why}");
    assert_eq!(said.matches(&line).count(), 1, "{said}");
    assert!(!said.contains("is gone"), "{said}");
    let doctor = place.xsched(&["doctor", "--json", &pid.to_string()]).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("\"refused\"") && doctor.contains(&why), "{doctor}");
    let text = place.ask(&["ps"]);
    assert!(text.lines().any(|line| line.contains("refused, runs unscheduled")), "{text}");
    let from = now_ns();
    second.find("a batch without a schedule", |line| line.parse::<u64>().ok().filter(|at| *at > from));
    drop(first);
    until("it is scheduled", || place.group(pid).is_some());
    assert_eq!(refused(), None);
}
