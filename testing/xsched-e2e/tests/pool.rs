//! Programs in a pool: a private MPS daemon of xsched's, with stand-ins for NVIDIA's programs, so that a device really does the work of the
//! pool.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;
use xsched_e2e::{Gpu, Process, now_ns, one_of, signal, until};
use xsched_proto::class::SHORT_SLICE_US;

const ILLEGAL_ADDRESS: i32 = 700;
const POOL: &[&str] = &["--share", "pool"];
const LOW: &[&str] = &["--share", "pool", "--priority", "low"];
const URGENT: &[&str] = &["--priority", "high"];

/// Machine with a GPU and MPS, and a daemon that can start MPS.
struct Machine {
    gpu: Gpu,
    daemon: Option<Process>,
}

impl Machine {
    fn new() -> Machine {
        Machine::with_devices(1)
    }

    fn with_devices(count: u32) -> Machine {
        let mut machine = Machine { gpu: Gpu::with_devices(count), daemon: None };
        machine.start_daemon(&[]);
        // The first program of a user prints a line about the meaning of a pool.
        let (enabled, errors) = machine.mps(LOW, &[]);
        assert_eq!(enabled, "1", "{errors}");
        assert!(errors.contains("a GPU fault of one program ends all best-effort programs"), "{errors}");
        machine
    }

    fn start_daemon(&mut self, variables: &[(&str, &str)]) {
        self.start_daemon_with(&[], variables);
    }

    fn start_daemon_with(&mut self, args: &[&str], variables: &[(&str, &str)]) {
        // Calls of the server to its resource manager are answered as those of programs are.
        let manager = self.gpu.manager().to_str().unwrap().to_owned();
        let variables = [&[("LD_PRELOAD", manager.as_str())], variables].concat(); // the last one counts
        self.daemon = Some(self.gpu.place.daemon_with_mps(args, &variables));
    }

    /// Makes a machine whose daemon has a configuration.
    fn configured(text: &str) -> Machine {
        let mut machine = Machine { gpu: Gpu::with_devices(1), daemon: None };
        let file = machine.configuration(text);
        machine.start_daemon_with(&["--config", file.to_str().unwrap()], &[]);
        machine
    }

    /// Writes the configuration file.
    fn configuration(&self, text: &str) -> PathBuf {
        let file = self.gpu.place.join("config.toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Way in which a program shares the GPU, its pool, and the reason.
    fn place_of(&self, pid: u32) -> (String, String, String) {
        let program = self.gpu.place.program(pid).unwrap();
        let text = |field: &str| program[field].as_str().unwrap_or("none").to_owned();
        (text("share"), text("pool"), text("pool_why"))
    }

    fn assert_place(&self, program: &Process, pool: &str, why: &str) {
        let share = if pool == "none" { "time" } else { "pool" };
        let place = self.place_of(program.pid());
        assert_eq!((place.0.as_str(), place.1.as_str(), place.2.as_str()), (share, pool, why));
    }

    /// Folders of private MPS daemons.
    fn pools(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.gpu.place.join("x.sock.mps"));
        all.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }

    fn ask(&self, line: &str) -> String {
        let pools = self.pools();
        let [only] = &pools[..] else { panic!("one pool: {pools:?}") };
        self.gpu.place.mps_says(only.join("pipe").to_str().unwrap(), line).unwrap()
    }

    fn server(&self) -> u32 {
        self.ask("get_server_list").parse().unwrap()
    }

    fn control(&self) -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
    }

    fn clients(&self) -> Vec<u32> {
        let list = self.ask(&format!("get_client_list {}", self.server()));
        list.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn share(&self, pid: u32) -> String {
        self.gpu.place.program(pid).unwrap()["share"].as_str().unwrap().to_owned()
    }

    /// Starts a program that runs kernels all the time.
    fn steady(&self, options: &[&str]) -> Process {
        let mut program = self.gpu.run(options, &self.gpu.program("steady"), &["200", "8"]);
        program.expect("ready");
        program
    }

    /// Starts a program that obeys the test, once it has a context.
    fn told(&self, options: &[&str]) -> Process {
        let mut program = self.gpu.run(options, &self.gpu.program("pooled"), &[]);
        program.expect("context 0");
        program
    }

    /// Starts a program that obeys the test where `xsched run` finds NVIDIA's driver: it may be in a pool without asking for one.
    fn told_by_itself(&self, options: &[&str]) -> Process {
        let mut command = self.gpu.place.run_command(options, &self.gpu.program("pooled"), &[]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.gpu.place.join("none"));
        let mut program = self.gpu.with_driver(command);
        program.expect("context 0");
        program
    }

    /// Runs a program, and returns 1 if MPS is enabled in it, else 0, and its output on stderr.
    fn mps(&self, options: &[&str], variables: &[(&str, &str)]) -> (String, String) {
        self.mps_of("pooled", options, variables)
    }

    fn mps_of(&self, program: &str, options: &[&str], variables: &[(&str, &str)]) -> (String, String) {
        let mut command = self.gpu.place.run_command(options, &self.gpu.program(program), &[]);
        // The environment as `xsched run` finds it on a machine with NVIDIA's driver.
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.gpu.place.join("none")).envs(variables.iter().copied());
        let mut program = self.gpu.with_driver(command);
        let enabled = program.find("mps", |line| line.strip_prefix("mps ").map(str::to_owned));
        program.expect("context 0");
        program.tell("sync");
        program.expect("sync 0");
        let errors = program.errors();
        (enabled, errors)
    }
}

