//! Who gets how much of the device: by weight, and by priority in three groups of two.

use xsched_e2e::{Place, quantile, until};

#[test]
fn weights_of_75_and_25_share_the_device_so() {
    let place = Place::new();
    let load = place.compile("sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let _daemon = place.daemon(&["--policy", "up"]);
    let start = |weight| place.run(&["--weight", weight], &load, &["be", "--us", "200", "--secs", "6"]);
    let programs = [start("75"), start("25")];
    // Their own counts over the time in which both were there for sure.
    let pids = programs.each_ref().map(|p| p.pid());
    until("both run", || pids.iter().all(|p| place.group(*p).is_some_and(|g| g["launches"].as_u64() > Some(100))));
    let counts = || pids.map(|p| place.group(p).unwrap()["launches"].as_f64().unwrap());
    let begin = counts();
    std::thread::sleep(std::time::Duration::from_millis(4500));
    let end = counts();
    let done = [end[0] - begin[0], end[1] - begin[1]];
    let share = 100.0 * done[0] / (done[0] + done[1]);
    println!("weights 75 and 25: {} and {} kernels, {share:.2} % and {:.2} %", done[0], done[1], 100.0 - share);
    assert!((share - 75.0).abs() <= 5.0);
    for program in programs {
        assert!(program.finish().last().unwrap().contains("\"check\":\"ok\""));
    }
}

/// Prints a line for each priority, lowest first, and checks the order.
fn assert_ordered(what: &str, latencies: [Vec<f64>; 3]) {
    let figures = latencies.each_ref().map(|ms| [0.5, 0.99].map(|q| quantile(ms, q)));
    for (name, [p50, p99]) in ["low", "middle", "high"].iter().zip(figures) {
        println!("{what}: {name:6} P50 {p50:7.3} ms  P99 {p99:7.3} ms");
    }
    let [low, middle, high] = figures;
    assert!(high[1] < middle[1] && middle[1] < low[1], "P99 in order");
}

/// `PRIORITY MS` lines of `groups`, by priority.
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
    let lines = place.run(&[], &groups, &["3"]).finish();
    assert_eq!(lines.last().unwrap(), "ok");
    place.assert_counts(&lines);
    assert_ordered("threads, daemon", latencies(&lines));
}

#[test]
fn three_groups_of_two_threads_are_served_in_order_without_a_daemon() {
    let place = Place::new();
    let groups = place.sim_program("groups");
    let lines = place.run(&["--local", "hpf"], &groups, &["3"]).finish();
    assert_eq!(lines.last().unwrap(), "ok");
    place.assert_counts(&lines);
    assert_ordered("threads, --local", latencies(&lines));
}

#[test]
fn three_groups_of_two_processes_are_served_in_order() {
    let place = Place::new();
    let groups = place.sim_program("groups");
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let start = |class| place.run(&["--priority", class], &groups, &["3", "0"]);
    let programs = ["low", "normal", "high"].map(|class| [start(class), start(class)]);
    let latencies = programs.map(|pair| {
        let all = pair.map(|p| latencies(&p.finish())[1].clone());
        all.concat()
    });
    assert_ordered("processes", latencies);
}
