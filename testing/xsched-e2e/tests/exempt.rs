//! Treatment of launches of vendors' libraries, by the operator's choice: off, report, ahead, exempt.

mod chain;

use std::time::Duration;

use chain::{Chain, step};
use serde_json::{Value, json};
use xsched_e2e::{Process, until};

/// Starts a daemon with this configuration.
fn daemon(chain: &Chain, config: &str) -> Process {
    let file = chain.place.join("config.toml");
    std::fs::write(&file, config).expect("a file");
    chain.place.daemon(&["--config", file.to_str().expect("text")])
}

fn rule(mode: &str) -> String {
    format!("[[rule]]\nexe = \"*/chain\"\ndomains = \"{mode}\"\n")
}

fn mode_of(chain: &Chain, pid: u32) -> Value {
    chain.place.program(pid).expect("a program")["domains"].clone()
}

fn suspend(chain: &Chain, program: &Process) {
    chain.place.ask(&["suspend", "--pid", &program.pid().to_string()]);
    chain.place.await_state(program.pid(), "suspended");
}

/// Has a suspended program launch something, asserts that it waits, and lets it go on.
fn is_held(chain: &Chain, program: &mut Process, what: &str) {
    program.tell(what);
    chain.place.await_state(program.pid(), "suspended");
    assert_eq!(program.line_within(Duration::from_millis(200)), None, "{what} is held");
    chain.place.ask(&["resume", "--pid", &program.pid().to_string()]);
    assert_eq!(program.line(), format!("{} 0", what.split(' ').next().expect("a word")));
}

fn end_with_errors(chain: &Chain, mut program: Process) -> (Value, String) {
    program.tell("end");
    let pid = program.pid();
    let (code, lines, errors) = program.wait();
    assert!(code == 0 && lines.last().expect("a line").starts_with("ok"), "{code} {lines:?} {errors}");
    (chain.place.stats_of(pid), errors)
}

fn end(chain: &Chain, program: Process) -> Value {
    let (stats, errors) = end_with_errors(chain, program);
    assert_eq!(errors, "");
    stats
}

/// Mode of the rule, mode that the program asks for, resulting mode.
const GIVEN: [(&str, &str, &str); 9] = [
    ("", "", "off"),
    ("", "report", "report"),
    ("", "ahead", "ahead"),
    ("", "exempt", "ahead"),
    ("report", "", "report"),
    ("report", "exempt", "ahead"),
    ("exempt", "", "exempt"),
    ("exempt", "exempt", "exempt"),
    ("exempt", "report", "report"),
];

#[test]
fn only_a_rule_exempts_the_launches_of_vendors_libraries() {
    let chain = Chain::new();
    for (given, asked, gets) in GIVEN {
        let config = if given.is_empty() { String::new() } else { rule(given) };
        let _daemon = daemon(&chain, &config);
        let mut program = chain.run(&[("XSCHED_DOMAINS", asked)]);
        let pid = program.pid();
        step(&mut program, "own 3 10");
        step(&mut program, "vendor 4 10");
        step(&mut program, "sync");
        assert_eq!(mode_of(&chain, pid), gets, "rule {given}, asked {asked}");
        suspend(&chain, &program);
        if gets == "exempt" {
            // In one stream, and in order: the program checks this at its end.
            step(&mut program, "vendor 50 10");
            assert_eq!(chain.place.group(pid).expect("a group")["exempt_launches"], 50);
            is_held(&chain, &mut program, "own 1 10");
        } else {
            is_held(&chain, &mut program, "vendor 50 10");
        }
        let group = chain.place.group(pid).expect("a group");
        let exempt = if gets == "exempt" { 50 } else { 0 };
        assert_eq!(group["exempt_launches"], exempt, "{group}");
        let (stats, errors) = end_with_errors(&chain, program);
        let told = errors.contains("XSCHED_DOMAINS=exempt needs a rule of the daemon's configuration");
        assert_eq!((told, errors.lines().count()), (!asked.is_empty() && asked != gets, usize::from(told)), "{errors}");
        assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
        if gets == "off" {
            assert_eq!(stats.get("domains"), None, "{stats}");
        } else {
            assert_eq!((&stats["domains"]["system"], &stats["exempt"]), (&json!(54), &json!(exempt)), "{stats}");
        }
    }
}

#[test]
fn the_mode_of_a_configuration_holds_where_no_rule_says_otherwise() {
    let chain = Chain::new();
    for (rest, mode) in [(rule("exempt"), "exempt"), ("[[rule]]\nexe = \"*/chain\"\nweight = 7\n".into(), "report")] {
        let _daemon = daemon(&chain, &format!("domains = \"report\"\n{rest}"));
        let mut program = chain.run(&[]);
        step(&mut program, "vendor 1 10");
        assert_eq!(mode_of(&chain, program.pid()), mode);
        assert_eq!(end(&chain, program)["domains"]["system"], 1);
    }
}

