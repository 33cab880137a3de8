//! Level 3 on AMD's compute driver, as far as it can be tested without a device. `testing/stand-ins/kfd` plays the kernel, checks each request as the
//! kernel would, and records every byte; `testing/stand-ins/kfd/hsa.c` plays AMD's runtime. Programs, preload library, daemon and command are real.
//! The test does not show that a kernel is preempted.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use xsched_e2e::{Lateness, Place, Process, TIMEOUT, now_ns, until};

/// Folder of the source tree that stands in for `/sys`.
fn sysfs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/kfd/sysfs")
}

/// Machine with two pretended AMD GPUs.
struct Amd {
    place: Place,
    kernel: PathBuf,
    program: PathBuf,
    sysfs: PathBuf,
}

/// Request that the kernel got.
#[derive(Clone, Debug, PartialEq)]
struct Request {
    pid: u32,
    number: u64,
    /// Result: 0, or a negative error.
    rc: i64,
    /// Bytes as the caller passed them.
    bytes: Vec<u8>,
}

const CREATE: u64 = 2;
const DESTROY: u64 = 3;
const UPDATE: u64 = 7;

impl Request {
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    /// Queue, percentage and priority of an UPDATE_QUEUE.
    fn update(&self) -> (u32, u32, u32) {
        assert_eq!((self.number, self.bytes.len()), (UPDATE, 24));
        (self.u32_at(8), self.u32_at(16), self.u32_at(20))
    }
}

impl Amd {
    fn new() -> Amd {
        let place = Place::new();
        let headers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/kfd/include");
        let headers = format!("-I{}", headers.to_str().unwrap());
        let more = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/kfd/more.c");
        let kernel = place.compile(
            "stand-ins/kfd/fakekfd.c",
            &[&headers, more.to_str().unwrap(), "-shared", "-fPIC", "-ldl", "-lpthread"],
        );
        let runtime =
            place.compile("stand-ins/kfd/hsa.c", &[&headers, "-shared", "-fPIC", "-Wl,-soname,libhsa-runtime64.so.1"]);
        std::fs::rename(&runtime, place.join("libhsa-runtime64.so.1")).unwrap();
        let library = place.join("libhsa-runtime64.so.1");
        let program = place.compile("stand-ins/kfd/load.c", &[library.to_str().unwrap(), "-lpthread"]);
        Amd { place, kernel, program, sysfs: sysfs() }
    }

    /// Uses Debian's build of AMD's own runtime in place of the stand-in.
    fn with_real_runtime() -> Amd {
        let mut amd = Amd::new();
        std::fs::remove_file(amd.place.join("libhsa-runtime64.so.1")).unwrap();
        amd.program = amd.place.compile("stand-ins/kfd/load.c", &["-l:libhsa-runtime64.so.1", "-lpthread"]);
        amd
    }

    /// Uses the whole of AMD's own software above the kernel, and a program that AMD's compiler made.
    fn with_real_hip() -> Amd {
        let mut amd = Amd::with_real_runtime();
        amd.program = amd.place.join("hipreal");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/kfd/hipreal.cpp");
        let mut hipcc = Command::new("hipcc");
        hipcc.args(["-O1", "--offload-arch=gfx90a", "-o"]).arg(&amd.program).arg(source);
        let done = hipcc.output().expect("hipcc: apt-get install hipcc");
        assert!(done.status.success(), "hipcc: {}", String::from_utf8_lossy(&done.stderr));
        amd
    }

    /// Uses a program that calls HIP in place of the one that does not.
    fn with_hip() -> Amd {
        let mut amd = Amd::new();
        let below = amd.place.join("libhsa-runtime64.so.1");
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.6", below.to_str().unwrap()];
        let runtime = amd.place.compile("stand-ins/kfd/hip.c", &flags);
        let library = amd.place.join("libamdhip64.so.6");
        std::fs::rename(&runtime, &library).unwrap();
        let flags = [library.to_str().unwrap(), below.to_str().unwrap(), "-lpthread"];
        amd.program = amd.place.compile("stand-ins/kfd/hipload.c", &flags);
        amd
    }

