//! Pass-through rules, with a chain of seven shared libraries between the program and the device.

mod chain;

use chain::{Chain, step};
use serde_json::json;
use xsched_e2e::{Place, Process, until};

/// Number of launches of the program that are not kernels: a set at the start, and a copy at the end.
const OTHERS: u64 = 2;

#[test]
fn a_rule_finds_the_library_at_the_end_of_a_chain_of_seven() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    let mut program = chain.run(&[("XSCHED_PASSTHROUGH_LIBS", "hipblaslt"), ("XSCHED_VERBOSE", "1")]);
    step(&mut program, "vendor 30 10");
    step(&mut program, "own 20 10");
    step(&mut program, "runtime 10 10");
    step(&mut program, "mixed 40 10");
    program.tell("end");
    let pid = program.pid();
    let (code, lines, errors) = program.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")), "{errors}");
    let hit = format!("[XSched] Passthrough: {}\n", chain.library("libhipblaslt-1a2b3c4d.so.0").display());
    let said: Vec<&str> = errors.lines().collect();
    let [rules, attached, once] = &said[..] else { panic!("{errors}") };
    assert_eq!((*rules, *once), ("[XSched] Passthrough initialized", hit.trim_end()), "each rule hit once");
    assert!(attached.starts_with("xsched: attached: sim:0, level "), "{errors}");
    assert!(attached.ends_with(", policy hpf, priority 0"), "{errors}");
    let stats = chain.place.stats_of(pid);
    assert_eq!(stats["launches"], 30 + 20 + 10 + 3 * 40 + OTHERS, "{stats}");
    assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 30 + 40, "error": 0}), "{stats}");
}

#[test]
fn a_file_with_comments_names_libraries_and_functions_and_turns_the_rule_round() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    let file = chain.place.join("rules.json");
    let path = file.to_str().unwrap().to_owned();
    let folder = chain.place.join("");
    for (text, more, passing) in [
        ("{ // by name\n \"libraries\": [\"MIOpen\", \"HIPBLAS\",], }", "", 5),
        (&*format!("{{\"libraries\": [\"{}libhipblaslt\"] /* a path */ }}", folder.display()), "", 5),
        ("{\"mode\": \"blacklist\", \"libraries\": [\"hipblas\"]}", "", 7 + 3 + OTHERS),
        ("{\"mode\": \"blacklist\", \"libraries\": [\"hipblas\"], \"apis\": [\"simMem*\"]}", "", 7 + 3),
        ("{\"apis\": [\"simLaunchKernel\"]}", "", 5 + 7 + 3),
        ("{\"apis\": [\"simMemsetAsync\"]}", "", 1),
        ("{\"apis\": [\"simMemsetAsync\"]}", "chain:miopen", 1 + 7 + 3 + 1),
        ("{}", "", 0),
        // The rules of the second founding report.
        (
            "{\"passthrough_mode\": \"whitelist\", // whitelist | blacklist\n \"libraries\": [\"libhipblas\"],
              \"apis\": {\"simMemsetAsync\": \"passthrough\", \"simLaunchKernel\": \"schedule\"}}",
            "",
            1,
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut program = chain.run(&[("XSCHED_PASSTHROUGH_CONFIG", &path), ("XSCHED_PASSTHROUGH_LIBS", more)]);
        step(&mut program, "vendor 5 10");
        step(&mut program, "own 7 10");
        step(&mut program, "runtime 3 10");
        program.tell("end");
        let pid = program.pid();
        assert_eq!(program.finish().last().unwrap(), "ok", "{text}");
        let stats = chain.place.stats_of(pid);
        assert_eq!(stats["unscheduled"]["passthrough"], passing, "{text} {more}: {stats}");
        assert_eq!(stats["launches"], 5 + 7 + 3 + OTHERS, "{text}: {stats}");
    }
    std::fs::write(&file, "{\n\"libraries\": 7}").unwrap();
    let mut program = chain.run(&[("XSCHED_PASSTHROUGH_CONFIG", &path)]);
    step(&mut program, "own 1 10");
    program.tell("end");
    let (code, _, errors) = program.wait();
    let wanted = format!("xsched: pass-through rules ignored: {path}: \"libraries\" has a value of the wrong kind\n");
    assert_eq!((code, errors), (0, wanted));
}

#[test]
fn what_passes_is_not_held_and_what_does_not_is() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    let mut program = chain.run(&[("XSCHED_PASSTHROUGH_LIBS", "hipblaslt")]);
    step(&mut program, "own 3 10");
    step(&mut program, "sync");
    let pid = program.pid();
    chain.place.ask(&["suspend", "--pid", &pid.to_string()]);
    // In one stream, and in order: the program checks this at its end.
    step(&mut program, "vendor 50 10");
    program.tell("own 1 10");
    xsched_e2e::until("it waits", || {
        chain.place.group(pid).is_some_and(|g| g["unscheduled"]["passthrough"] == 50 && g["state"] == "suspended")
    });
    assert_eq!(program.line_within(std::time::Duration::from_millis(200)), None, "held at the gate");
    chain.place.ask(&["resume", "--pid", &pid.to_string()]);
    assert_eq!(program.line(), "own 0");
    program.tell("end");
    assert_eq!(program.finish().last().unwrap(), "ok");
    let stats = chain.place.stats_of(pid);
    assert_eq!((&stats["launches"], &stats["gate_waits"]), (&json!(54 + OTHERS), &json!(1)), "{stats}");
}

