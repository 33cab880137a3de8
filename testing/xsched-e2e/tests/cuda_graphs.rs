//! Gates inside CUDA graphs (level 2), with the software driver: a graph is held in its middle and continued; programs can change their
//! graphs as ever; graphs that cannot have gates run as they are.

use std::time::Duration;

use xsched_e2e::{Gpu, Process, least_of, now_ns, signal, until};

/// Numbers of graphs with gates, and of graphs that should have some but could not, of a program that ended.
fn graphs(gpu: &Gpu, pid: u32) -> (u64, u64) {
    let stats = gpu.place.stats_of(pid);
    let n = |name: &str| stats["graphs"][name].as_u64().unwrap_or(0);
    (n("gated"), n("plain"))
}

/// Runs the program that changes its graphs; it must print the same lines as bare. Returns the numbers of [`graphs`].
fn changed_as_bare(policy: &str, options: &[&str]) -> (u64, u64) {
    let gpu = Gpu::new();
    let program = gpu.program("graph_nodes");
    let bare = gpu.bare(&program, &[]).finish();
    assert!(bare.len() > 30 && bare.iter().all(|line| line.starts_with("ok ")), "{bare:?}");
    let _daemon = gpu.place.daemon(&["--policy", policy]);
    let process = gpu.run(options, &program, &[]);
    let pid = process.pid();
    assert_eq!(process.finish(), bare, "{policy} {options:?}");
    gpu.assert_counts(pid);
    let driver = gpu.driver_stats(pid);
    assert_eq!(driver["illegal"], 0, "{driver}");
    let calls = |name: &str| driver["calls"][name].as_u64().unwrap_or(0);
    let (gated, plain) = graphs(&gpu, pid);
    println!("{policy} {options:?}: {gated} graphs with gates, {plain} without: {}", gpu.place.stats_of(pid)["graphs"]);
    assert_eq!(calls("cuGraphAddBatchMemOpNode") > 0, gated > 0, "{driver}");
    (gated, plain)
}

#[test]
fn graphs_that_are_changed_are_as_without_gates() {
    // With gates: a chain, branches, a programmatic edge, with parameters, for updates. Without: a graph launched by the device, one with a
    // graph in it, one with memory in it. After a failed update none is tried any more.
    for policy in ["hpf", "chaos"] {
        assert_eq!(changed_as_bare(policy, &["--level", "2"]), (5, 3), "{policy}");
    }
}

#[test]
fn threads_that_make_update_and_destroy_graphs_at_the_same_time_get_what_they_ask_for() {
    let gpu = Gpu::new();
    let program = gpu.program("graph_threads");
    let bare = gpu.bare(&program, &[]).finish();
    for policy in ["hpf", "chaos"] {
        let _daemon = gpu.place.daemon(&["--policy", policy]);
        let process = gpu.run(&["--level", "2"], &program, &[]);
        let pid = process.pid();
        assert_eq!(process.finish(), bare, "{policy}");
        gpu.assert_counts(pid);
        assert_eq!(gpu.driver_stats(pid)["illegal"], 0, "{policy}");
        assert_eq!(graphs(&gpu, pid), (4 * 25, 0), "{policy}");
    }
}

#[test]
fn only_the_second_level_puts_gates_into_graphs() {
    for level in ["1", "3", "auto"] {
        assert_eq!(changed_as_bare("hpf", &["--level", level]), (0, 0), "level {level}");
    }
}

#[test]
fn gates_in_graphs_can_be_switched_off() {
    let gpu = Gpu::new();
    let program = gpu.program("graph_nodes");
    let _daemon = gpu.place.daemon(&[]);
    let mut command = gpu.place.run_command(&["--level", "2"], &program, &[]);
    command.env("XSCHED_GRAPH_GATES", "0");
    let process = gpu.with_driver(command);
    let pid = process.pid();
    process.finish();
    assert_eq!(graphs(&gpu, pid), (0, 0));
}

const BATCH: u64 = 64;