#[test]
fn best_effort_programs_are_clients_of_one_server_and_all_of_their_launches_are_scheduled() {
    let machine = Machine::new();
    let (mut one, mut other) = (machine.steady(POOL), machine.steady(LOW));
    one.progress_after(0);
    let mut pids = vec![one.pid(), other.pid()];
    pids.sort_unstable();
    let mut clients = machine.clients();
    clients.sort_unstable();
    assert_eq!(clients, pids);
    let mut urgent = machine.steady(URGENT);
    urgent.progress_after(now_ns());
    let shares = [&one, &other, &urgent].map(|program| machine.share(program.pid()));
    assert_eq!(shares, ["pool", "pool", "time"]);
    assert_eq!(machine.clients().len(), 2);
    drop(urgent);
    one.progress_after(now_ns());
    machine.gpu.end(one);
    other.progress_after(now_ns());
    machine.gpu.end(other);
    until("the pool has ended with its last program", || machine.pools().is_empty());
}

#[test]
fn class_order_holds_inside_a_pool() {
    let machine = Machine::new();
    let (mut normal, low) = (machine.steady(POOL), machine.steady(LOW));
    normal.progress_after(now_ns());
    machine.gpu.place.await_state(low.pid(), "ready");
    machine.gpu.place.assert_ahead(normal.pid(), low.pid(), 200);
    machine.gpu.end(normal);
    machine.gpu.end(low);
}

/// The server reports its slice; a slice that it cannot have makes a pool impossible.
#[test]
fn where_the_slice_does_not_hold_there_is_no_pool() {
    let mut machine = Machine::new();
    let keeps = machine.gpu.place.compile("programs/cuda/fakerm.c", &["-shared", "-fPIC", "-DKEEPS_SLICES"]);
    machine.daemon = None;
    until("the daemon has ended", || machine.gpu.place.ps().is_none());
    machine.start_daemon(&[("LD_PRELOAD", keeps.to_str().unwrap())]);
    let why = format!("time sharing: no pool: the time slice of {SHORT_SLICE_US} µs does not hold: it is ");
    let (enabled, errors) = machine.mps(LOW, &[]);
    assert_eq!(enabled, "0");
    assert!(errors.contains(&why), "{errors}");
    let (enabled, errors) = machine.mps(LOW, &[]);
    assert_eq!((enabled.as_str(), errors.as_str()), ("0", ""), "said once");
}

#[test]
fn a_gpu_fault_ends_the_pool_and_nothing_outside_and_the_next_program_has_another() {
    let machine = Machine::new();
    let mut innocent = machine.told(POOL);
    let mut urgent = machine.told(URGENT);
    let mut runs = || {
        urgent.tell("give 10");
        urgent.expect("given 0");
        urgent.tell("take");
        urgent.find("ran", |line| line.strip_prefix("ran ").map(drop));
    };
    let mut culprits = Vec::new();
    for round in 1..=2 {
        let mut culprit = machine.gpu.run(LOW, &machine.gpu.program("pooled"), &[]);
        culprit.expect("mps 1");
        culprit.expect("context 0");
        let pools = machine.pools();
        runs();
        culprit.tell("crash");
        culprit.expect(&format!("crash {ILLEGAL_ADDRESS}"));
        innocent.tell("sync");
        innocent.expect(&format!("sync {ILLEGAL_ADDRESS}"));
        runs();
        // A program that comes before the server has logged the fault is refused there.
        let told = |pool: &PathBuf| std::fs::read_to_string(pool.join("log/control.out"));
        let noted = |pool: &PathBuf| told(pool).is_ok_and(|log| log.contains("fatal GPU error"));
        until("the server has written of it", || pools.iter().filter(|pool| pool.exists()).all(noted));
        // The next program comes while the old pool still has clients.
        innocent = machine.told(POOL);
        assert_eq!(machine.share(innocent.pid()), "pool");
        assert!(machine.pools().iter().any(|pool| !pools.contains(pool)), "round {round}");
        culprits.push(culprit);
    }
    // A program that broke two pools is put into none automatically.
    let (enabled, errors) = machine.mps(&["--priority", "low"], &[]);
    assert_eq!(enabled, "0", "{errors} {}", machine.daemon.as_ref().unwrap().errors());
    assert!(errors.contains("GPU faults of this program ended 2 pools"), "{errors}");
}

