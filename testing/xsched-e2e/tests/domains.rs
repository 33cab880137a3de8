//! Scheduling domains: a library's setting stays its own, streams carry it, and AUTO distinguishes vendors' work from a program's, through
//! seven shared libraries.

mod chain;

use chain::{Chain, step};
use serde_json::{Value, json};
use xsched_e2e::{Process, until};

const SYSTEM: i64 = 0;
const APPLICATION: i64 = 1;
const AUTO: i64 = 2;
const REPORT: (&str, &str) = ("XSCHED_DOMAINS", "report");

fn end(chain: &Chain, mut program: Process) -> Value {
    program.tell("end");
    let pid = program.pid();
    let lines = program.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"));
    chain.place.assert_counts(&lines);
    chain.place.stats_of(pid)
}

#[test]
fn a_library_that_sets_system_and_never_restores_it_leaves_its_caller_alone() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    // With the header, a call in tail position counts too, which returns to the library's caller.
    for init in ["init", "init_plain"] {
        never_restored(&chain, init);
    }
}

fn never_restored(chain: &Chain, init: &str) {
    let mut program = chain.run(&[REPORT]);
    assert_eq!((step(&mut program, "domain"), step(&mut program, "vendor_domain")), (AUTO, AUTO));
    assert_eq!(step(&mut program, init), 0);
    assert_eq!((step(&mut program, "domain"), step(&mut program, "vendor_domain")), (AUTO, SYSTEM));
    step(&mut program, "own 10 10");
    step(&mut program, "runtime 7 10");
    step(&mut program, "vendor 5 10");
    // In the other direction, the program's setting does not affect the library.
    assert_eq!(step(&mut program, &format!("set {APPLICATION}")), 0);
    assert_eq!((step(&mut program, "domain"), step(&mut program, "vendor_domain")), (APPLICATION, SYSTEM));
    assert_eq!(step(&mut program, "reset"), 0);
    assert_eq!((step(&mut program, "domain"), step(&mut program, "vendor_domain")), (APPLICATION, AUTO));
    let stats = end(chain, program);
    assert_eq!(stats["domains"], json!({"system": 5, "application": 10 + 7 + 2}), "{stats}");
}

#[test]
fn what_is_pushed_holds_for_all_of_the_thread_until_it_is_popped() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    let mut program = chain.run(&[REPORT]);
    assert_eq!(step(&mut program, "pop"), 401, "nothing to pop");
    assert_eq!((step(&mut program, "set 3"), step(&mut program, "push -1")), (1, 1), "no such domain");
    assert_eq!(step(&mut program, &format!("push {APPLICATION}")), 0);
    assert_eq!((step(&mut program, "domain"), step(&mut program, "vendor_domain")), (APPLICATION, APPLICATION));
    step(&mut program, "vendor 5 10");
    assert_eq!(step(&mut program, &format!("push {SYSTEM}")), 0);
    step(&mut program, "own 3 10");
    assert_eq!(step(&mut program, &format!("push {AUTO}")), 0);
    step(&mut program, "own 100 10");
    step(&mut program, "vendor 20 10");
    for left in [SYSTEM, APPLICATION, AUTO] {
        assert_eq!(step(&mut program, "pop"), 0);
        assert_eq!(step(&mut program, "domain"), left);
    }
    for _ in 0..32 {
        assert_eq!(step(&mut program, "push 0"), 0);
    }
    assert_eq!(step(&mut program, "push 0"), 2, "too many");
    for _ in 0..32 {
        assert_eq!(step(&mut program, "pop"), 0);
    }
    let stats = end(&chain, program);
    assert_eq!(stats["domains"]["system"], 3 + 20, "{stats}");
}

