//! Commands that are added to a program's streams while one of its threads waits for its turn, on the software driver: none may make its
//! commands wait for each other in another way, and none may be added to a stream or context that another thread destroys meanwhile.

use xsched_e2e::{Gpu, HipGpu, Place, Process, is_asleep, until};

/// Has a thread of the program do something, and returns its thread id.
fn does(program: &mut Process, what: &str) -> u32 {
    program.tell(what);
    let prefix = format!("{what} ");
    program.find(what, |line| line.strip_prefix(&prefix).map(|tid| tid.parse().unwrap()))
}

/// Suspends a program, and makes one of its threads launch a command, which waits.
fn hold(place: &Place, program: &mut Process) {
    program.expect("ready");
    let pid = program.pid();
    place.ask(&["suspend", "--pid", &pid.to_string()]);
    place.await_state(pid, "suspended");
    let tid = does(program, "launch");
    until("it waits", || is_asleep(pid, tid));
}

/// Lets the program go on to its end.
fn finish(place: &Place, mut program: Process) {
    let pid = program.pid();
    place.ask(&["resume", "--pid", &pid.to_string()]);
    program.tell("end");
    assert_eq!(program.finish().last().map(String::as_str), Some("ok all is done"));
    let stats = place.stats_of(pid);
    assert_eq!(stats["gate_waits"], 1, "{stats}");
}

/// Program with a thread that waits at the closed gate.
struct Held {
    gpu: Gpu,
    _daemon: Process,
    program: Process,
    pid: u32,
}

impl Held {
    fn new(mode: &str) -> Held {
        let gpu = Gpu::new();
        let daemon = gpu.place.daemon(&["--policy", "hpf"]);
        let mut program = gpu.run(&["--level", "1"], &gpu.program("late_fences"), &[mode]);
        hold(&gpu.place, &mut program);
        let pid = program.pid();
        Held { gpu, _daemon: daemon, program, pid }
    }

    /// Ends the program, and returns the number of the device's writes.
    fn finish(self) -> u64 {
        finish(&self.gpu.place, self.program);
        self.gpu.assert_counts(self.pid);
        let driver = self.gpu.driver_stats(self.pid);
        assert_eq!(driver["illegal"], 0, "{driver}");
        driver["writes"].as_u64().unwrap()
    }
}

#[test]
fn blocking_streams_do_not_wait_for_each_other_by_way_of_the_default_stream() {
    let without = Held::new("default").finish();
    // Commands in the default stream are followed to their end where that is harmless, since PyTorch uses that stream.
    assert_eq!(Held::new("alone").finish(), without + 1);
}

#[test]
fn blocking_streams_of_hip_do_not_wait_for_each_other_by_way_of_the_null_stream() {
    let gpu = HipGpu::new();
    let _daemon = gpu.place.daemon(&["--policy", "hpf"]);
    let mut program = gpu.run(&["--level", "1"], &gpu.program("late_fences", 7), &[]);
    let pid = program.pid();
    hold(&gpu.place, &mut program);
    finish(&gpu.place, program);
    gpu.assert_counts(pid);
}

#[test]
fn the_end_of_a_blocking_stream_does_not_wait_for_what_the_default_stream_was_given_later() {
    let mut this = Held::new("blocking");
    does(&mut this.program, "synchronize");
    this.program.expect("done synchronize");
    does(&mut this.program, "release");
    this.finish();
}

/// No fence reports the last commands of such a program's turns.
#[test]
fn a_program_that_uses_both_kinds_of_streams_has_its_share_under_either_fair_policy() {
    for policy in ["up", "pup"] {
        let gpu = Gpu::new();
        let _daemon = gpu.place.daemon(&["--policy", policy]);
        let steady = gpu.program("steady");
        let start = |args: &[&str]| {
            let mut program = gpu.run(&[], &steady, args);
            program.expect("ready");
            program
        };
        let (mut other, mut both) = (start(&["20", "64"]), start(&["20", "64", "blocking"]));
        let begin = [other.count().1, both.count().1];
        let mut done = [0, 0];
        until("they have done enough to compare", || {
            done = [other.count().1 - begin[0], both.count().1 - begin[1]];
            done[0] + done[1] >= 100_000
        });
        println!("{policy}: {done:?}");
        // The share would be 5 % if its last commands counted as on the device until its next turn.
        assert!(done[1] * 4 > done[0], "{policy}: {done:?}");
        gpu.end(other);
        gpu.end(both);
    }
}

/// Has one thread end something that another thread adds to right now.
fn ends(mode: &str) {
    let mut this = Held::new(mode);
    let tid = does(&mut this.program, "destroy");
    let pid = this.pid;
    // Either the thread waits, or it has ended, since it would do so itself.
    until("it is ended, or waits", || {
        is_asleep(pid, tid) || !std::fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap()
    });
    does(&mut this.program, "release");
    this.finish();
}

#[test]
fn nothing_is_added_to_a_stream_that_another_thread_destroys() {
    ends("destroy");
}

#[test]
fn nothing_is_added_to_streams_of_a_context_that_another_thread_ends() {
    ends("context");
}