/// Suspends a program of long graphs until it is held inside one, and checks that a rival makes progress meanwhile.
fn held_inside(gpu: &Gpu, program: &mut Process, rival: &mut Process) -> bool {
    let pid = program.pid();
    for _ in 0..10 {
        program.progress_after(now_ns());
        gpu.place.ask(&["suspend", "--pid", &pid.to_string()]);
        gpu.place.await_state(pid, "suspended");
        // Commands that may run have run when the rival has made progress, a good deal of work later.
        for _ in 0..3 {
            rival.progress_after(now_ns());
        }
        let held = program.count();
        for _ in 0..3 {
            rival.progress_after(now_ns());
        }
        assert_eq!(program.count(), held, "nothing of it runs");
        if !held.1.is_multiple_of(BATCH) {
            return true;
        }
        gpu.place.ask(&["resume", "--pid", &pid.to_string()]);
    }
    false
}

fn start(gpu: &Gpu, options: &[&str], args: &[&str]) -> Process {
    let mut process = gpu.run(options, &gpu.program("steady"), args);
    process.expect("ready");
    process.progress_after(0);
    process
}

/// Suspends a long graph at low priority beside a rival at high priority. Returns whether it stopped in its middle.
fn stops_inside(options: &[&str]) -> bool {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = start(&gpu, &[options, &["--priority", "low"]].concat(), &["500", &BATCH.to_string(), "graph"]);
    let mut rival = gpu.run(&["--priority", "high"], &gpu.program("steady"), &["200", "32"]);
    rival.expect("ready");
    rival.progress_after(0);
    let pid = program.pid();
    gpu.place.ask(&["suspend", "--pid", &rival.pid().to_string()]);
    let mut inside = false;
    // The rival is held at times, since the program would otherwise make no progress.
    for _ in 0..10 {
        program.progress_after(now_ns());
        gpu.place.ask(&["resume", "--pid", &rival.pid().to_string()]);
        // Twice as much work as the graph has.
        for _ in 0..10 {
            rival.progress_after(now_ns());
        }
        // On a busy machine the rival may leave gaps, in which the program makes progress.
        for _ in 0..5 {
            let held = program.count();
            for _ in 0..2 {
                rival.progress_after(now_ns());
            }
            inside |= program.count() == held && !held.1.is_multiple_of(BATCH);
        }
        gpu.place.ask(&["suspend", "--pid", &rival.pid().to_string()]);
        if inside {
            program.progress_after(now_ns());
            break;
        }
    }
    gpu.place.ask(&["resume", "--pid", &rival.pid().to_string()]);
    gpu.end(rival);
    gpu.end(program);
    println!("{options:?}: {:?}, held inside: {inside}", graphs(&gpu, pid));
    inside
}

#[test]
fn a_graph_is_preempted_in_its_middle_for_a_more_urgent_program() {
    assert!(stops_inside(&["--level", "2"]), "level 2 holds it inside");
    assert!(!stops_inside(&["--level", "1"]), "level 1 lets it end");
}

#[test]
fn where_the_level_is_nobodys_wish_gates_are_rare() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let steady = gpu.program("steady");
    // Without its resource manager the driver has no time slices to set.
    let bare_driver = |args: &[&str]| {
        let mut command = gpu.place.run_command(&[], &steady, args);
        command.env("LD_LIBRARY_PATH", gpu.place.join("driver")).env("FAKECUDA_STATS", gpu.place.join("driver-stats"));
        let mut process = Process::start(command);
        process.expect("ready");
        process.progress_after(0);
        process
    };
    let mut rival = bare_driver(&["50", "64"]);
    let mut program = bare_driver(&["200", &BATCH.to_string(), "graph"]);
    let pid = program.pid();
    assert_eq!(gpu.place.group(pid).unwrap()["level"], 2);
    assert!(held_inside(&gpu, &mut program, &mut rival));
    gpu.place.ask(&["resume", "--pid", &pid.to_string()]);
    gpu.end(program);
    gpu.end(rival);
    // Twice as many kernels of unknown length: one gate for each ten.
    assert_eq!(gpu.driver_stats(pid)["calls"]["cuGraphAddBatchMemOpNode"], 2 * BATCH / 10);
}