    fn on_it(&self, mut command: Command) -> Command {
        command.env("LD_LIBRARY_PATH", self.place.join("")).env("LD_PRELOAD", &self.kernel);
        command.env("FAKEKFD_SYSFS", &self.sysfs).env("XSCHED_SYSFS", &self.sysfs);
        command.env("FAKEKFD_TRACE", self.place.join("trace"));
        command
    }

    fn run_with(&self, options: &[&str], env: &[(&str, &str)]) -> Process {
        let mut command = self.on_it(self.place.run_command(options, &self.program, &[]));
        command.envs(env.iter().copied());
        let mut program = Process::start(command);
        program.expect("ready");
        program
    }

    fn run(&self, options: &[&str]) -> Process {
        self.run_with(options, &[])
    }

    /// Requests that a process made to the kernel.
    fn requests(&self, pid: u32) -> Vec<Request> {
        let text = std::fs::read_to_string(self.place.join("trace")).unwrap_or_default();
        // The last line may be incomplete.
        let text = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line).expect("JSON");
            let hex = value["in"].as_str().unwrap();
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            Request {
                pid: value["pid"].as_u64().unwrap() as u32,
                number: value["number"].as_u64().unwrap(),
                rc: value["rc"].as_i64().unwrap(),
                bytes: (0..hex.len()).step_by(2).map(byte).collect(),
            }
        };
        text.lines().map(parse).filter(|r| r.pid == pid).collect()
    }

    /// Changes to queues that a process asked for.
    fn updates(&self, pid: u32) -> Vec<(u32, u32, u32)> {
        self.requests(pid).iter().filter(|r| r.number == UPDATE).map(Request::update).collect()
    }

    fn suspend(&self, program: &Process) {
        self.place.ask(&["suspend", "--pid", &program.pid().to_string()]);
    }

    fn resume(&self, program: &Process) {
        self.place.ask(&["resume", "--pid", &program.pid().to_string()]);
    }

    fn level(&self, program: &Process) -> u64 {
        let group = self.place.group(program.pid()).expect("a group");
        group["level"].as_u64().expect("a level")
    }

    /// Asserts that every change names its queue in the form in which it was created; the kernel would have refused others.
    fn assert_all_well_formed(&self, pid: u32) {
        let requests = self.requests(pid);
        for (at, request) in requests.iter().enumerate().filter(|(_, r)| r.number == UPDATE) {
            let made = requests[..at].iter().rev().filter(|r| r.number == CREATE && r.rc == 0);
            let rings: Vec<(u64, u32)> = made.map(|r| (r.u64_at(0), r.u32_at(32))).collect();
            assert!(rings.contains(&(request.u64_at(0), request.u32_at(12))), "{request:?}");
        }
    }
}

/// Numbers of packets that were put in, and of those that were taken.
fn count(program: &mut Process) -> (u64, u64) {
    program.tell("count");
    loop {
        if let Some(rest) = program.line().strip_prefix("given ") {
            let (given, taken) = rest.split_once(" taken ").unwrap();
            return (given.parse().unwrap(), taken.parse().unwrap());
        }
    }
}

/// Waits until the device takes no more packets of a program, though it had time for a good many.
fn await_stop(amd: &Amd, program: &mut Process, rival: &mut Process) -> u64 {
    amd.place.await_state(program.pid(), "suspended");
    let taken = count(program).1;
    for _ in 0..3 {
        rival.progress_after(now_ns());
    }
    let after = count(program).1;
    assert_eq!(after, taken, "nothing of it runs");
    after
}

fn end(program: Process) -> Vec<String> {
    let mut program = program;
    program.tell("end");
    program.finish()
}