/// Launches of a vendor's library go into a stream that the program used before, without an explicit domain.
#[test]
fn ahead_acts_on_launches_in_any_stream_of_the_program() {
    let chain = Chain::new();
    let _daemon = daemon(&chain, &rule("ahead"));
    let mut program = chain.run(&[]);
    step(&mut program, "own 2 10");
    step(&mut program, "vendor_stream");
    let domains = || {
        let groups =
            chain.place.program(program.pid()).expect("a program")["groups"].as_array().expect("groups").clone();
        let of =
            |g: &Value| (g["domain"].as_str().expect("text").to_owned(), g["queues"].as_array().expect("queues").len());
        groups.iter().map(of).collect::<Vec<_>>()
    };
    until("both streams are known", || domains() == [("application".to_owned(), 2)]);
    // Nothing else is on the device. A machine that stands still makes the library's work count as stalled: then the test tries once more.
    let mut waited_us = 0;
    until("its own launch waits for most of the library's work", || {
        let before = chain.waited_us(program.pid());
        // 80 ms of work; no thread waits for it.
        step(&mut program, "on_vendor_stream 160 500");
        step(&mut program, "own 1 10");
        waited_us = chain.waited_us(program.pid()) - before;
        step(&mut program, "sync");
        waited_us > 60_000
    });
    println!("behind 80 ms of a vendor's library: {waited_us} µs");
    let domains = || {
        let groups =
            chain.place.program(program.pid()).expect("a program")["groups"].as_array().expect("groups").clone();
        groups.iter().map(|g| (g["domain"].clone(), g["priority"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(domains(), [(json!("application"), json!(0)), (json!("system"), json!(0))], "never above the class");
    end(&chain, program);
}

/// A stream gets launches from the program and from the library in turn. Results and counts are right all the same.
#[test]
fn a_stream_of_mixed_launches_keeps_its_order_under_each_mode() {
    let chain = Chain::new();
    for mode in ["ahead", "exempt"] {
        let file = chain.place.join("config.toml");
        std::fs::write(&file, rule(mode)).expect("a file");
        let _daemon = chain.place.daemon(&["--policy", "chaos", "--config", file.to_str().expect("text")]);
        let mut program = chain.run(&[]);
        step(&mut program, "mixed 200 20");
        step(&mut program, "vendor 100 20");
        step(&mut program, "mixed 100 20");
        let stats = end(&chain, program);
        // The program itself adds a set and a copy.
        assert_eq!(stats["launches"], 3 * 300 + 100 + 2, "{stats}");
        assert_eq!(stats["domains"]["system"], 400, "{stats}");
        assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
    }
}

#[test]
fn an_exempt_program_has_no_gates_on_the_device() {
    let chain = Chain::new();
    for (mode, level) in [("report", 3), ("exempt", 1)] {
        let _daemon = daemon(&chain, &rule(mode));
        let mut program = chain.run_as(&["--level", "3"], &[]);
        step(&mut program, "own 1 10");
        assert_eq!(chain.place.group(program.pid()).expect("a group")["level"], level, "{mode}");
        end(&chain, program);
    }
}

/// On the software CUDA driver: the vendor library of one program launches while a program of a higher class goes on and on.
#[test]
fn exempt_launches_pass_a_program_of_a_higher_class_and_others_wait_for_it() {
    let chain = Chain::over_cuda();
    let steady = chain.place.compile("programs/cuda/steady.c", &["-lpthread", "-lm"]);
    for mode in ["off", "report", "ahead", "exempt"] {
        let _daemon = daemon(&chain, &rule(mode));
        let mut program = chain.run_cuda_told(&["--priority", "low"], &[]);
        let pid = program.pid();
        let groups = || chain.place.program(pid).expect("a program")["groups"].as_array().expect("groups").clone();
        let passed = || groups().iter().map(|g| g["exempt_launches"].as_u64().expect("a number")).sum::<u64>();
        let waits = || groups().iter().any(|g| g["state"] == "ready");
        step(&mut program, "own 2");
        step(&mut program, "sync");
        let command = chain.place.run_command(&["--priority", "high"], &steady, &["1000", "8"]);
        let mut high = Process::start(chain.with_driver(command));
        high.expect("ready");
        high.progress_after(0);
        let (mut vendor, what) = (0, if mode == "exempt" { "own" } else { "vendor" });
        if mode == "exempt" {
            until("a launch has passed the closed gate", || {
                step(&mut program, "vendor 5");
                vendor += 5;
                passed() > 0
            });
            // The launches run while the other program goes on.
            step(&mut program, "sync");
            high.progress_after(xsched_e2e::now_ns());
        }
        program.tell(&format!("{what} 1"));
        until("the launch waits", waits);
        high.end_steady();
        assert_eq!(program.line(), format!("{what} 0"));
        vendor += u64::from(what == "vendor");
        assert_eq!(passed() > 0, mode == "exempt", "{mode}");
        let stats = end(&chain, program);
        assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
        let system = stats.get("domains").map(|domains| domains["system"].clone());
        assert_eq!(system, (mode != "off").then(|| json!(vendor)), "{stats}");
    }
}
