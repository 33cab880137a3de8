//! Level 3 on AMD's compute driver, as far as it goes without a device: `testing/kfd` plays the kernel, judges each
//! request as it would and writes down every byte; `testing/kfd/hsa.c` plays AMD's runtime. The programs, the preload
//! library, the daemon and the command are the real ones. That a kernel preempts is not shown here.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use xsched_e2e::{Place, Process, beside, now_ns, until};

/// Where the source tree keeps what stands for `/sys`.
fn sysfs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/kfd/sysfs")
}

/// A machine with two pretended AMD GPUs.
struct Amd {
    place: Place,
    kernel: PathBuf,
    program: PathBuf,
    sysfs: PathBuf,
}

/// One request that the kernel got.
#[derive(Clone, Debug, PartialEq)]
struct Request {
    pid: u32,
    number: u64,
    /// 0, or a negative error.
    rc: i64,
    /// As its caller passed it.
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

    /// Of an UPDATE_QUEUE: queue, percentage, priority.
    fn update(&self) -> (u32, u32, u32) {
        assert_eq!((self.number, self.bytes.len()), (UPDATE, 24));
        (self.u32_at(8), self.u32_at(16), self.u32_at(20))
    }
}

impl Amd {
    fn new() -> Amd {
        let place = Place::new();
        let headers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/kfd/include");
        let headers = format!("-I{}", headers.to_str().unwrap());
        let more = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/kfd/more.c");
        let kernel = place
            .compile("kfd/fakekfd.c", &[&headers, more.to_str().unwrap(), "-shared", "-fPIC", "-ldl", "-lpthread"]);
        let runtime = place.compile("kfd/hsa.c", &[&headers, "-shared", "-fPIC", "-Wl,-soname,libhsa-runtime64.so.1"]);
        std::fs::rename(&runtime, place.join("libhsa-runtime64.so.1")).unwrap();
        let library = place.join("libhsa-runtime64.so.1");
        let program = place.compile("kfd/load.c", &[library.to_str().unwrap(), "-lpthread"]);
        Amd { place, kernel, program, sysfs: sysfs() }
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

    /// What the kernel was asked for by a process.
    fn requests(&self, pid: u32) -> Vec<Request> {
        let text = std::fs::read_to_string(self.place.join("trace")).unwrap_or_default();
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

    /// The changes to queues that a process asked for.
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

    /// Every change ever asked of the kernel names its queue as it was made, or the kernel would have refused.
    fn assert_all_well_formed(&self, pid: u32) {
        let requests = self.requests(pid);
        for (at, request) in requests.iter().enumerate().filter(|(_, r)| r.number == UPDATE) {
            let made = requests[..at].iter().rev().filter(|r| r.number == CREATE && r.rc == 0);
            let rings: Vec<(u64, u32)> = made.map(|r| (r.u64_at(0), r.u32_at(32))).collect();
            assert!(rings.contains(&(request.u64_at(0), request.u32_at(12))), "{request:?}");
        }
    }
}

/// Packets put in, and of them taken.
fn count(program: &mut Process) -> (u64, u64) {
    program.tell("count");
    loop {
        if let Some(rest) = program.line().strip_prefix("given ") {
            let (given, taken) = rest.split_once(" taken ").unwrap();
            return (given.parse().unwrap(), taken.parse().unwrap());
        }
    }
}

/// Waits until the device takes nothing of a program any more; it had time for a good many packets.
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

#[test]
fn a_program_without_hip_is_suspended_and_resumed_through_the_kernel() {
    let amd = Amd::new();
    // Both may run at once, but for the one that is suspended by hand.
    let _daemon = amd.place.daemon(&["--policy", "chaos"]);
    let _ = beside("libxsched.so");
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
    // 0 and 100 take turns, nothing is said twice.
    let percentages: Vec<u32> = amd.updates(pid).iter().map(|u| u.1).collect();
    assert!(percentages.windows(2).all(|w| w[0] != w[1]), "{percentages:?}");
    assert!(percentages.iter().all(|p| *p == 0 || *p == 100), "{percentages:?}");
    assert!(until_resumed(&percentages), "{percentages:?}");
}

fn until_resumed(percentages: &[u32]) -> bool {
    percentages.last().is_none_or(|p| *p == 100)
}

#[test]
fn a_more_urgent_program_takes_the_device_and_gives_it_back() {
    let amd = Amd::new();
    let _daemon = amd.place.daemon(&["--policy", "hpf"]);
    let (mut low, mut high) = (amd.run(&["--priority", "low"]), amd.run(&["--priority", "high"]));
    let taken = await_held(&amd, &mut low, &mut high);
    // The more urgent one has nothing to do: the other goes on.
    high.tell("pause");
    low.progress_after(now_ns());
    assert!(count(&mut low).1 > taken);
    high.tell("go");
    await_held(&amd, &mut low, &mut high);
    end(high);
    low.progress_after(now_ns());
    end(low);
}

/// Waits until the less urgent program stands still.
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