/// Ends a program with AMD's own software, which complains that the pretended device does not have a marketing name.
fn end_real(mut program: Process) -> Vec<String> {
    program.tell("end");
    let (code, lines, errors) = program.wait();
    let errors: Vec<&str> = errors.lines().filter(|l| !l.starts_with("amdgpu_device_initialize")).collect();
    assert_eq!((code, errors.len()), (0, 0), "{errors:?} {lines:?}");
    lines
}

#[test]
fn a_program_without_hip_is_suspended_and_resumed_through_the_kernel() {
    let amd = Amd::new();
    // Both programs may run at once, but for the one that is suspended by hand.
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = (amd.run(&[]), amd.run(&[]));
    let pid = program.pid();
    program.progress_after(0);
    rival.progress_after(0);
    assert_eq!(amd.level(&program), 3);
    for _ in 0..5 {
        amd.suspend(&program);
        await_stop(&amd, &mut program, &mut rival);
        assert_eq!(amd.updates(pid).last().map(|u| u.1), Some(0), "by percentage 0");
        amd.resume(&program);
        program.progress_after(now_ns());
    }
    end(program);
    end(rival);
    amd.assert_all_well_formed(pid);
    let requests = amd.requests(pid);
    assert!(requests.iter().all(|r| r.rc == 0), "the kernel refused nothing: {requests:?}");
    assert_eq!(requests.last().map(|r| r.number), Some(DESTROY));
    // 0 and 100 alternate; nothing is sent twice.
    let percentages: Vec<u32> = amd.updates(pid).iter().map(|u| u.1).collect();
    assert!(percentages.windows(2).all(|w| w[0] != w[1]), "{percentages:?}");
    assert!(percentages.iter().all(|p| *p == 0 || *p == 100), "{percentages:?}");
}

#[test]
fn a_more_urgent_program_takes_the_device_and_gives_it_back() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "hpf"]);
    let (mut low, mut high) = (amd.run(&["--priority", "low"]), amd.run(&["--priority", "high"]));
    let taken = await_held(&amd, &mut low, &mut high);
    // The more urgent program has nothing to do: the other one goes on.
    high.tell("pause");
    low.progress_after(now_ns());
    assert!(count(&mut low).1 > taken);
    high.tell("go");
    await_held(&amd, &mut low, &mut high);
    end(high);
    low.progress_after(now_ns());
    end(low);
}

/// Waits until the less urgent program makes no progress.
fn await_held(amd: &Amd, low: &mut Process, high: &mut Process) -> u64 {
    let mut before = count(low).1;
    until("the less urgent one is held", || {
        for _ in 0..4 {
            high.progress_after(now_ns());
        }
        let now = count(low).1;
        std::mem::replace(&mut before, now) == now
    });
    assert_eq!(amd.updates(low.pid()).last().map(|u| u.1), Some(0));
    before
}

/// Starts a program and a rival, and suspends the program.
fn suspended(amd: &Amd, options: &[&str]) -> (Process, Process) {
    let (mut program, mut rival) = (amd.run(options), amd.run(&[]));
    program.progress_after(0);
    rival.progress_after(0);
    amd.suspend(&program);
    await_stop(amd, &mut program, &mut rival);
    (program, rival)
}

fn do_and_await(program: &mut Process, what: &str, answer: &str) {
    program.tell(what);
    program.expect(answer);
}

