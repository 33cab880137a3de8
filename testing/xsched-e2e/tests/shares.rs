//! Parts of the device: by weight, and by priority in three groups of two.

use xsched_e2e::{Place, one_of, quantile, until};

/// Tries at measurements that other work on the machine can spoil, see [`one_of`].
const TRIES: u32 = 5;

/// Device time, and kernels, of a program of weight 75 beside one of weight 25, in percent.
fn shares_of_75_to_25(timeslice_us: &str) -> [f64; 2] {
    let place = Place::new();
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let _daemon = place.daemon(&["--policy", "up"]);
    let start = |weight| {
        let options = ["--weight", weight, "--timeslice", timeslice_us];
        place.run(&options, &load, &["be", "--us", "200", "--secs", "6"])
    };
    let programs = [start("75"), start("25")];
    // Measured over the time in which both were there for sure.
    let pids = programs.each_ref().map(|p| p.pid());
    until("both run", || pids.iter().all(|p| place.group(*p).is_some_and(|g| g["launches"].as_u64() > Some(100))));
    let counts = || place.groups_at_once(pids).map(|g| ["device_us", "launches"].map(|n| g[n].as_f64().unwrap()));
    let begin = counts();
    std::thread::sleep(std::time::Duration::from_millis(4500)); // what is measured
    let end = counts();
    let shares = [0, 1].map(|n| {
        let [first, second] = [0, 1].map(|program| end[program][n] - begin[program][n]);
        100.0 * first / (first + second)
    });
    let [time, work] = shares;
    println!(
        "weights 75 and 25, turns of {timeslice_us} us: {time:.2} % of the device time, {work:.2} % of the kernels"
    );
    for program in programs {
        assert!(program.finish().last().unwrap().contains("\"check\":\"ok\""));
    }
    shares
}

/// The policy divides device time. The work that a program does in a turn depends on how soon its threads wake up when the turn begins,
/// which a busy machine delays: `bench.py shares` measures that.
#[test]
fn weights_of_75_and_25_share_the_device_time_so() {
    one_of(TRIES, "weights of 75 and 25", || {
        let [time, _] = shares_of_75_to_25("5000");
        // Two points are promised. The test allows half of that, so that a drift is found before it breaks the promise.
        if (time - 75.0).abs() <= 1.0 { Ok(()) } else { Err(format!("{time} % of the device time")) }
    });
}

/// Turns are so long that their beginnings do not count.
#[test]
fn weights_of_75_and_25_share_the_work_so() {
    one_of(TRIES, "weights of 75 and 25", || {
        let shares = shares_of_75_to_25("40000");
        let are_right = shares.iter().all(|share| (share - 75.0).abs() <= 2.0);
        if are_right { Ok(()) } else { Err(format!("{shares:?} % of the device time, of the kernels")) }
    });
}

/// Prints the latencies of each priority, lowest first, and checks their order.
#[track_caller]
fn assert_ordered(what: &str, mut latencies: impl FnMut() -> [Vec<f64>; 3]) {
    one_of(TRIES, what, || {
        let figures = latencies().map(|ms| [0.5, 0.99].map(|q| quantile(&ms, q)));
        for (name, [p50, p99]) in ["low", "middle", "high"].iter().zip(figures) {
            println!("{what}: {name:6} P50 {p50:7.3} ms  P99 {p99:7.3} ms");
        }
        let [low, middle, high] = figures;
        if high[1] < middle[1] && middle[1] < low[1] { Ok(()) } else { Err(format!("P99 out of order: {figures:?}")) }
    });
}

/// Latencies by priority, from the lines `PRIORITY MS` of `groups`.
fn latencies(lines: &[String]) -> [Vec<f64>; 3] {
    [-1, 0, 1].map(|priority: i32| {
        let of = |l: &String| {
            let (p, ms) = l.split_once(' ')?;
            (p.parse() == Ok(priority)).then(|| ms.parse().ok())?
        };
        lines.iter().filter_map(of).collect()
    })
}

#[test]
fn three_groups_of_two_threads_are_served_in_order() {
    let place = Place::new();
    let groups = place.sim_program("groups");
    let _daemon = place.daemon(&["--policy", "hpf"]);
    assert_ordered("threads, daemon", || {
        let lines = place.run(&[], &groups, &["3"]).finish();
        assert_eq!(lines.last().unwrap(), "ok");
        place.assert_counts(&lines);
        latencies(&lines)
    });
}

#[test]
fn three_groups_of_two_threads_are_served_in_order_without_a_daemon() {
    let place = Place::new();
    let groups = place.sim_program("groups");
    assert_ordered("threads, --local", || {
        let lines = place.run(&["--local", "hpf"], &groups, &["3"]).finish();
        assert_eq!(lines.last().unwrap(), "ok");
        place.assert_counts(&lines);
        latencies(&lines)
    });
}

#[test]
fn three_groups_of_two_processes_are_served_in_order() {
    let place = Place::new();
    let groups = place.sim_program("groups");
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let start = |class| place.run(&["--priority", class], &groups, &["3", "0"]);
    assert_ordered("processes", || {
        let programs = ["low", "normal", "high"].map(|class| [start(class), start(class)]);
        programs.map(|pair| pair.map(|p| latencies(&p.finish())[1].clone()).concat())
    });
}