#[test]
fn what_passes_on_the_cuda_driver_through_a_runtime_that_looks_its_functions_up_is_counted_apart() {
    let chain = Chain::over_cuda();
    let _daemon = chain.place.daemon(&[]);
    for (environment, passing) in [
        (("XSCHED_PASSTHROUGH_LIBS", "hipblaslt"), 31),
        (("XSCHED_PASSTHROUGH_LIBS", "chain"), 20 + 25 + 3),
        (("XSCHED_DOMAINS", "report"), 0),
    ] {
        let program = chain.run_cuda([20, 25, 31], &[environment]);
        let pid = program.pid();
        assert_eq!(program.finish(), ["ok every launch ran once"]);
        let stats = chain.place.stats_of(pid);
        // The program itself adds two copies to the device and one back.
        assert_eq!(stats["launches"], 20 + 25 + 31 + 3, "{stats}");
        assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": passing, "error": 0}), "{stats}");
        assert_eq!(stats["domains"], json!({"system": 31, "application": 20 + 25 + 3}), "{stats}");
    }
}

/// OpenCL program whose kernels pass and whose copies do not.
fn opencl(place: &Place, options: &[&str], apis: &str) -> Process {
    let rules = place.join("rules.json");
    std::fs::write(&rules, format!("{{\"apis\": [{apis}]}}")).unwrap();
    let mut command = place.run_command(options, &place.opencl_program("passes_cl"), &[]);
    let mut program = Process::start({
        command.env("XSCHED_PASSTHROUGH_CONFIG", &rules);
        command
    });
    program.expect("ready");
    program
}

fn tell(program: &mut Process, what: &str) {
    program.tell(what);
    program.expect(what.split(' ').next().expect("a word"));
}

#[test]
fn what_passes_on_opencl_keeps_its_place_among_what_does_not() {
    let place = Place::new();
    for policy in ["hpf", "chaos"] {
        let _daemon = place.daemon(&["--policy", policy]);
        let mut rival = opencl(&place, &["--priority", "high"], "");
        let mut program = opencl(&place, &["--priority", "low", "--threshold", "2"], "\"clEnqueueNDRangeKernel\"");
        for _ in 0..10 {
            rival.tell("turns 20");
            tell(&mut program, "kernels 5");
            tell(&mut program, "turns 50");
            rival.expect("turns");
        }
        let pid = program.pid();
        for mut one in [program, rival] {
            one.tell("end");
            assert_eq!(one.finish(), ["ok"]);
        }
        let stats = place.stats_of(pid);
        assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 10 * (5 + 50), "error": 0}), "{stats}");
        // A fill and two reads come in addition.
        assert_eq!(stats["launches"], 10 * (5 + 2 * 50) + 3, "{stats}");
    }
}

#[test]
fn what_passes_on_opencl_while_its_program_is_suspended_runs_and_what_follows_waits() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let mut program = opencl(&place, &[], "\"clEnqueueNDRangeKernel\"");
    let pid = program.pid();
    tell(&mut program, "turns 3");
    tell(&mut program, "finish");
    place.ask(&["suspend", "--pid", &pid.to_string()]);
    tell(&mut program, "kernels 7");
    tell(&mut program, "wait");
    program.tell("turns 1");
    place.await_state(pid, "suspended");
    until("it waits", || place.group(pid).is_some_and(|g| g["unscheduled"]["passthrough"] == 3 + 7 + 1));
    assert_eq!(program.line_within(std::time::Duration::from_millis(100)), None, "the copy is held");
    place.ask(&["resume", "--pid", &pid.to_string()]);
    program.expect("turns");
    program.tell("end");
    assert_eq!(program.finish(), ["ok"]);
}

/// The program is neither budgeted nor held, but its wish for the device and its end are known.
#[test]
fn an_opencl_program_of_which_all_passes_is_seen_to_work_and_to_be_idle() {
    let place = Place::new();
    let _daemon = place.daemon(&[]);
    let mut rival = opencl(&place, &["--priority", "low"], "");
    let mut program = opencl(&place, &["--priority", "high"], "\"clEnqueue*\"");
    let pid = program.pid();
    for wait in ["finish", "wait"] {
        tell(&mut program, "turns 200");
        tell(&mut program, wait);
        until("it is idle", || place.group(pid).is_some_and(|g| g["state"] == "idle"));
        tell(&mut rival, "turns 20");
        tell(&mut rival, "finish");
    }
    for mut one in [program, rival] {
        one.tell("end");
        assert_eq!(one.finish(), ["ok"]);
    }
    assert_eq!(place.stats_of(pid)["unscheduled"]["passthrough"], 2 * 2 * 200 + 3);
}