#[test]
fn what_the_runtime_asks_for_meanwhile_neither_resumes_nor_is_lost() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = suspended(&amd, &[]);
    let pid = program.pid();
    let before = amd.updates(pid).len();
    // Percentage 100 is sent with every change of priority.
    do_and_await(&mut program, "priority low", "priority");
    do_and_await(&mut program, "suspend", "done");
    do_and_await(&mut program, "resume", "done");
    await_stop(&amd, &mut program, &mut rival);
    assert_eq!(amd.updates(pid)[before..], [(0, 0, 0); 3]);
    amd.resume(&program);
    program.progress_after(now_ns());
    assert!(amd.updates(pid)[before..].contains(&(0, 100, 0)), "with the priority it asked for");
    // In the other direction: a queue that the runtime suspended is resumed by nothing else.
    do_and_await(&mut program, "suspend", "done");
    let told = amd.updates(pid).len();
    amd.suspend(&program);
    amd.place.await_state(pid, "suspended");
    amd.resume(&program);
    for _ in 0..3 {
        rival.progress_after(now_ns());
    }
    let taken = count(&mut program).1;
    rival.progress_after(now_ns());
    assert_eq!(count(&mut program).1, taken, "its runtime has it suspended");
    assert_eq!(amd.updates(pid).len(), told, "there was nothing to tell the kernel");
    do_and_await(&mut program, "resume", "done");
    program.progress_after(now_ns());
    end(program);
    end(rival);
    amd.assert_all_well_formed(pid);
}

#[test]
fn queues_come_and_go_and_their_numbers_are_used_again() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = (amd.run(&[]), amd.run(&[]));
    let pid = program.pid();
    program.progress_after(0);
    for _ in 0..4 {
        do_and_await(&mut program, "another", "another");
    }
    rival.progress_after(now_ns());
    amd.suspend(&program);
    await_stop(&amd, &mut program, &mut rival);
    let requests = amd.requests(pid);
    let made = requests.iter().filter(|r| r.number == CREATE).count();
    let gone: Vec<u32> = requests.iter().filter(|r| r.number == DESTROY).map(|r| r.u32_at(0)).collect();
    assert_eq!((made, gone), (5, vec![1; 4]), "the kernel gives the lowest free number");
    assert_eq!(amd.updates(pid).last(), Some(&(0, 0, 7)), "only the one that is left");
    amd.resume(&program);
    program.progress_after(now_ns());
    end(program);
    end(rival);
    amd.assert_all_well_formed(pid);
}

#[test]
fn a_queue_made_while_its_program_is_suspended_waits_too() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = suspended(&amd, &[]);
    let pid = program.pid();
    program.tell("another");
    until("it is made and suspended", || amd.updates(pid).last() == Some(&(1, 0, 7)));
    rival.progress_after(now_ns());
    assert!(!amd.requests(pid).iter().any(|r| r.number == DESTROY), "its packets wait");
    amd.resume(&program);
    program.expect("another");
    end(program);
    end(rival);
    assert!(amd.requests(pid).iter().all(|r| r.rc == 0));
}

#[test]
fn hardware_priorities_follow_the_class() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&[]);
    let asked = |program: &Process| amd.requests(program.pid()).iter().find(|r| r.number == CREATE).unwrap().u32_at(48);
    for (class, priority) in [("low", 0), ("normal", 7), ("high", 11), ("realtime", 11)] {
        let program = amd.run(&["--priority", class]);
        assert_eq!(asked(&program), priority, "{class}");
        end(program);
    }
    let mut program = amd.run(&["--priority", "low"]);
    program.progress_after(0);
    let pid = program.pid();
    do_and_await(&mut program, "priority high", "priority");
    assert_eq!(amd.updates(pid), [(0, 100, 3)], "no queue rises above its program's class");
    amd.place.ask(&["hint", "--pid", &pid.to_string(), "--priority", "high"]);
    until("the hardware knows", || amd.updates(pid).last() == Some(&(0, 100, 11)));
    end(program);
    // A program with a lower level of its own keeps the runtime's request.
    let mut program = amd.run(&["--priority", "low", "--level", "1"]);
    assert_eq!(asked(&program), 7);
    assert!(amd.place.group(program.pid()).is_none());
    program.tell("end");
    let (code, _, errors) = program.wait();
    assert_eq!(code, 0);
    assert!(errors.ends_with("level 3 is all there is, and the program insists on level 1\n"), "{errors}");
}