#[test]
fn automatic_domains_are_reported_by_ps_and_at_the_end_by_library() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    // Values that earlier calls left on the stack differ from run to run: a call of the vendor's library must not be taken for one of
    // these.
    for _ in 0..8 {
        let mut program = chain.run(&[REPORT]);
        step(&mut program, "mixed 30 10");
        step(&mut program, "vendor 12 10");
        assert_eq!(end(&chain, program)["domains"]["system"], 42);
    }
    let mut program = chain.run(&[REPORT]);
    step(&mut program, "mixed 30 10");
    step(&mut program, "vendor 12 10");
    let group = chain.place.group(program.pid()).unwrap();
    assert_eq!((&group["domain"], &group["system_launches"]), (&json!("application"), &json!(42)), "{group}");
    let text = chain.place.ask(&["ps"]);
    assert!(text.contains("sim:0: 42 launches of vendor libraries, 61 of its own"), "{text}");
    let stats = end(&chain, program);
    assert_eq!(stats["domains"], json!({"system": 42, "application": 30 + 30 + 2}), "{stats}");
    assert_eq!(stats["libraries"], json!({"chain": 62, "libhipblaslt-1a2b3c4d.so.0": 42}), "{stats}");
    assert_eq!(stats["unscheduled"]["passthrough"], 0);
    // Launches are not inspected unless asked for.
    let mut program = chain.run(&[]);
    step(&mut program, "vendor 3 10");
    assert_eq!(chain.place.group(program.pid()).unwrap()["system_launches"], Value::Null);
    let stats = end(&chain, program);
    assert!(stats.get("domains").is_none(), "{stats}");
}

/// Gives the vendor's stream 80 ms of work (no thread waits for it, and after 100 ms it would count as complete), then launches one kernel
/// in the program's own stream.
fn own_behind_vendor(program: &mut Process) {
    step(program, "on_vendor_stream 160 500");
    step(program, "own 1 10");
}

#[test]
fn streams_made_under_explicit_system_go_before_their_programs_own() {
    let chain = Chain::new();
    let _daemon = chain.place.daemon(&[]);
    let mut program = chain.run(&[]);
    assert_eq!(step(&mut program, "init"), 0);
    step(&mut program, "vendor_stream");
    // Nothing else is on the device. A machine that stands still makes that work count as stalled: then the test tries once more.
    let mut waited_us = 0;
    until("its own launch waits for most of the library's work", || {
        let before = chain.waited_us(program.pid());
        own_behind_vendor(&mut program);
        waited_us = chain.waited_us(program.pid()) - before;
        step(&mut program, "sync");
        waited_us > 60_000
    });
    let groups = chain.place.program(program.pid()).unwrap()["groups"].as_array().unwrap().clone();
    let shown: Vec<_> = groups.iter().map(|g| (g["domain"].as_str().unwrap(), g["priority"].as_i64())).collect();
    assert_eq!(shown, [("application", Some(0)), ("system", Some(0))], "never above the class");
    println!("behind 80 ms of a system stream: {waited_us} µs");
    end(&chain, program);
    // Work that is only detected goes before no other.
    let mut program = chain.run(&[REPORT]);
    step(&mut program, "vendor_stream");
    own_behind_vendor(&mut program);
    assert_eq!(chain.place.program(program.pid()).unwrap()["groups"].as_array().unwrap().len(), 1);
    assert_eq!(chain.waited_us(program.pid()), 0);
    end(&chain, program);
}

#[test]
fn a_system_stream_rises_above_its_programs_class_by_an_operators_rule_only() {
    let chain = Chain::new();
    let config = chain.place.join("config.toml");
    std::fs::write(&config, "[[rule]]\nexe = \"*/chain\"\nsystem_ceiling = \"high\"\n").unwrap();
    let _daemon = chain.place.daemon(&["--config", config.to_str().unwrap()]);
    let mut program = chain.run_as(&["--priority", "low"], &[]);
    step(&mut program, "init");
    step(&mut program, "vendor_stream");
    until("both groups are known", || {
        chain.place.program(program.pid()).is_some_and(|p| {
            let priorities = p["groups"].as_array().unwrap().iter().map(|g| g["priority"].as_i64().unwrap());
            priorities.collect::<Vec<_>>() == [-128, 128]
        })
    });
    end(&chain, program);
}
