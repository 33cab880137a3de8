//! Streams of different priority in one CUDA program, on the software driver: the less urgent ones are held for the more urgent, a waiting
//! thread lends its priority, and no wait is endless.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use xsched_e2e::{Gpu, Lateness, Process, now_ns, until};

/// Priority between a program's least and most urgent streams.
const MIDDLE: [&str; 2] = ["--priority", "10"];

/// Runs a program to its end, which must be a good one, and checks its number of launches.
fn ends_well(gpu: &Gpu, options: &[&str], mode: &str) -> Vec<String> {
    let program = gpu.program("groups");
    let begin = Instant::now();
    let process = gpu.run(options, &program, &[mode]);
    let pid = process.pid();
    let lines = process.finish();
    println!("{mode} {options:?}: {:?}", begin.elapsed());
    gpu.assert_counts(pid);
    lines
}

/// Figures of a line of `groups order`: the batches that ended while each stream was at work, and their median in µs. (The 99th percentile
/// of so few is the machine's, whenever a thread is late.)
fn parse(line: &str) -> (Vec<f64>, f64) {
    let words: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    (words[1..4].to_vec(), words[4])
}

#[test]
fn threads_with_streams_of_their_own_come_in_the_order_of_their_priorities() {
    let gpu = Gpu::new();
    let bare = gpu.bare(&gpu.program("groups"), &["order"]).finish();
    println!("bare: {bare:?}");
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let lines = ends_well(&gpu, &[], "order");
    println!("{lines:?}");
    let [low, middle, high] = [0, 1, 2].map(|i| parse(&lines[i]));
    let own = high.0[2];
    assert!(low.0[2] < own / 4.0 && middle.0[2] < own / 4.0, "held while the most urgent works: {lines:?}");
    assert!(low.0[1] < middle.0[1] / 4.0, "held while the middle one works: {lines:?}");
    assert!(high.1 < parse(&bare[2]).1 / 2.0, "the most urgent has the device for itself: {lines:?} {bare:?}");
}

#[test]
fn one_thread_with_streams_of_three_priorities_does_not_wait_for_itself() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut process = gpu.run(&[], &gpu.program("groups"), &["one"]);
    process.expect("ready");
    let mut rival = steady(&gpu, &MIDDLE);
    let begin = Instant::now();
    process.tell("go on");
    // The last command on its least urgent stream completes although the rival never pauses.
    process.expect("ok one thread, three streams");
    println!("{:?}", begin.elapsed());
    rival.progress_after(now_ns());
    let pid = process.pid();
    let groups = gpu.place.program(pid).unwrap()["groups"].as_array().unwrap().clone();
    let mut priorities: Vec<i64> = groups.iter().map(|g| g["priority"].as_i64().unwrap()).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, [0, 10, 20], "{groups:?}");
    process.tell("end");
    process.finish();
    gpu.assert_counts(pid);
    rival.progress_after(now_ns());
    gpu.end(rival);
}

#[test]
fn events_in_a_cycle_across_groups_end_under_every_policy() {
    let gpu = Gpu::new();
    for policy in ["hpf", "up", "pup", "chaos"] {
        let daemon = gpu.place.daemon(&["--policy", policy]);
        let lines = ends_well(&gpu, &[], "cycle");
        assert_eq!(lines, ["ok events in a cycle", "ok beside a busy middle one"], "{policy}");
        drop(daemon);
        ends_well(&gpu, &["--local", policy], "cycle");
    }
}

/// Launches of the urgent rank of `groups spin`: one to create it, then two a round.
const RANK: u64 = 21;

/// Number of urgent launches that the device has taken so far.
fn urgent_launches(gpu: &Gpu, pid: u32) -> u64 {
    let program = gpu.place.program(pid);
    let groups = program.as_ref().and_then(|p| p["groups"].as_array()).into_iter().flatten();
    groups.filter(|g| g["priority"] == 20).filter_map(|g| g["launches"].as_u64()).sum()
}

#[test]
fn kernels_of_two_groups_that_wait_for_each_other_end() {
    let gpu = Gpu::new();
    let spin = |options: &[&str], rival: Option<&[&str]>| {
        let mut process = gpu.run(options, &gpu.program("groups"), &["spin"]);
        process.expect("ready");
        // The rival comes only now, so that the least urgent group is not held from the beginning.
        let rival = rival.map(|options| steady(&gpu, options));
        let (begin, control) = (Instant::now(), Lateness::begin());
        process.tell("go on");
        let pid = process.pid();
        // Once no commands of the urgent group wait for it, the least urgent one rightly waits for the rival, which never ends.
        if let Some(rival) = rival {
            until("the urgent group is done", || process.has_ended().is_some() || urgent_launches(&gpu, pid) == RANK);
            gpu.end(rival);
        }
        assert_eq!(process.finish(), ["ok told to go on", "ok kernels that wait for each other"]);
        let (took, allowed) = (begin.elapsed(), control.allows(Duration::from_secs(5)));
        println!("{options:?} {took:?}");
        assert!(took < allowed, "{took:?}, allowed {allowed:?}");
        gpu.assert_counts(pid);
    };
    for policy in ["hpf", "up", "pup", "chaos"] {
        spin(&["--local", policy], None);
        let _daemon = gpu.place.daemon(&["--policy", policy]);
        spin(&[], None);
    }
    // The rival's priority lies between those of the two groups.
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    spin(&[], Some(&MIDDLE));
}