#[test]
fn a_suspension_that_the_kernel_refuses_leaves_the_program_running() {
    for skip in [0, 2] {
        let amd = Amd::new();
        let _daemon = amd.place.daemon(&["--policy", "chaos"]);
        // ETIME means that the device did not answer in time, but the properties were changed.
        let mut program = amd.run_with(&[], &[("FAKEKFD_FAIL", &format!("7:62:{skip}:1"))]);
        let mut rival = amd.run(&[]);
        let pid = program.pid();
        program.progress_after(0);
        let mut suspensions = 0;
        until("the kernel has refused once", || {
            amd.suspend(&program);
            amd.resume(&program);
            suspensions += 1;
            rival.progress_after(now_ns());
            amd.requests(pid).iter().any(|r| r.rc == -62)
        });
        program.progress_after(now_ns());
        until("the daemon knows", || amd.level(&program) < 3);
        let told = amd.updates(pid);
        assert_eq!(told.last(), Some(&(0, 100, 7)), "{told:?}");
        // The call is not tried again.
        amd.suspend(&program);
        program.progress_after(now_ns());
        assert_eq!(amd.updates(pid), told);
        program.tell("end");
        let (code, _, errors) = program.wait();
        assert_eq!(code, 0);
        let lines: Vec<&str> = errors.lines().collect();
        assert!(
            lines.len() == 1 && lines[0].contains("preemption level 3 is not available: the driver refused"),
            "{lines:?}"
        );
        end(rival);
    }
}

#[test]
fn a_suspension_asked_for_while_the_kernel_refuses_another_is_not_carried_out() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&[]);
    let mut program = amd.run_with(&[], &[("FAKEKFD_FAIL", "7:62:0:1")]);
    let pid = program.pid();
    program.progress_after(0);
    until("it may run", || amd.place.group(pid).is_some());
    // The program asks again before the daemon can learn of the refusal.
    xsched_e2e::signal(pid, rustix::process::Signal::STOP);
    until("all of its threads are stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let mut stats = threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap());
        stats.all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    });
    amd.suspend(&program);
    amd.resume(&program);
    amd.suspend(&program);
    xsched_e2e::signal(pid, rustix::process::Signal::CONT);
    until("the daemon knows", || amd.level(&program) < 3);
    amd.resume(&program);
    program.progress_after(now_ns());
    assert_eq!(amd.updates(pid), [(0, 0, 7), (0, 100, 7)], "tried once, and taken back");
    program.tell("end");
    let (code, _, errors) = program.wait();
    assert_eq!((code, errors.lines().count()), (0, 1), "{errors}");
}

#[test]
fn a_question_to_the_runtime_that_fails_leaves_the_program_running_and_is_told() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&[]);
    // The kind of device, its domain and its place on the bus are asked for when a queue is made.
    let told: Vec<bool> = (1..=4)
        .map(|n: u32| {
            let mut program = amd.run_with(&[], &[("FAKEHSA_FAIL", &n.to_string())]);
            program.progress_after(0);
            let scheduled = amd.place.group(program.pid()).is_some();
            program.tell("end");
            let (code, _, errors) = program.wait();
            assert_eq!(code, 0);
            let told = errors.matches("HSA queues run unscheduled: AMD's runtime does not tell").count();
            assert_eq!((errors.lines().count(), told), if scheduled { (0, 0) } else { (1, 1) }, "{errors}");
            !scheduled
        })
        .collect();
    // Without an answer about the domain, the library takes the first one, and the program is scheduled. The fourth question is never
    // asked.
    assert_eq!(told, [true, false, true, false]);
}

/// Checks a driver that cannot do it: the reason is printed once, and the program runs as without the library.
fn unscheduled(amd: &Amd, env: &[(&str, &str)], why: &str) {
    let _daemon = amd.place.daemon(&[]);
    let mut program = amd.run_with(&["--priority", "low"], env);
    let pid = program.pid();
    program.progress_after(0);
    assert!(amd.place.group(pid).is_none(), "there is nothing that could be suspended");
    program.tell("end");
    let (code, _, errors) = program.wait();
    assert_eq!(code, 0);
    assert!(errors.contains(why), "{errors}");
    assert_eq!(errors.matches("run unscheduled").count(), 1, "{errors}");
    assert!(amd.updates(pid).is_empty());
}

