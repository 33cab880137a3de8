//! Programs of one MPS server that yield to an urgent one among them: they run while its queue keeps up, and are held while it is behind.
//! The server is a stand-in for NVIDIA's.

use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Gpu, Process, signal, until};

const URGENT: &[&str] = &["--share", "spatial", "--priority", "high"];
const LOW: &[&str] = &["--share", "spatial", "--priority", "low"];
/// GPU with an MPS server, and a daemon that has a mode for programs of that server.
struct Machine {
    gpu: Gpu,
    daemon: Process,
    _server: Process,
}

impl Machine {
    /// Starts a machine. `yields` is the value of the daemon's `XSCHED_YIELD`; none = it is not set.
    fn new(yields: Option<&str>) -> Machine {
        // Programs of one server slow each other down, as programs do that compete for memory.
        let gpu = Gpu::with(1, &[("SIMDEV_SHARES", "1")]);
        let server = gpu.place.mps_daemon("mps", &[]);
        let variables = yields.map(|yields| ("XSCHED_YIELD", yields.as_ref()));
        let config = gpu.place.join("config.toml");
        std::fs::write(&config, "").unwrap();
        let daemon = gpu.place.daemon_with(&["--config", config.to_str().unwrap()], variables.as_slice());
        Machine { gpu, daemon, _server: server }
    }

    /// Writes another configuration, and makes the daemon read it.
    fn configure(&self, text: &str) {
        std::fs::write(self.gpu.place.join("config.toml"), text).unwrap();
        signal(self.daemon.pid(), Signal::HUP);
    }

    fn start(&self, options: &[&str], program: &str, args: &[&str]) -> Process {
        self.start_with(options, program, args, &[])
    }

    fn start_with(&self, options: &[&str], program: &str, args: &[&str], variables: &[(&str, &str)]) -> Process {
        let mut command = self.gpu.place.run_command(options, &self.gpu.program(program), args);
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.gpu.place.join("mps"));
        command.env("XSCHED_STATS", self.stats_of(program)).envs(variables.iter().copied());
        self.gpu.with_driver(command)
    }

    fn stats_of(&self, program: &str) -> std::path::PathBuf {
        self.gpu.place.join(&format!("{program}-stats"))
    }

    /// Starts a best-effort program that always has kernels to launch, and an urgent one that obeys the test.
    fn low_and_urgent(&self) -> (Process, Process) {
        let mut low = self.start(LOW, "steady", &["200", "8"]);
        low.expect("ready");
        let mut urgent = self.start(URGENT, "pooled", &[]);
        urgent.expect("context 0");
        (low, urgent)
    }

    /// Ends the best-effort program, and returns its line of statistics.
    fn end(&self, mut low: Process) -> Value {
        low.tell("end");
        until("it has ended", || low.has_ended().is_some());
        let stats = std::fs::read_to_string(self.stats_of("steady")).unwrap();
        serde_json::from_str(stats.lines().last().unwrap()).unwrap()
    }
}

/// Number of kernels that a program has launched, by its own count.
fn given(program: &mut Process) -> u64 {
    program.count().0
}

/// Makes a request of the urgent program: a kernel of `us` µs. Returns the time that the device took, in µs.
fn ask(urgent: &mut Process, us: u64) -> u64 {
    urgent.tell(&format!("give {us}"));
    urgent.expect("given 0");
    urgent.tell("take");
    let (begin, end) = urgent.find("ran BEGIN END", |line| {
        let (begin, end) = line.strip_prefix("ran ")?.split_once(' ')?;
        Some((begin.parse::<u64>().ok()?, end.parse::<u64>().ok()?))
    });
    (end - begin) / 1000
}

/// Makes requests until a condition holds, with the best-effort program's count before and after each.
fn ask_until(low: &mut Process, urgent: &mut Process, what: &str, mut holds: impl FnMut(u64) -> bool) -> u64 {
    let before = given(low);
    let mut after = before;
    until(what, || {
        (0..20).for_each(|_| _ = ask(urgent, 20));
        after = given(low);
        holds(after - before)
    });
    after - before
}

#[test]
fn a_program_that_yields_goes_on_while_the_urgent_one_keeps_up() {
    let machine = Machine::new(None);
    let (mut low, mut urgent) = machine.low_and_urgent();
    ask_until(&mut low, &mut urgent, "the low one goes on beside the urgent one", |more| more >= 400);
    drop(urgent);
    let stats = machine.end(low);
    let yields = &stats["yields"];
    assert!(yields["passed"].as_u64().unwrap() > 0, "{stats}");
}