#[test]
fn a_mix_of_three_groups_prints_the_same_under_chaos_at_every_level() {
    let gpu = Gpu::new();
    let bare = gpu.bare(&gpu.program("groups"), &["mix"]).finish();
    assert_eq!(bare.len(), 3);
    let _daemon = gpu.place.daemon(&["--policy", "chaos"]);
    for level in ["1", "2", "3"] {
        assert_eq!(ends_well(&gpu, &["--level", level], "mix"), bare, "level {level}");
    }
}

/// Starts a rival that always has something on the device.
fn steady(gpu: &Gpu, options: &[&str]) -> Process {
    let mut rival = gpu.run(options, &gpu.program("steady"), &["200", "4"]);
    rival.expect("ready");
    rival.progress_after(0);
    rival
}

/// Progress of the less urgent thread.
fn low(program: &mut Process) -> u64 {
    program.tell("count");
    program.find("its count", |line| line.strip_prefix("low ").map(|n| n.parse().unwrap()))
}

/// Starts a program with an urgent thread, and one that is not urgent.
fn waiter(gpu: &Gpu) -> (Process, u32) {
    let mut program = gpu.run(&[], &gpu.program("groups_waits"), &[]);
    program.expect("ready");
    until("its threads work", || low(&mut program) > 0);
    let pid = program.pid();
    (program, pid)
}

/// Asserts that the less urgent thread stands still while the rival works on.
#[track_caller]
fn assert_held(program: &mut Process, rival: &mut Process) {
    // 20 batches of the rival are 16 ms of the device, in which a thread that is not held makes dozens of rounds. On a busy machine the
    // rival is late now and then, and the device free; so it may take another 20.
    let passed = |_| {
        let before = low(program);
        for _ in 0..20 {
            rival.progress_after(now_ns());
        }
        low(program) - before
    };
    assert!((0..10).map(passed).any(|n| n <= 4), "the less urgent thread is not held");
}

/// Makes the urgent thread execute a command.
#[track_caller]
fn does(program: &mut Process, line: &str) {
    let begin = Instant::now();
    program.tell(line);
    let name = line.rsplit(' ').next().unwrap();
    program.expect(&format!("done {name}"));
    println!("{line}: {:?}", begin.elapsed());
}

/// Thread that is held because of a rival of middle priority.
struct Inversion {
    gpu: Gpu,
    _daemon: Process,
    program: Process,
    rival: Process,
}

impl Inversion {
    fn new() -> Inversion {
        let gpu = Gpu::new();
        let daemon = gpu.place.daemon(&["--policy", "hpf"]);
        let (mut program, _) = waiter(&gpu);
        let mut rival = steady(&gpu, &MIDDLE);
        assert_held(&mut program, &mut rival);
        Inversion { gpu, _daemon: daemon, program, rival }
    }

    fn finish(self) {
        self.gpu.end(self.rival);
        let (pid, mut program) = (self.program.pid(), self.program);
        program.tell("end");
        program.finish();
        self.gpu.assert_counts(pid);
    }
}

#[test]
fn whoever_waits_for_a_held_group_lends_it_its_priority() {
    let mut this = Inversion::new();
    for what in ["event", "device", "stream", "context", "legacy", "copy"] {
        does(&mut this.program, what);
        assert_held(&mut this.program, &mut this.rival);
    }
    this.finish();
}

#[test]
fn what_was_held_on_the_device_before_there_were_several_groups_holds_no_urgent_one() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut process = gpu.run(&["--level", "2"], &gpu.program("groups"), &["late"]);
    process.expect("ready");
    let mut rival = steady(&gpu, &MIDDLE);
    gpu.place.await_state(process.pid(), "ready");
    let begin = Instant::now();
    process.tell("go on");
    process.expect("ok an urgent stream behind what was held");
    process.expect("ok a thread that waits for it");
    println!("{:?}", begin.elapsed());
    rival.progress_after(now_ns());
    gpu.end(rival);
    let pid = process.pid();
    process.tell("end");
    process.finish();
    gpu.assert_counts(pid);
    println!("{}", gpu.driver_stats(pid)["waits"]);
}