#[test]
fn an_unknown_driver_is_left_alone() {
    unscheduled(&Amd::new(), &[("FAKEKFD_VERSION", "2.0")], "the driver speaks version 2 of its interface");
}

#[test]
fn without_room_for_the_state_of_work_nothing_is_interrupted() {
    unscheduled(&Amd::new(), &[("FAKEHSA_NO_SAVE", "1")], "does not save the state of interrupted work");
}

#[test]
fn where_the_driver_was_told_not_to_save_state_nothing_is_interrupted() {
    let mut amd = Amd::new();
    let copy = amd.place.join("sysfs");
    let copied = Command::new("cp").arg("-r").arg(sysfs()).arg(&copy).status().unwrap();
    assert!(copied.success());
    std::fs::write(copy.join("module/amdgpu/parameters/cwsr_enable"), "0\n").unwrap();
    amd.sysfs = copy;
    unscheduled(&amd, &[], "does not save the state of interrupted work");
}

#[test]
fn the_driver_of_an_older_kernel_will_do() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let mut program = amd.run_with(&[], &[("FAKEKFD_VERSION", "1.3")]);
    let mut rival = amd.run(&[]);
    program.progress_after(0);
    rival.progress_after(0);
    amd.suspend(&program);
    await_stop(&amd, &mut program, &mut rival);
    amd.resume(&program);
    program.progress_after(now_ns());
    end(program);
    end(rival);
}

#[test]
fn a_forked_child_touches_no_queue_of_its_parent() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = suspended(&amd, &[]);
    let pid = program.pid();
    let told = amd.updates(pid);
    // The kernel refuses every use of the descriptor that the child inherited (EBADF), as without the library.
    do_and_await(&mut program, "fork", "child 9");
    await_stop(&amd, &mut program, &mut rival);
    assert_eq!(amd.updates(pid), told);
    let text = std::fs::read_to_string(amd.place.join("trace")).unwrap();
    let others: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let child: Vec<&Value> = others.iter().filter(|v| v["pid"] != pid && v["pid"] != rival.pid()).collect();
    assert_eq!(child.len(), 1, "only what the child asked for itself: {child:?}");
    assert_eq!(child[0]["rc"], -9);
    amd.resume(&program);
    program.progress_after(now_ns());
    end(program);
    end(rival);
}

#[test]
fn a_suspended_program_that_ends_is_let_go_first() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, rival) = suspended(&amd, &[]);
    let pid = program.pid();
    do_and_await(&mut program, "leave", "left");
    let (code, _, errors) = program.wait();
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(amd.updates(pid).last(), Some(&(0, 100, 7)), "at its exit, before its runtime waits for its queues");
    end(rival);
}

#[test]
fn a_daemon_that_dies_leaves_nobody_suspended() {
    let amd = Amd::new();
    let daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, rival) = suspended(&amd, &[]);
    xsched_e2e::signal(daemon.pid(), rustix::process::Signal::KILL);
    program.progress_after(now_ns());
    assert_eq!(amd.updates(program.pid()).last(), Some(&(0, 100, 7)));
    for mut program in [program, rival] {
        program.tell("end");
        assert_eq!(program.wait().0, 0);
    }
}