#[test]
fn long_kernels_of_the_urgent_one_are_slowed_down_by_company_that_does_not_yield() {
    // Short enough that the daemon does not share by time because of these kernels.
    const US: u64 = 1_500;
    for (yields, slowed) in [(Some("0"), true), (None, false)] {
        let machine = Machine::new(yields);
        let (mut low, mut urgent) = machine.low_and_urgent();
        let before = given(&mut low);
        until("the low one is at work", || given(&mut low) > before + 100);
        // The device's own times are exact, whatever the machine does. Contention from the beginning to the end of a request doubles its
        // time, where the low program's host keeps up.
        if slowed {
            until("a request is slowed down", || ask(&mut urgent, US) > US * 14 / 10);
        } else {
            let fastest = (0..10).map(|_| ask(&mut urgent, US)).min();
            assert!(fastest < Some(US * 12 / 10), "{fastest:?} µs");
        }
        drop(urgent);
        machine.end(low);
    }
}

#[test]
fn it_is_held_while_the_urgent_one_is_behind() {
    let machine = Machine::new(None);
    let mut low = machine.start(LOW, "steady", &["200", "8"]);
    low.expect("ready");
    // The program always has a batch ahead of the device.
    let mut urgent = machine.start(URGENT, "steady", &["5000", "8"]);
    urgent.expect("ready");
    let batches = |program: &mut Process, n: u32| (0..n).for_each(|_| _ = program.line());
    batches(&mut urgent, 3);
    until("the low one is held", || {
        let before = given(&mut low);
        batches(&mut urgent, 3);
        given(&mut low) == before
    });
    drop(urgent);
    let before = given(&mut low);
    until("it goes on", || given(&mut low) > before + 100);
    low.tell("end");
    let (code, lines, _) = low.wait();
    assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok every kernel has run once")));
}

#[test]
fn a_reload_has_gates_stand_open_or_yield_for_programs_that_run() {
    let machine = Machine::new(None);
    let (mut low, mut urgent) = machine.low_and_urgent();
    let yielding =
        |machine: &Machine| machine.gpu.place.program(low_pid(machine)).unwrap()["groups"][0]["yielding"].clone();
    let closed = |machine: &Machine| {
        machine.gpu.place.program(low_pid(machine)).unwrap()["groups"][0]["suspensions"].as_u64().unwrap()
    };
    ask_until(&mut low, &mut urgent, "its gate yields", |_| yielding(&machine)["passed"].as_u64() > Some(100));
    let rules = || {
        let ps = machine.gpu.place.ps().unwrap();
        let urgent = ps["programs"].as_array().unwrap().iter().find(|program| program["priority"] == 128).unwrap();
        urgent["groups"][0]["yielding"]["rule"].as_str().unwrap().to_owned()
    };
    assert!(["yields", "probe", "closes"].contains(&rules().as_str()), "{}", rules());
    machine.configure("[yield]\nenabled = false\n");
    until("nothing yields any more", || yielding(&machine).is_null());
    let before = closed(&machine);
    ask_until(&mut low, &mut urgent, "they run side by side", |more| more >= 200);
    assert_eq!(closed(&machine), before, "a server that is not xsched's: its gate stands open");
    machine.configure("[yield]\nenabled = true\n");
    ask_until(&mut low, &mut urgent, "it yields again", |_| yielding(&machine)["opened"].as_u64() > Some(0));
    drop(urgent);
    machine.end(low);
}

#[test]
fn a_program_whose_environment_forbids_it_neither_yields_nor_is_yielded_to() {
    let machine = Machine::new(None);
    let mut low = machine.start(LOW, "steady", &["200", "8"]);
    low.expect("ready");
    let mut urgent = machine.start_with(URGENT, "pooled", &[], &[("XSCHED_YIELD", "0")]);
    urgent.expect("context 0");
    ask_until(&mut low, &mut urgent, "its gate closes", |_| {
        machine.gpu.place.program(low_pid(&machine)).unwrap()["groups"][0]["suspensions"].as_u64() > Some(3)
    });
    drop(urgent);
    assert_eq!(machine.end(low)["yields"]["passed"], 0);
}

fn low_pid(machine: &Machine) -> u32 {
    let ps = machine.gpu.place.ps().unwrap();
    let low = ps["programs"].as_array().unwrap().iter().find(|program| program["priority"] == -128).unwrap();
    low["pid"].as_u64().unwrap() as u32
}

#[test]
fn another_value_is_a_mistake_that_is_told() {
    let gpu = Gpu::new();
    let output = gpu.place.xsched(&["daemon"]).env("XSCHED_YIELD", "maybe").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.trim()), (Some(2), "xsched: XSCHED_YIELD=maybe: use 0 or 1"));
}