/// The server has to wait for commands that the device executes of a program that is gone, and an urgent program leaves a pool little of
/// the device. So commands launched ahead must not be executed.
#[test]
fn who_ends_behind_a_closed_gate_takes_nobody_along() {
    // The server waits up to 150 ms for a lost client's commands; the test waits longer.
    const SERVER_WAITS_NS: u64 = 400_000_000;
    /// Time after which gates on the device hold no commands any more.
    const BYPASSED_NS: u64 = 1_200_000_000;
    let machine = Machine::new();
    let mut stays = machine.steady(LOW);
    for (how, status, held_ns) in [("is killed", -9, 0), ("exits", 0, 0), ("is killed late", -9, BYPASSED_NS)] {
        // 64 ms of kernels are launched at a time. While the server waits, the pool executes about 8 ms of them beside an urgent program.
        let mut held = machine.gpu.run(LOW, &machine.gpu.program("steady"), &["1000", "32"]);
        held.expect("ready");
        stays.progress_after(0);
        // The first two batches are launched before the kernels are measured, with one gate for four kernels.
        for _ in 0..4 {
            held.progress_after(now_ns());
        }
        let mut urgent = machine.steady(URGENT);
        machine.gpu.place.await_state(held.pid(), "ready");
        urgent.progress_after(now_ns() + held_ns);
        match how {
            "exits" => held.tell("exit"),
            _ => signal(held.pid(), Signal::KILL),
        }
        assert_eq!(held.wait().0, status, "{how}");
        println!("it {how}");
        urgent.progress_after(now_ns() + SERVER_WAITS_NS);
        machine.gpu.end(urgent);
        stays.progress_after(now_ns());
    }
    machine.gpu.end(stays);
}

/// Commands that a program without rivals has launched ahead are held by no gate. If it is killed when an urgent one comes, its server ends
/// all clients, and the next program must not be one of these.
#[test]
fn who_comes_after_one_that_was_killed_finds_a_pool_that_works() {
    let machine = Machine::new();
    let mut good = machine.steady(LOW);
    good.progress_after(0);
    let first = machine.pools();
    machine.gpu.end(good);
    let mut killed = machine.gpu.run(LOW, &machine.gpu.program("steady"), &["1000", "256"]);
    killed.expect("ready");
    killed.progress_after(0);
    assert_eq!(machine.pools(), first, "one that ended in good order leaves the pool to the next");
    let mut urgent = machine.steady(URGENT);
    urgent.progress_after(now_ns());
    signal(killed.pid(), Signal::KILL);
    assert_eq!(killed.wait().0, -9);
    let mut next = machine.told(LOW);
    assert_eq!(machine.share(next.pid()), "pool", "{}", machine.daemon.as_ref().unwrap().errors());
    urgent.progress_after(now_ns() + 400_000_000);
    next.tell("sync");
    next.expect("sync 0");
    assert!(machine.pools().iter().any(|pool| !first.contains(pool)), "it is in the same: {first:?}");
    machine.gpu.end(urgent);
}

const ASKED: &str = "asked for by --share pool";
const WAIVED: &str = "no proof is asked for (proven_minutes = 0)";

/// Each server checks its own time slice: no pool exists whose slice is wrong.
#[test]
fn an_urgent_program_that_asks_sits_in_a_pool_of_its_own_with_what_is_proven() {
    let machine = Machine::configured("[pool]\nproven_minutes = 0\n");
    let mut outer = machine.told(LOW);
    machine.assert_place(&outer, "outer", "no urgent program of this user belongs inside");
    let mut urgent = machine.told(&[POOL, URGENT].concat());
    machine.assert_place(&urgent, "inner", ASKED);
    assert!(urgent.errors().contains("in the inner pool, with urgent programs: a GPU fault"), "{}", urgent.errors());
    let mut beside = machine.told(LOW);
    machine.assert_place(&beside, "inner", WAIVED);
    assert_eq!(machine.pools().len(), 2);
    let table = machine.gpu.place.ask(&["ps"]);
    let how = |pid: u32| {
        let row = table.lines().find(|row| row.trim_start().starts_with(&format!("{pid} "))).unwrap();
        ["inner", "pool", "time"].into_iter().find(|how| row.split_whitespace().any(|word| word == *how)).unwrap()
    };
    assert_eq!([outer.pid(), urgent.pid(), beside.pid()].map(how), ["pool", "inner", "inner"], "{table}");
    // A fault in the inner pool ends the programs there.
    let pools = machine.pools();
    beside.tell("crash");
    beside.expect(&format!("crash {ILLEGAL_ADDRESS}"));
    outer.tell("sync");
    outer.expect("sync 0");
    urgent.tell("sync");
    urgent.expect(&format!("sync {ILLEGAL_ADDRESS}"));
    until("the server has written of it", || {
        pools.iter().any(|pool| {
            std::fs::read_to_string(pool.join("log/control.out")).is_ok_and(|log| log.contains("fatal GPU error"))
        })
    });
    let next = machine.told(&[POOL, URGENT].concat());
    machine.assert_place(&next, "inner", ASKED);
    assert!(machine.pools().iter().any(|pool| !pools.contains(pool)), "the next one has another: {pools:?}");
    drop((urgent, beside, next));
    until("no urgent program is inside", || machine.place_of(machine.told(LOW).pid()).1 == "outer");
    outer.tell("sync");
    outer.expect("sync 0");
}