#[test]
fn a_daemon_that_is_stopped_leaves_nobody_suspended() {
    let amd = Amd::new();
    let daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, rival) = suspended(&amd, &[]);
    xsched_e2e::signal(daemon.pid(), rustix::process::Signal::STOP);
    let control = Lateness::begin();
    let (resumed, allowed) = (program.progress_after(now_ns()), control.allows(TIMEOUT / 10));
    xsched_e2e::signal(daemon.pid(), rustix::process::Signal::CONT);
    assert!(resumed < allowed, "{resumed:?}, allowed {allowed:?}");
    for mut program in [program, rival] {
        program.tell("end");
        assert_eq!(program.wait().0, 0);
    }
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = suspended(&amd, &[]);
    let pid = program.pid();
    do_and_await(&mut program, "closeall", "closed");
    // The program cannot get messages any more: it was released, through the runtime's own descriptor.
    program.progress_after(now_ns());
    assert_eq!(amd.updates(pid).last(), Some(&(0, 100, 7)));
    rival.progress_after(now_ns());
    program.tell("end");
    assert_eq!(program.wait().0, 0);
    end(rival);
}

#[test]
fn a_program_with_hip_is_suspended_through_the_kernel_if_it_asks_for_that() {
    let amd = Amd::with_hip();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let (mut program, mut rival) = (amd.run(&["--level", "3"]), amd.run(&[]));
    let pid = program.pid();
    program.progress_after(0);
    rival.progress_after(0);
    let groups = amd.place.program(pid).unwrap()["groups"].as_array().unwrap().clone();
    assert_eq!(groups.len(), 1, "its queues are HIP's: {groups:?}");
    assert_eq!((&groups[0]["platform"], &groups[0]["level"]), (&"hip".into(), &3.into()));
    assert_eq!(groups[0]["device"], "pci:0000:41:00.0");
    for _ in 0..5 {
        amd.suspend(&program);
        await_stop(&amd, &mut program, &mut rival);
        assert_eq!(amd.updates(pid).last(), Some(&(0, 0, 7)));
        amd.resume(&program);
        program.progress_after(now_ns());
    }
    assert_ne!(amd.level(&rival), 3, "nobody gets it who did not ask");
    assert_eq!(amd.updates(rival.pid()), []);
    let mut lines = end(program);
    lines.extend(end(rival));
    amd.place.assert_counts(&lines);
    assert!(amd.requests(pid).iter().all(|r| r.rc == 0));
}

#[test]
fn a_program_with_hip_goes_on_at_a_lower_level_where_the_kernel_refuses() {
    let amd = Amd::with_hip();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let mut program = amd.run_with(&["--level", "3"], &[("FAKEKFD_FAIL", "7:22:0:1")]);
    let mut rival = amd.run(&[]);
    let pid = program.pid();
    program.progress_after(0);
    rival.progress_after(0);
    amd.suspend(&program);
    until("the daemon knows", || amd.level(&program) == 1);
    // The gate in the program closes all the same.
    await_stop(&amd, &mut program, &mut rival);
    assert_eq!(amd.updates(pid), [(0, 0, 7), (0, 100, 7)], "tried once, and taken back");
    amd.resume(&program);
    program.progress_after(now_ns());
    program.tell("end");
    let (code, mut lines, errors) = program.wait();
    assert_eq!(code, 0);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("preemption level 3 is not available: the driver refused"), "{errors}");
    lines.extend(end(rival));
    amd.place.assert_counts(&lines);
}

