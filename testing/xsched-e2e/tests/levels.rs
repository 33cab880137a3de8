//! Preemption levels on the simulated device, against kernels of 50 ms; and cases in which a level is not available.

use xsched_e2e::{Place, Process, now_ns, one_of};

/// Tries at times that a busy machine lengthens, see [`one_of`].
const TRIES: u32 = 5;

fn json(lines: &[String]) -> serde_json::Value {
    serde_json::from_str(lines.last().expect("a line")).expect("JSON")
}

/// Median time, in ms, of an urgent request (two kernels of 0.5 ms) beside a program that is never idle: kernels of `us`, `batch` at a
/// time, on a device that changes programs only each 20 ms, so that only the level can bring the request forward.
fn p50_beside(us: &str, batch: &str, level: &str, config: &str) -> f64 {
    let place = Place::new();
    place.devices_with(1, &[("SIMDEV_TIMESLICE_US", "20000")]);
    let (steady, load) =
        (place.sim_program("steady"), place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]));
    let file = place.join("config.toml");
    std::fs::write(&file, config).unwrap();
    let _daemon = place.daemon(&["--policy", "hpf", "--config", file.to_str().unwrap()]);
    let mut long = place.run(&["--priority", "low", "--level", level], &steady, &[us, batch]);
    long.expect("ready");
    long.progress_after(0);
    let args = ["lc", "--kernels", "2", "--us", "500", "--period-us", "20000", "--requests", "50"];
    let result = json(&place.run(&["--priority", "high"], &load, &args).finish());
    println!("level {level}: P50 {} ms, P99 {} ms beside kernels of {us} us", result["p50_ms"], result["p99_ms"]);
    assert_eq!(result["check"], "ok");
    long.tell("end");
    let lines = long.finish();
    assert_eq!(lines.last().map(String::as_str), Some("ok"));
    place.assert_counts(&lines);
    result["p50_ms"].as_f64().unwrap()
}

/// Asserts that a time is less than half of another one. A busy machine lengthens either: the least of a few counts.
#[track_caller]
fn assert_clearly_below(what: &str, other: f64, mut ms: impl FnMut() -> f64) {
    one_of(TRIES, what, || {
        let ms = ms();
        if ms < 0.5 * other { Ok(()) } else { Err(format!("{ms} ms, the other {other} ms")) }
    });
}

/// The two levels below it do not take the running command off the device.
#[test]
fn the_third_level_cuts_into_a_kernel() {
    let [one, two] = ["1", "2"].map(|level| p50_beside("50000", "1", level, ""));
    // The third level is named here, or chosen where none is named.
    for level in ["3", "auto"] {
        assert_clearly_below(&format!("level {level} beside levels 1 and 2"), one.min(two), || {
            p50_beside("50000", "1", level, "")
        });
    }
}

/// At the first level, the commands in the driver, here 10 ms of work, run to their end.
#[test]
fn the_second_level_holds_what_the_driver_has() {
    let of = |level| p50_beside("500", "32", level, "budget_us = 10000\n");
    let one = of("1");
    assert_clearly_below("level 2 beside level 1", one, || of("2"));
}

#[test]
fn a_hundred_suspensions_at_each_level_change_no_result() {
    for level in ["1", "2", "3", "auto"] {
        let place = Place::new();
        let steady = place.sim_program("steady");
        let _daemon = place.daemon(&["--policy", "chaos"]);
        let start = |us: &str, batch: &str| {
            let mut program = place.run(&["--level", level], &steady, &[us, batch]);
            program.expect("ready");
            program
        };
        let programs = [start("2000", "2"), start("100", "16")];
        for program in &programs {
            xsched_e2e::until("it was suspended a hundred times", || {
                place.group(program.pid()).is_some_and(|g| g["suspensions"].as_u64() >= Some(100))
            });
        }
        for mut program in programs {
            program.tell("end");
            let lines = program.finish();
            assert_eq!(lines.last().map(String::as_str), Some("ok"), "level {level}");
            place.assert_counts(&lines);
        }
    }
}

/// A command that waits at a gate on the device must not be charged as if it ran, or its program would never get a turn.
#[test]
fn at_the_second_level_who_is_held_is_not_charged() {
    let place = Place::new();
    let steady = place.sim_program("steady");
    let _daemon = place.daemon(&["--policy", "up"]);
    let start = |us: &str, batch: &str| {
        let mut program = place.run(&["--level", "2"], &steady, &[us, batch]);
        program.expect("ready");
        program
    };
    let (mut short, mut long) = (start("200", "64"), start("4000", "32"));
    for _ in 0..2 {
        short.progress_after(now_ns());
        long.progress_after(now_ns());
    }
    for mut program in [short, long] {
        program.tell("end");
        assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
    }
}

#[test]
fn opencl_says_once_that_it_has_only_the_first_level() {
    let place = Place::new();
    let program = place.opencl_program("provides_later_cl");
    let _daemon = place.daemon(&[]);
    let mut run: Process = place.run(&["--level", "3"], &program, &[]);
    run.expect("ready");
    assert_eq!(place.group(run.pid()).unwrap()["level"], 1);
    run.tell("go");
    let (code, lines, errors) = run.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("xsched: preemption level 3 is not available on "), "{errors}");
    assert!(errors.trim_end().ends_with("using level 1"), "{errors}");
}