#[test]
fn a_graph_suspended_in_its_middle_goes_on_when_resumed_and_not_before() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut rival = start(&gpu, &[], &["50", "64"]);
    let mut program = start(&gpu, &["--level", "2"], &["200", &BATCH.to_string(), "graph"]);
    assert!(held_inside(&gpu, &mut program, &mut rival));
    gpu.place.ask(&["resume", "--pid", &program.pid().to_string()]);
    program.progress_after(now_ns());
    let pid = program.pid();
    gpu.end(program);
    assert_eq!(graphs(&gpu, pid), (1, 0));
    gpu.end(rival);
}

#[test]
fn without_gates_inside_a_graph_that_runs_runs_to_its_end() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut rival = start(&gpu, &[], &["50", "64"]);
    let mut program = start(&gpu, &["--level", "1"], &["200", &BATCH.to_string(), "graph"]);
    let pid = program.pid();
    gpu.place.ask(&["suspend", "--pid", &pid.to_string()]);
    gpu.place.await_state(pid, "suspended");
    until("whole graphs are done", || {
        rival.progress_after(now_ns());
        let (given, done) = program.count();
        given == done
    });
    gpu.place.ask(&["resume", "--pid", &pid.to_string()]);
    gpu.end(program);
    gpu.end(rival);
}

#[test]
fn a_graph_held_in_its_middle_goes_on_when_the_daemon_is_killed() {
    let gpu = Gpu::new();
    let daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut rival = start(&gpu, &[], &["50", "64"]);
    let mut program = start(&gpu, &["--level", "2"], &["200", &BATCH.to_string(), "graph"]);
    assert!(held_inside(&gpu, &mut program, &mut rival));
    signal(daemon.pid(), rustix::process::Signal::KILL);
    program.progress_after(now_ns());
    for mut process in [program, rival] {
        process.tell("end");
        let (code, lines, _) = process.wait();
        assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok every kernel has run once")));
    }
}

/// The program's thread is in the driver, which has no room for the next graph, and launches nothing. The program must not count as idle
/// then.
#[test]
fn a_graph_held_in_its_middle_has_its_turns_though_nothing_is_launched() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "up"]);
    let mut program = start(&gpu, &["--level", "2"], &["200", "400", "graph"]);
    let mut rival = start(&gpu, &["--level", "2"], &["1000", "1"]);
    for _ in 0..3 {
        program.progress_after(now_ns());
        rival.progress_after(now_ns());
    }
    gpu.end(program);
    gpu.end(rival);
}

#[test]
fn a_program_may_exit_while_its_graph_is_held_in_its_middle() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut rival = start(&gpu, &[], &["50", "64"]);
    let mut program = start(&gpu, &["--level", "2"], &["200", &BATCH.to_string(), "graph"]);
    assert!(held_inside(&gpu, &mut program, &mut rival));
    program.tell("exit");
    let (code, _, errors) = program.wait();
    assert_eq!((code, errors.as_str()), (0, ""));
    gpu.end(rival);
}

#[test]
fn a_more_urgent_stream_is_not_held_by_gates_that_were_made_before_it() {
    // A thread that waits for a group of its own process is helped only after 20 ms.
    least_of(5, Duration::from_millis(15), "median wait in the urgent stream", || {
        let gpu = Gpu::new();
        let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
        let mut program = gpu.run(&["--priority", "normal", "--level", "2"], &gpu.program("graph_groups"), &["16"]);
        program.expect("ready");
        let pid = program.pid();
        // The rival's priority lies between those of the program's streams, and the rival never ends: commands in streams of the first kind
        // do not run.
        let rival = start(&gpu, &["--priority", "5"], &["200", "8"]);
        program.tell("go");
        let lines = program.finish();
        let median_ms: f64 = lines[0].parse().expect("a time");
        assert_eq!(lines[1], "ok every kernel has run once");
        assert_eq!(graphs(&gpu, pid), (1, 0));
        gpu.end(rival);
        Duration::from_secs_f64(median_ms / 1e3)
    });
}