/// AMD's runtime is real (ROCr 5.2), the kernel below it is not.
#[test]
fn amds_own_runtime_is_followed_and_suspended() {
    let amd = Amd::with_real_runtime();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let start = |options: &[&str]| {
        let mut program = amd.run(options);
        program.progress_after(0);
        program
    };
    let (mut program, mut rival) = (start(&["--priority", "low"]), start(&[]));
    let pid = program.pid();
    let group = amd.place.group(pid).expect("a group");
    assert_eq!((&group["platform"], &group["device"]), (&"hsa".into(), &"pci:0000:41:00.0".into()));
    assert_eq!(group["queues"].as_array().unwrap().len(), 1);
    let made: Vec<Request> = amd.requests(pid).into_iter().filter(|r| r.number == CREATE).collect();
    assert_eq!(made[0].bytes.len(), 88, "this runtime's structure is the shorter one");
    assert!(made.iter().all(|r| r.u32_at(48) == 0), "each with the priority of its class: {made:?}");
    for _ in 0..3 {
        amd.suspend(&program);
        await_stop(&amd, &mut program, &mut rival);
        // SetPriority passes percentage 100.
        do_and_await(&mut program, "priority high", "priority");
        await_stop(&amd, &mut program, &mut rival);
        amd.resume(&program);
        program.progress_after(now_ns());
        do_and_await(&mut program, "priority normal", "priority");
    }
    do_and_await(&mut program, "another", "another");
    for process in [program, rival] {
        end_real(process);
    }
    amd.assert_all_well_formed(pid);
    let queues: Vec<Request> =
        amd.requests(pid).into_iter().filter(|r| [CREATE, DESTROY, UPDATE].contains(&r.number)).collect();
    assert!(queues.iter().all(|r| r.rc == 0), "{queues:?}");
    assert!(queues.iter().any(|r| r.number == UPDATE && r.update().1 == 0));
    assert!(queues.iter().any(|r| r.number == UPDATE && r.update().2 == 3), "high within low");
}

/// All parts above the kernel are AMD's (ROCm 5.2: compiler, HIP, ROCr, thunk). Kernels are taken from the queues, but not run.
#[test]
fn amds_own_hip_is_scheduled_and_suspended() {
    let amd = Amd::with_real_hip();
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let start = |level: &str| {
        let mut program = amd.run(&["--level", level, "--priority", "low"]);
        program.progress_after(0);
        program
    };
    let (mut program, mut rival) = (start("3"), start("1"));
    let pid = program.pid();
    let groups = amd.place.program(pid).unwrap()["groups"].as_array().unwrap().clone();
    assert_eq!(groups.len(), 1, "its queues are HIP's: {groups:?}");
    assert_eq!((&groups[0]["platform"], &groups[0]["level"]), (&"hip".into(), &3.into()));
    for _ in 0..3 {
        amd.suspend(&program);
        await_stop(&amd, &mut program, &mut rival);
        let last = amd.updates(pid);
        assert_eq!(last.last().map(|u| u.1), Some(0), "{last:?}");
        amd.resume(&program);
        program.progress_after(now_ns());
    }
    let mut lines = end_real(program);
    lines.extend(end_real(rival));
    amd.place.assert_counts(&lines);
    amd.assert_all_well_formed(pid);
    let queues: Vec<Request> =
        amd.requests(pid).into_iter().filter(|r| [CREATE, DESTROY, UPDATE].contains(&r.number)).collect();
    assert!(queues.iter().all(|r| r.rc == 0), "{queues:?}");
}

#[test]
fn who_schedules_other_platforms_only_leaves_every_byte_alone() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&[]);
    // Addresses differ from run to run; numbers, sizes and request codes do not.
    let asked = |pid: u32| -> Vec<(u64, usize, Vec<u8>)> {
        let known = |r: Request| (r.number, r.bytes.len(), r.bytes.get(32..56).unwrap_or_default().to_vec());
        amd.requests(pid).into_iter().map(known).collect()
    };
    let mut bare = Process::start(amd.on_it(amd.place.command(&amd.program, &[])));
    bare.expect("ready");
    let bare_pid = bare.pid();
    do_and_await(&mut bare, "priority high", "priority");
    end(bare);
    let mut left = amd.run_with(&["--priority", "low"], &[("XSCHED_PLATFORMS", "cuda,opencl")]);
    let pid = left.pid();
    do_and_await(&mut left, "priority high", "priority");
    left.tell("end");
    assert_eq!(left.wait().0, 0);
    assert_eq!(asked(pid), asked(bare_pid));
    assert_eq!(amd.updates(pid), [(0, 100, 11)]);
    assert!(amd.requests(pid).len() >= 4);
}
