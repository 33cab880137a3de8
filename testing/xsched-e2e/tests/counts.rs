//! Counts of launches by the library, by the device and in `ps`: they are equal, and no launch is unscheduled.

use xsched_e2e::{Place, until};

#[test]
fn five_programs_are_counted_alike_by_everybody() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let _daemon = place.daemon(&["--policy", "up"]);
    let shapes = [["200", "8", "0"], ["50", "64", "1"], ["1000", "1", "-1"], ["20", "3", "2"], ["500", "16", "-2"]];
    let mut programs: Vec<_> = shapes.iter().map(|shape| place.run(&[], &steady, shape)).collect();
    for program in &mut programs {
        program.expect("ready");
    }
    until("each has launched a good deal", || {
        programs.iter().all(|p| place.group(p.pid()).is_some_and(|g| g["launches"].as_u64() > Some(50)))
    });
    for mut program in programs {
        let pid = program.pid();
        // While it is held it stands still, so that the numbers can be compared during its life.
        place.ask(&["suspend", "--pid", &pid.to_string()]);
        place.await_state(pid, "suspended");
        let shown = place.group(pid).unwrap();
        let none = serde_json::json!({"attach": 0, "passthrough": 0, "error": 0});
        assert_eq!(shown["unscheduled"], none, "{shown}");
        let queues = shown["queues"].as_array().unwrap().iter();
        assert_eq!(queues.map(|q| q["launches"].as_u64().unwrap()).sum::<u64>(), shown["launches"].as_u64().unwrap());
        place.ask(&["resume", "--pid", &pid.to_string()]);
        program.tell("end");
        let lines = program.finish();
        assert_eq!(lines.last().map(String::as_str), Some("ok"));
        place.assert_counts(&lines);
        assert!(place.stats_of(pid)["launches"].as_u64() >= shown["launches"].as_u64());
    }
}

#[test]
fn ps_shows_exactly_what_a_living_program_has_given() {
    let place = Place::new();
    let program = place.sim_program("longjmp");
    let _daemon = place.daemon(&[]);
    // The program prints its count and then waits, alive.
    let mut program = place.run(&[], &program, &[]);
    program.expect("ready");
    program.tell("go on");
    let prefix = format!("launched {} ", program.pid());
    let launched = program.find("its count", |line| line.strip_prefix(&prefix).map(|n| n.parse::<u64>().unwrap()));
    assert_eq!(place.group(program.pid()).unwrap()["launches"], launched);
    program.tell("end");
    let pid = program.pid();
    assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
    assert_eq!(place.stats_of(pid)["launches"], launched);
}

#[test]
fn a_wait_that_goes_on_is_shown() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let _daemon = place.daemon(&[]);
    // At this level its thread stops at the gate, and not in a wait for commands behind a gate on the device.
    let mut program = place.run(&["--level", "1"], &steady, &[]);
    program.expect("ready");
    program.progress_after(0);
    place.ask(&["suspend", "--pid", &program.pid().to_string()]);
    place.await_state(program.pid(), "suspended");
    let shown = || {
        let group = place.group(program.pid()).expect("attached");
        (group["launches"].as_u64().expect("a number"), group["wait_us"].as_u64().expect("a number"))
    };
    let (launches, before) = shown();
    until("its wait grows", || shown().1 > before + 50_000);
    assert_eq!(shown().0, launches, "it is one wait");
    place.ask(&["resume", "--pid", &program.pid().to_string()]);
    until("it launches again", || shown().0 > launches);
    assert!(shown().1 >= before + 50_000, "a wait that is over counts");
    program.tell("end");
    program.finish();
}