/// Both pools at once: one neighbour in the inner pool, which goes on beside the urgent program, and one outside, which is held during its
/// requests.
#[test]
fn a_neighbour_inside_goes_on_beside_the_urgent_program_and_one_outside_does_not() {
    let machine = Machine::configured("[pool]\nproven_minutes = 0\n");
    let mut urgent = machine.gpu.run(&["--share", "pool", "--priority", "high"], &machine.gpu.program("pooled"), &[]);
    urgent.expect("context 0");
    let (inside, alone) = (machine.steady(LOW), machine.steady(&["--share", "time", "--priority", "low"]));
    machine.assert_place(&urgent, "inner", ASKED);
    machine.assert_place(&inside, "inner", WAIVED);
    let yielding =
        |program: &Process| machine.gpu.place.program(program.pid()).unwrap()["groups"][0]["yielding"].clone();
    until("the neighbour inside has gone on beside requests", || {
        urgent.tell("give 200");
        urgent.expect("given 0");
        urgent.tell("take");
        urgent.find("ran BEGIN END", |line| line.strip_prefix("ran ").map(str::to_owned));
        yielding(&inside)["passed"].as_u64() > Some(20)
    });
    assert!(yielding(&alone).is_null(), "it shares no context");
    assert!(yielding(&urgent)["rule"].is_string() && yielding(&inside)["rule"].is_null());
    drop(urgent);
    machine.gpu.end(inside);
    machine.gpu.end(alone);
}

/// A rule, which `xsched run` does not read, may set the class.
#[test]
fn an_urgent_program_inside_goes_before_its_server_s_other_clients() {
    let rule = "[[rule]]\nexe = \"*/pooled\"\npriority = \"high\"\n";
    let machine = Machine::configured(&format!("[pool]\nproven_minutes = 0\n{rule}"));
    for (options, why, priority) in [(POOL, ASKED, 0), (LOW, WAIVED, 1)] {
        let urgent = machine.told(POOL);
        let mut program = machine.told(options);
        machine.assert_place(&program, "inner", why);
        program.tell("priority");
        program.expect(&format!("priority {priority}"));
        drop(urgent);
    }
}

#[test]
fn what_is_not_proven_is_apart_from_urgent_programs_and_its_fault_does_not_reach_them() {
    let machine = Machine::configured("");
    let mut urgent = machine.steady(&[POOL, URGENT].concat());
    machine.assert_place(&urgent, "inner", ASKED);
    let mut other = machine.told(POOL);
    machine.assert_place(&other, "outer", "not proven yet: 0 of 10 min without a GPU fault");
    assert_eq!(machine.pools().len(), 2);
    other.tell("crash");
    other.expect(&format!("crash {ILLEGAL_ADDRESS}"));
    urgent.progress_after(now_ns());
    drop(other);
    let next = machine.told(POOL);
    assert_eq!(machine.place_of(next.pid()).1, "outer");
    urgent.progress_after(now_ns());
}

/// A program in a pool stays there, and the next daemon knows its pool.
#[test]
fn a_daemon_that_comes_after_one_that_was_killed_knows_both_pools() {
    let mut machine = Machine::configured("");
    let mut urgent = machine.steady(&[POOL, URGENT].concat());
    let mut low = machine.steady(LOW);
    let sides = |machine: &Machine| [&urgent, &low].map(|program| machine.place_of(program.pid()).1);
    assert_eq!(sides(&machine), ["inner", "outer"]);
    let kept = || machine.gpu.place.kept();
    until("it is kept", || ["inner = true", "inner = false"].iter().all(|line| kept().contains(line)));
    for _ in 0..2 {
        signal(machine.daemon.as_ref().unwrap().pid(), Signal::KILL);
        machine.daemon = None;
        let config = machine.gpu.place.join("config.toml");
        machine.start_daemon_with(&["--config", config.to_str().unwrap()], &[]);
        let is_back =
            |program: &Process| machine.gpu.place.program(program.pid()).is_some_and(|p| p["pool"].is_string());
        until("both are attached again", || is_back(&urgent) && is_back(&low));
        assert_eq!(sides(&machine), ["inner", "outer"]);
        // Another program makes the next daemon write its state.
        let other = machine.told(LOW);
        assert_eq!(machine.place_of(other.pid()).1, "outer");
        let pid = format!("pid = {}\n", other.pid());
        until("it is kept", || machine.gpu.place.kept().contains(&pid));
    }
    urgent.progress_after(now_ns());
    low.progress_after(now_ns());
}

#[test]
fn where_urgent_programs_are_follows_the_configuration_as_it_is_read_again() {
    let machine = Machine::configured("[pool]\nurgent = \"outside\"\n");
    let insisting = machine.told(&[POOL, URGENT].concat());
    machine.assert_place(&insisting, "none", "class high stays out of pools");
    assert!(insisting.errors().contains("time sharing: class high stays out of pools"), "{}", insisting.errors());
    machine.configuration("[pool]\nurgent = \"inside\"\nproven_minutes = 0\n");
    let daemon = machine.daemon.as_ref().unwrap();
    signal(daemon.pid(), Signal::HUP);
    until("it is read", || daemon.errors().contains("the configuration was read again"));
    let low = machine.told(LOW);
    machine.assert_place(&low, "inner", WAIVED);
    let urgent = machine.told_by_itself(URGENT);
    machine.assert_place(&urgent, "inner", "urgent programs are inside (urgent = \"inside\")");
    assert_eq!(machine.pools().len(), 1);
}