#[test]
fn nobody_is_stuck_in_calls_that_free_or_load_while_a_group_is_held() {
    let mut this = Inversion::new();
    for what in ["free", "freeasync", "load", "streams", "contexts"] {
        does(&mut this.program, what);
        does(&mut this.program, &format!("other {what}"));
        assert_held(&mut this.program, &mut this.rival);
    }
    let pid = this.program.pid().to_string();
    this.gpu.place.ask(&["suspend", "--pid", &pid]);
    for what in ["free", "freeasync", "load", "streams", "contexts"] {
        does(&mut this.program, &format!("bare {what}"));
    }
    this.gpu.place.ask(&["resume", "--pid", &pid]);
    this.finish();
}

/// Only the program knows which threads wait for its locks. So the lock is released as soon as its holder's group may run: when the urgent
/// thread's own work is done, unless others go before the holder.
#[test]
fn a_lock_that_a_held_thread_has_comes_when_its_group_may_run() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let (mut program, pid) = waiter(&gpu);
    for _ in 0..10 {
        does(&mut program, "lock");
    }
    let mut rival = steady(&gpu, &MIDDLE);
    assert_held(&mut program, &mut rival);
    program.tell("lock");
    for _ in 0..20 {
        rival.progress_after(now_ns());
    }
    // The lock comes now at the latest: a documented limit.
    gpu.end(rival);
    program.expect("done lock");
    program.tell("end");
    program.finish();
    gpu.assert_counts(pid);
}

/// States of the groups of both ranks.
fn states(gpu: &Gpu, ranks: &[u32]) -> Vec<String> {
    let state = |pid: &u32| gpu.place.group(*pid).map(|g| g["state"].as_str().unwrap().to_owned());
    ranks.iter().filter_map(state).collect()
}

#[test]
fn ranks_of_a_job_that_wait_for_each_other_end_beside_a_rival_of_one_of_them() {
    let gpu = Gpu::with_devices(2);
    for policy in ["pup", "up", "chaos"] {
        let _daemon = gpu.place.daemon(&["--policy", policy]);
        // The rival is on the first device.
        let rival = steady(&gpu, &[]);
        let begin = Instant::now();
        let program = gpu.run(&["--job", "ranks"], &gpu.program("groups_ranks"), &["200"]);
        let lines = program.finish();
        println!("{policy}: {:?}", begin.elapsed());
        assert_eq!(lines.last().map(String::as_str), Some("ok ranks that wait for each other"), "{policy}");
        let ranks = lines.iter().filter_map(|line| line.strip_prefix("pid ")).map(|pid| pid.parse().unwrap());
        ranks.for_each(|pid| gpu.assert_counts(pid));
        gpu.end(rival);
    }
}

#[test]
fn ranks_of_a_job_are_held_all_or_none() {
    let gpu = Gpu::with_devices(2);
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = gpu.run(&["--job", "ranks"], &gpu.program("groups_ranks"), &["2000"]);
    let ranks = [0, 1].map(|_| program.line().strip_prefix("pid ").unwrap().parse::<u32>().unwrap());
    program.find("a line of a rank", |line| line.starts_with("rank ").then_some(()));
    let mut rival = steady(&gpu, &["--priority", "high"]);
    // No program competes for the second device, but its commands would wait for the first.
    until("both are held", || {
        rival.progress_after(now_ns());
        let given = |pid: &u32| gpu.place.group(*pid).unwrap()["launches"].as_u64();
        let before = ranks.each_ref().map(given);
        rival.progress_after(now_ns());
        rival.progress_after(now_ns());
        ranks.each_ref().map(given) == before
    });
    println!("{:?}", states(&gpu, &ranks));
    gpu.end(rival);
    assert_eq!(program.finish().last().map(String::as_str), Some("ok ranks that wait for each other"));
    ranks.iter().for_each(|pid| gpu.assert_counts(*pid));
}

/// Number of rounds of the urgent thread of a Python program.
fn rounds(python: &mut Process) -> u64 {
    python.tell("count");
    let line: Value = serde_json::from_str(&python.line()).unwrap();
    println!("{line}");
    line["high"].as_u64().unwrap()
}

/// Waits until the thread has made 100 more rounds.
fn goes_on(python: &mut Process) {
    let begin = (Instant::now(), rounds(python));
    until("the urgent thread goes on", || {
        std::thread::sleep(Duration::from_millis(50));
        rounds(python) >= begin.1 + 100
    });
    println!("100 rounds in {:?}", begin.0.elapsed());
}

#[test]
fn threads_that_launch_with_pythons_lock_in_hand_stop_nobody() {
    let gpu = Gpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/ladders/cuda/gil.py");
    let mut python = gpu.run(&[], Path::new("python3"), &[script.to_str().unwrap()]);
    python.expect("ready");
    goes_on(&mut python);
    // Without the urgent thread, the less urgent one would be held while the rival works.
    let mut rival = steady(&gpu, &MIDDLE);
    goes_on(&mut python);
    rival.progress_after(now_ns());
    gpu.end(rival);
    let pid = python.pid();
    python.tell("end");
    assert_eq!(python.finish().last().map(String::as_str), Some("ok"));
    gpu.assert_counts(pid);
}