/// Machine with scripts that each run the same program, and a daemon that ends and starts again.
struct Proving {
    machine: Machine,
}

impl Proving {
    fn new() -> Proving {
        Proving { machine: Machine::configured("") }
    }

    /// Starts a script as `xsched run` does on a machine with NVIDIA's driver.
    fn start(&self, script: &str, options: &[&str]) -> Process {
        let gpu = &self.machine.gpu;
        let file = gpu.place.join(script);
        if !file.exists() {
            std::fs::write(&file, format!("exec {}\n", gpu.program("pooled").display())).unwrap();
        }
        let mut command = gpu.place.run_command(options, "/bin/sh".as_ref(), &[file.to_str().unwrap()]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", gpu.place.join("none"));
        let mut program = gpu.with_driver(command);
        program.expect("context 0");
        program
    }

    /// Ends the daemon, changes its records of some scripts, and starts another.
    fn restarted(&mut self, changes: &[(&str, &str, &str)]) {
        let machine = &mut self.machine;
        signal(machine.daemon.as_ref().unwrap().pid(), Signal::TERM);
        // Its records are written at its end, when its socket is closed already.
        until("the daemon has ended", || machine.daemon.as_mut().unwrap().has_ended().is_some());
        until("its pools have ended", || machine.pools().is_empty());
        let file = machine.gpu.place.join(".local/state/xsched/proven.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut found = 0;
        let mut section = "";
        let lines = text.lines().map(|line| {
            section = if line.starts_with('[') { line } else { section };
            let change = changes.iter().find(|(script, from, _)| section.contains(script) && line == *from);
            found += usize::from(change.is_some());
            change.map_or(line, |(_, _, to)| to).to_owned() + "\n"
        });
        let changed: String = lines.collect();
        assert_eq!(found, changes.len(), "{text}");
        std::fs::write(&file, changed).unwrap();
        let config = machine.gpu.place.join("config.toml");
        machine.daemon = None;
        machine.start_daemon_with(&["--config", config.to_str().unwrap()], &[]);
    }
}

const UNPROVEN: &str = "not proven yet: 0 of 10 min without a GPU fault";
const PROVEN: &str = "proven: 14 min without a GPU fault";

#[test]
fn a_program_is_proven_until_a_part_of_it_changes_or_its_fault_ends_a_pool() {
    let mut proving = Proving::new();
    let scripts = ["changes.sh", "faults.sh", "stays.sh"];
    let asked = [POOL, URGENT].concat();
    let urgent = proving.start("urgent.sh", &asked);
    for script in scripts {
        let program = proving.start(script, LOW);
        proving.machine.assert_place(&program, "outer", UNPROVEN);
    }
    drop(urgent);
    proving.restarted(&scripts.map(|script| (script, "seconds = 0", "seconds = 840")));
    let urgent = proving.start("urgent.sh", &asked);
    for script in scripts {
        let program = proving.start(script, LOW);
        proving.machine.assert_place(&program, "inner", PROVEN);
    }
    // Any change of the script counts, even a comment.
    let script = proving.machine.gpu.place.join("changes.sh");
    let text = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, text + "# changed\n").unwrap();
    let changed = proving.start("changes.sh", LOW);
    proving.machine.assert_place(&changed, "outer", UNPROVEN);
    let why = format!("after 14 min: its script {} has changed", script.display());
    let daemon = proving.machine.daemon.as_ref().unwrap();
    until("it is in the log", || daemon.errors().contains(&why));
    let mut faulty = proving.start("faults.sh", LOW);
    proving.machine.assert_place(&faulty, "inner", PROVEN);
    faulty.tell("crash");
    faulty.expect(&format!("crash {ILLEGAL_ADDRESS}"));
    until("it is in the log", || daemon.errors().contains("after 14 min: it had a GPU fault"));
    drop((faulty, urgent));
    let urgent = proving.start("urgent.sh", &asked);
    let faulty = proving.start("faults.sh", LOW);
    proving.machine.assert_place(&faulty, "outer", UNPROVEN);
    let stays = proving.start("stays.sh", LOW);
    proving.machine.assert_place(&stays, "inner", PROVEN);
    drop(urgent);
}

#[test]
fn an_urgent_program_whose_host_is_known_to_be_the_bottleneck_is_inside_without_having_asked() {
    let mut proving = Proving::new();
    let why = |why: &str| format!("outside the inner pool: {why}");
    for script in ["host.sh", "device.sh"] {
        let urgent = proving.start(script, URGENT);
        proving.machine.assert_place(&urgent, "none", &why(UNPROVEN));
        let low = proving.start("low.sh", LOW);
        proving.machine.assert_place(&low, "outer", "no urgent program of this user belongs inside");
    }
    let learned = |script, percent| {
        [
            (script, "seconds = 0", "seconds = 840"),
            (script, "bursts = 0", "bursts = 60"),
            (script, "percent = 0", percent),
        ]
    };
    let mut changes = [learned("host.sh", "percent = 12"), learned("device.sh", "percent = 93")].concat();
    changes.push(("low.sh", "seconds = 0", "seconds = 840"));
    proving.restarted(&changes);
    // Beside a program whose facts are known, and one whose are not yet.
    let low = proving.start("low.sh", LOW);
    proving.machine.assert_place(&low, "inner", PROVEN);
    let host = proving.start("host.sh", URGENT);
    proving.machine.assert_place(&host, "inner", PROVEN);
    let mut device = proving.start("device.sh", URGENT);
    proving.machine.assert_place(&device, "none", &why("the device is its bottleneck (93 % of its requests)"));
    assert_eq!(proving.machine.pools().len(), 1);
    // A fault outside of pools counts as well.
    device.tell("crash");
    device.expect(&format!("crash {ILLEGAL_ADDRESS}"));
    let daemon = proving.machine.daemon.as_ref().unwrap();
    until("it is in the log", || daemon.errors().contains("after 14 min: it had a GPU fault"));
    let again = proving.start("device.sh", URGENT);
    proving.machine.assert_place(&again, "none", &why(UNPROVEN));
}

#[test]
fn a_control_daemon_that_does_not_listen_at_once_serves_all_the_same() {
    let mut machine = Machine { gpu: Gpu::with_devices(1), daemon: None };
    machine.start_daemon(&[("MPS_LISTENS_LATE_MS", "60")]);
    let program = machine.told(LOW);
    assert_eq!(machine.share(program.pid()), "pool", "{}", machine.daemon.as_ref().unwrap().errors());
}

#[test]
fn the_daemon_the_control_daemon_and_the_server_may_be_killed() {
    let mut machine = Machine::new();
    let (mut inside, mut urgent) = (machine.steady(LOW), machine.told(URGENT));
    inside.progress_after(0);
    let kill = |pid: u32| signal(pid, Signal::KILL);
    // Without its daemon, the pool serves its programs to their end, and the next daemon starts another.
    kill(machine.daemon.as_ref().unwrap().pid());
    machine.daemon = None;
    machine.start_daemon(&[]);
    until("it is attached again", || machine.gpu.place.program(inside.pid()).is_some());
    assert_eq!(machine.share(inside.pid()), "pool");
    inside.progress_after(now_ns());
    let mut other = machine.steady(LOW);
    other.progress_after(now_ns());
    assert_eq!(machine.pools().len(), 2);
    inside.tell("end");
    assert_eq!(inside.wait().0, 0);
    until("the old one has ended", || machine.pools().len() == 1);
    // Without its server, its programs are lost, as without xsched; the next one finds another pool.
    kill(machine.server());
    until("its program is lost", || other.has_ended().is_some());
    assert_ne!(other.wait().0, 0);
    let mut third = machine.steady(LOW);
    assert_eq!(machine.share(third.pid()), "pool");
    third.progress_after(now_ns());
    // Without its control daemon, the next program starts another.
    until("the old one has ended", || machine.pools().len() == 1);
    kill(machine.control());
    until("the daemon has noticed", || machine.pools().is_empty());
    let mut fourth = machine.steady(LOW);
    assert_eq!(machine.share(fourth.pid()), "pool");
    fourth.progress_after(now_ns());
    urgent.tell("sync");
    urgent.expect("sync 0");
}

#[test]
fn a_daemon_that_ends_has_its_pools_end_with_their_last_program() {
    let machine = Machine::new();
    let mut inside = machine.steady(LOW);
    let control = machine.control();
    signal(machine.daemon.as_ref().unwrap().pid(), Signal::TERM);
    until("the daemon has ended", || machine.gpu.place.ps().is_none());
    inside.progress_after(now_ns());
    inside.tell("end");
    assert_eq!(inside.wait().0, 0);
    // A zombie has no command line any more.
    let words = || std::fs::read(format!("/proc/{control}/cmdline")).unwrap_or_default();
    until("the pool has ended", || words().is_empty());
}

#[test]
fn a_hint_changes_the_gates_of_a_pooled_program_and_says_so() {
    let machine = Machine::new();
    let mut program = machine.steady(LOW);
    program.progress_after(0);
    let hint = ["hint", "--pid", &program.pid().to_string(), "--priority", "high"];
    let said = String::from_utf8(machine.gpu.place.xsched(&hint).output().unwrap().stderr).unwrap();
    assert!(said.contains("it stays in the pool until it ends"), "{said}");
    assert_eq!(machine.share(program.pid()), "pool");
    program.progress_after(now_ns());
    machine.gpu.end(program);
}

#[test]
fn what_a_pool_does_not_suit_shares_by_time() {
    let machine = Machine::new();
    let (enabled, errors) = machine.mps(LOW, &[("CUDA_INJECTION64_PATH", "/none")]);
    assert_eq!(enabled, "0");
    assert!(errors.contains("time sharing: a profiler needs a context of its own"), "{errors}");
    let (enabled, errors) = machine.mps_of("device_runtime", LOW, &[]);
    assert_eq!(enabled, "0");
    assert!(errors.contains("device_runtime launch others, which MPS does not run"), "{errors}");
    let (enabled, errors) = machine.mps(URGENT, &[]);
    let why = "time sharing: outside the inner pool: not proven yet: 0 of 10 min without a GPU fault";
    assert!(enabled == "0" && errors.contains(why), "{errors}");
    for (options, variables) in
        [(&["--share", "time"][..], &[][..]), (URGENT, &[]), (LOW, &[("XSCHED_PLATFORMS", "hip")])]
    {
        assert_eq!(machine.mps(options, variables), ("0".into(), String::new()), "{options:?} {variables:?}");
    }
    machine.gpu.place.ask(&["policy", "set", "up"]);
    let (enabled, errors) = machine.mps(&["--priority", "low"], &[]);
    assert_eq!(enabled, "0");
    assert!(errors.contains("time sharing: under the policy up programs take turns"), "{errors}");
    machine.gpu.place.ask(&["policy", "set", "hpf"]);
    assert_eq!(machine.mps(&["--priority", "low"], &[]).0, "1");
}

#[test]
fn several_devices_are_those_that_the_program_means() {
    let machine = Machine::with_devices(2);
    let devices = |options: &[&str], visible: &str| {
        let mut command = machine.gpu.place.run_command(options, &machine.gpu.program("pooled"), &[]);
        command.env("CUDA_VISIBLE_DEVICES", visible);
        let mut program = machine.gpu.with_driver(command);
        let found = program.find("devices", |line| line.strip_prefix("devices ").map(str::to_owned));
        program.expect("context 0");
        found
    };
    for visible in ["0", "1", "1,0"] {
        assert_eq!(devices(LOW, visible), devices(&["--share", "time"], visible), "{visible}");
    }
}

/// By first come, first served, kernels of 100 ms would leave one of a hundred parts to those of 1 ms.
#[test]
fn programs_with_short_and_with_long_kernels_get_on_evenly() {
    one_of(3, "speed of short kernels beside long ones", || {
        let share = share_of_short_beside_long();
        if (share - 0.5).abs() < 0.1 { Ok(()) } else { Err(format!("{:.1} % to the short ones", 100.0 * share)) }
    });
}

/// Part of the program with the short kernels in the sum of the two programs' speeds, each relative to its speed alone.
fn share_of_short_beside_long() -> f64 {
    const MEASURED: std::time::Duration = std::time::Duration::from_secs(2);
    let machine = Machine::new();
    let speeds = |programs: &[&Process], times| {
        let launches = || programs.iter().map(|p| machine.gpu.place.launches(p.pid())).collect::<Vec<_>>();
        let (before, began) = (launches(), now_ns());
        std::thread::sleep(MEASURED * times); // what is measured
        let (after, ns) = (launches(), now_ns() - began);
        before.iter().zip(after).map(|(before, after)| (after - before) as f64 / ns as f64).collect::<Vec<_>>()
    };
    let start = |us, batch| {
        let mut program = machine.gpu.run(LOW, &machine.gpu.program("steady"), &[us, batch]);
        program.expect("ready");
        program.progress_after(0);
        program
    };
    let short = start("1000", "8");
    let short_alone = speeds(&[&short], 1)[0];
    let long = start("100000", "1");
    std::thread::sleep(MEASURED); // both are known then
    let both = speeds(&[&short, &long], 5);
    machine.gpu.end(short);
    let long_alone = speeds(&[&long], 1)[0];
    machine.gpu.end(long);
    let relative = [both[0] / short_alone, both[1] / long_alone];
    let share = relative[0] / (relative[0] + relative[1]);
    println!(
        "short {:.3}, long {:.3} of their speed alone: {:.1} % to the short ones",
        relative[0],
        relative[1],
        100.0 * share
    );
    share
}

/// An upgrade removes the files from which the daemon was started.
#[test]
fn a_daemon_whose_own_file_is_gone_starts_pools() {
    let mut machine = Machine::new();
    machine.daemon = None;
    until("the daemon has ended, and its pool", || machine.gpu.place.ps().is_none() && machine.pools().is_empty());
    machine.gpu.place.share_build();
    machine.start_daemon(&[]);
    std::fs::remove_file(machine.gpu.place.join("build/xsched")).unwrap();
    let program = machine.told(LOW);
    assert_eq!(machine.share(program.pid()), "pool");
    assert_eq!(machine.clients(), [program.pid()]);
}

/// A daemon of root starts a pool as the user of its programs.
#[test]
fn a_pool_belongs_to_the_user_of_its_programs() {
    if !rustix::process::geteuid().is_root() {
        return xsched_e2e::skipped("only root can start programs of other users");
    }
    const OTHER: u32 = 12_345;
    let mut machine = Machine::new();
    machine.daemon = None;
    // A server of another user finds no variable of the daemon's environment; the simulated device must be found all the same.
    let place = &machine.gpu.place;
    let (bin, stand_in) = (place.join("others-bin"), place.mps_binaries().join("nvidia-cuda-mps-control"));
    std::fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\nexport SIMDEV_SOCKET={} LD_PRELOAD=$LD_PRELOAD:{}\nexec {} \"$@\"\n",
        place.join("sim.sock").display(),
        machine.gpu.manager().display(),
        stand_in.display()
    );
    let control = bin.join("nvidia-cuda-mps-control");
    std::fs::write(&control, script).unwrap();
    std::fs::set_permissions(&control, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    until("the daemon has ended", || machine.gpu.place.ps().is_none());
    machine.gpu.place.share_build();
    machine.start_daemon(&[("PATH", &format!("{}:/usr/bin:/bin", bin.display()))]);
    let own = machine.told(LOW);
    let command = machine.gpu.place.run_command_of(OTHER, LOW, &machine.gpu.program("pooled"), &[]);
    let mut others = machine.gpu.with_driver(command);
    others.expect("mps 1");
    others.expect("context 0");
    let owner = |pid: u32| Some(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{pid}")).ok()?));
    until("each user has a server", || {
        let servers = machine
            .pools()
            .into_iter()
            .filter_map(|pool| machine.gpu.place.mps_says(pool.join("pipe").to_str().unwrap(), "get_server_list").ok())
            .map(|pid| pid.parse().unwrap());
        let mut owners: Vec<u32> = servers.filter_map(owner).collect();
        owners.sort_unstable();
        owners == [0, OTHER]
    });
    drop(own);
}

#[test]
fn kernels_inside_a_graph_count_as_long_as_they_were_by_themselves() {
    let machine = Machine::new();
    let _urgent = machine.told(URGENT);
    let mut program = machine.gpu.run(LOW, &machine.gpu.program("graph_lengths"), &[]);
    program.expect("attached");
    program.tell("go");
    program.expect("ready");
    let pid = program.pid();
    program.finish();
    // Kernels of 2 ms each, so that each but the first has a gate; as many kernels of unknown length have one.
    assert_eq!(machine.gpu.driver_stats(pid)["calls"]["cuGraphAddBatchMemOpNode"], 11);
}

/// A graph of 20 ms delays other programs of its pool no longer than its kernels do.
#[test]
fn a_long_graph_counts_as_long_as_what_lies_between_two_of_its_gates() {
    let machine = Machine::new();
    let _urgent = machine.told(URGENT);
    let start = |gates: &str| {
        let program = machine.gpu.program("steady");
        let mut command = machine.gpu.place.run_command(&["--priority", "low"], &program, &["200", "100", "graph"]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", machine.gpu.place.join("none")).env("XSCHED_GRAPH_GATES", gates);
        let mut program = machine.gpu.with_driver(command);
        program.expect("ready");
        program
    };
    // Sharing of the program, and its longest command.
    let run = |gates: &str| {
        let mut program = start(gates);
        let pid = program.pid();
        let longest_us = || machine.gpu.place.program(pid).unwrap()["groups"][0]["longest_us"].as_u64().unwrap();
        until("its graphs were measured", || {
            program.progress_after(now_ns());
            longest_us() != 0
        });
        let found = (machine.share(pid), longest_us());
        machine.gpu.end(program);
        found
    };
    for _ in 0..2 {
        let (share, longest_us) = run("1");
        assert!(share == "pool" && (200..5_000).contains(&longest_us), "{share}, {longest_us} us");
    }
    let (share, longest_us) = run("0");
    assert!(share == "pool" && longest_us > 10_000, "{share}, {longest_us} us");
    let known = start("1");
    assert!(known.errors().contains("time sharing: this program ran kernels of"), "{}", known.errors());
}

/// The commands between two gates of a graph when these close end in slices; after a while the urgent program leaves the device to them for
/// a moment.
#[test]
fn what_is_executed_inside_a_graph_gets_the_device_for_a_moment() {
    let machine = Machine::new();
    let mut rival = machine.steady(URGENT);
    let rival_id = rival.pid().to_string();
    let ask = |what: &str| machine.gpu.place.ask(&[what, "--pid", &rival_id]);
    ask("suspend");
    let mut program = machine.gpu.run(LOW, &machine.gpu.program("steady"), &["200", "64", "graph"]);
    program.expect("ready");
    let pid = program.pid();
    let longest_us = || machine.gpu.place.program(pid).unwrap()["groups"][0]["longest_us"].as_u64().unwrap();
    until("its graphs were measured", || {
        program.progress_after(now_ns());
        longest_us() != 0
    });
    let moments = || {
        let trace: Value = serde_json::from_str(&machine.gpu.place.ask(&["trace", "--json", "--last", "1h"])).unwrap();
        let group = trace["groups"].as_array().unwrap().iter().find(|group| group["program"]["pid"] == rival.pid());
        let spans = group.expect("the rival's")["spans"].as_array().unwrap().clone();
        spans.iter().filter(|span| span["doing"] == "waits" && span["why"] == "drain").count()
    };
    until("the rival has stayed away", || {
        ask("resume");
        machine.gpu.place.await_state(pid, "ready");
        ask("suspend");
        moments() > 0
    });
    ask("resume");
    rival.progress_after(now_ns());
    machine.gpu.end(rival);
    program.progress_after(now_ns());
    machine.gpu.end(program);
}
