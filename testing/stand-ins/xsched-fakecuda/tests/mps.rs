//! Clients of the fakes of NVIDIA's Multi-Process Service: one context for all of them, with its slice, its room and
//! its faults.

mod common;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Bench, library};
use rustix::process::Signal;
use xsched_testkit::{Process, finish, is_alive, signal, until};

/// CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ASSERT and those of MPS.
const ILLEGAL_ADDRESS: i32 = 700;
const ASSERT: i32 = 710;
const SERVER_NOT_READY: i32 = 807;
const MAX_CLIENTS_REACHED: i32 = 808;
const CLIENT_TERMINATED: i32 = 810;

/// Time limit, longer than any command takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// A kernel that outlasts the test, in µs.
const FOR_EVER_US: u64 = 3_600_000_000;
/// Duration of the kernels that store the time, in ns.
const STAMP_NS: u64 = 2_000;

#[test]
#[ignore = "the device that the other tests start; `cargo test -p xsched-fakecuda --test mps`"]
fn serve() {
    common::serve();
}

/// A machine with MPS.
struct Machine {
    bench: Bench,
    client: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let bench = Bench::new();
        let client = bench.compile("pooled", &[]);
        Self { bench, client }
    }

    /// Command for the control program with a pipe directory of this name.
    fn control(&self, name: &str) -> Command {
        let mut command = self.bench.command(env!("CARGO_BIN_EXE_nvidia-cuda-mps-control").as_ref());
        self.in_folder(&mut command, name);
        command.env("CUDA_MPS_LOG_DIRECTORY", self.bench.path(&format!("{name}-log")));
        command
    }

    fn in_folder(&self, command: &mut Command, name: &str) {
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.bench.path(name)).env_remove("CUDA_VISIBLE_DEVICES");
    }

    /// Starts a daemon that serves this pipe directory.
    fn pool(&self, name: &'static str) -> Pool<'_> {
        self.pool_with(name, &[])
    }

    fn pool_with(&self, name: &'static str, variables: &[(&str, &str)]) -> Pool<'_> {
        let mut command = self.control(name);
        command.arg("-f").envs(variables.iter().copied());
        let daemon = Process::start(command);
        until("the daemon answers", || self.say(name, "get_server_list").status.success());
        Pool { machine: self, name, daemon }
    }

    /// Passes a command to the daemon of a folder.
    fn say(&self, name: &str, line: &str) -> Output {
        let mut command = self.control(name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
        finish(child, LIMIT)
    }

    /// Starts a program that uses this pipe directory, which may have no daemon.
    fn program(&self, name: &str, variables: &[(&str, &str)]) -> Client {
        let mut command = self.bench.command(&self.client);
        self.in_folder(&mut command, name);
        Client(Process::start({
            command.envs(variables.iter().copied());
            command
        }))
    }

    /// Starts a program with a context of its own.
    fn outside(&self) -> Client {
        self.program("nothing", &[]).ready("mps 0")
    }
}

struct Pool<'a> {
    machine: &'a Machine,
    name: &'static str,
    daemon: Process,
}

impl Pool<'_> {
    /// Starts a program in the pool, with these variables. It does not have its context yet.
    fn program(&self, variables: &[(&str, &str)]) -> Client {
        self.machine.program(self.name, variables)
    }

    fn client(&self) -> Client {
        self.program(&[]).ready("mps 1")
    }

    /// Starts a client whose kernels leave room for those of another like it.
    fn narrow_client(&self) -> Client {
        self.program(&[("FAKECUDA_WIDTH", "50")]).ready("mps 1")
    }

    /// Answer of the daemon to a command that it executes.
    #[track_caller]
    fn ask(&self, line: &str) -> String {
        let output = self.machine.say(self.name, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Message of the daemon for a command that it refuses.
    #[track_caller]
    fn refuse(&self, line: &str) -> String {
        let output = self.machine.say(self.name, line);
        assert!(!output.status.success() && output.stdout.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap().trim().to_owned()
    }

    fn server(&self) -> u32 {
        self.ask("get_server_list").parse().expect("one server")
    }

    fn status(&self) -> String {
        self.ask(&format!("get_server_status {}", self.server()))
    }

    fn clients(&self) -> Vec<u32> {
        let list = self.ask(&format!("get_client_list {}", self.server()));
        list.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.machine.bench.path(&format!("{}-log/server.log", self.name))).unwrap()
    }
}

/// A running program `pooled`.
struct Client(Process);

impl Client {
    /// Waits until the program has its context; `mps` is the line that says whether it is in a pool.
    #[track_caller]
    fn ready(mut self, mps: &str) -> Self {
        assert_eq!(self.0.line(), "init 0");
        assert_eq!(self.0.line(), mps);
        self.0.line();
        assert_eq!(self.0.line(), "context 0");
        self
    }

    #[track_caller]
    fn says(&mut self, line: &str, answer: &str) {
        self.0.tell(line);
        assert_eq!(self.0.line(), answer);
    }

    /// Waits until the client's contexts are in this error. The server tells its clients one after the other.
    fn fails_with(&mut self, error: i32) {
        until("the client has the error", || {
            self.0.tell("sync");
            self.0.line() == format!("sync {error}")
        });
    }

    #[track_caller]
    fn gives(&mut self, us: u64) {
        self.says(&format!("give {us}"), "given 0");
    }

    /// Times at which the last submitted kernels began and ended, in ns.
    #[track_caller]
    fn ran(&mut self) -> (u64, u64) {
        self.0.tell("take");
        let line = self.0.line();
        let times = line.strip_prefix("ran ").and_then(|times| times.split_once(' '));
        let (begin, end) = times.unwrap_or_else(|| panic!("{line}"));
        (begin.parse().unwrap(), end.parse().unwrap())
    }

    /// Time from one time-storing kernel to the next, with kernels between them, in ns. It is longer than the device
    /// needs if the device found the gate open before it had all of them.
    #[track_caller]
    fn runs(&mut self, us: u64) -> u64 {
        self.gives(us);
        let (begin, end) = self.ran();
        end - begin
    }

    #[track_caller]
    fn ends(self) {
        assert_eq!(self.0.wait().0, 0);
    }
}

#[test]
fn clients_with_room_run_side_by_side() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut long, mut short) = (pool.narrow_client(), pool.narrow_client());
    assert_eq!(pool.clients().len(), 2);
    long.gives(FOR_EVER_US);
    // Not a nanosecond slower than alone.
    until("it is as fast as alone", || short.runs(500) == 500_000 + STAMP_NS);
    // The other's commands end with it.
    pool.ask(&format!("terminate_client {} {}", pool.server(), long.0.pid()));
    long.ends();
    let mut wide = pool.client();
    until("it is as fast as alone", || wide.runs(500) == 500_000 + STAMP_NS);
    until("it is no client any more", || pool.clients().len() == 2);
}

#[test]
fn clients_without_room_run_in_the_order_in_which_they_came() {
    const LONG_US: u64 = 100_000;
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut first, mut second) = (pool.client(), pool.client());
    first.gives(LONG_US);
    second.gives(10);
    let (begin, _) = second.ran();
    let (long, _) = first.ran();
    assert!(begin >= long + LONG_US * 1000, "{begin} {long}");
    // Half of the device by NVIDIA's variable does not fit beside a whole one.
    let mut half = pool.program(&[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]).ready("mps 1");
    first.gives(LONG_US);
    half.gives(10);
    let ((begin, _), (long, _)) = (half.ran(), first.ran());
    assert!(begin >= long + LONG_US * 1000, "{begin} {long}");
}

/// Compiles a library to preload that changes the compute group's slice to this many µs.
fn rewrites_slices(bench: &Bench, us: u64) -> PathBuf {
    let (file, library) = (bench.path("rewrite.c"), bench.path("rewrite.so"));
    let code = format!(
        "#include <stdarg.h>\n#include <stdint.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
         int ioctl(int fd, unsigned long request, ...) {{\n\
         va_list a; va_start(a, request); uint32_t *c = va_arg(a, void *); va_end(a);\n\
         if ((request & 0xffff) == 0x462a && c[2] == 0xa06c0103) **(uint64_t **)(c + 4) = {us};\n\
         return (int)syscall(SYS_ioctl, fd, request, c); }}\n"
    );
    std::fs::write(&file, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&file);
    assert!(cc.status().unwrap().success());
    library
}

#[test]
fn a_pool_is_one_context_with_the_slice_of_its_server() {
    // In µs: a switch, and the slice that the driver sets for each context.
    const SWITCH: u64 = 50;
    const SLICE: u64 = 2048;
    const REWRITTEN: u64 = 500;
    let machine = Machine::new();
    let preloaded = rewrites_slices(&machine.bench, REWRITTEN);
    let pool = machine.pool_with("pool", &[("LD_PRELOAD", preloaded.to_str().unwrap())]);
    pool.ask(&format!("start_server -uid {}", rustix::process::geteuid().as_raw()));
    assert_eq!(pool.ask(&format!("get_server_timeslices {}", pool.server())), format!("0 {REWRITTEN}"));
    // Begins somewhere in a slice, and counts the rounds.
    let rounds = |took: u64, work: u64, others: u64| (took - STAMP_NS - work * 1000) as f64 / (others * 1000) as f64;

    let (mut outside, mut client) = (machine.outside(), pool.client());
    outside.gives(FOR_EVER_US);
    // 20 slices of 500 us, with one of the other's between two.
    let times = rounds(client.runs(10_000), 10_000, SLICE + 2 * SWITCH);
    assert!((19.0..=21.0).contains(&times), "{times}");
    drop(outside);

    // Two clients together get no more of the device than one: one slice of theirs between two of another context.
    let (mut outside, mut other) = (machine.outside(), pool.client());
    client.gives(FOR_EVER_US);
    other.gives(FOR_EVER_US);
    let times = rounds(outside.runs(10 * SLICE), 10 * SLICE, REWRITTEN + 2 * SWITCH);
    assert!((9.0..=11.0).contains(&times), "{times}");
}

#[test]
fn a_device_has_room_for_so_many_contexts() {
    let machine = Machine::new();
    let pool = machine.pool_with("pool", &[("FAKECUDA_MPS_CONTEXTS", "3")]);
    let (mut one, two) = (pool.client(), pool.client());
    let full = format!("context {MAX_CLIENTS_REACHED}");
    one.says("context", "context 0");
    one.says("context", &full);
    let mut late = pool.program(&[]);
    late.0.expect(&full);
    // The end of a context frees a place, and so does the end of a client.
    one.says("destroy", "destroy 0");
    one.says("context", "context 0");
    one.says("context", &full);
    two.ends();
    one.says("context", "context 0");
    one.says("context", &full);
}

#[test]
fn a_fault_ends_all_clients_and_new_ones_wait_for_their_end() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut innocent, mut culprit, mut outside) = (pool.client(), pool.client(), machine.outside());
    innocent.gives(10);
    outside.gives(10);
    culprit.says("crash", &format!("crash {ILLEGAL_ADDRESS}"));
    for client in [&mut innocent, &mut culprit] {
        for _ in 0..2 {
            client.says("sync", &format!("sync {ILLEGAL_ADDRESS}"));
        }
        client.says("give 1", &format!("given {ILLEGAL_ADDRESS}"));
        client.says("context", &format!("context {ILLEGAL_ADDRESS}"));
    }
    assert_eq!(pool.status(), "FAULT");
    let line = format!("Client {{PID: {}, Context: 1}} encountered a fatal GPU error", culprit.0.pid());
    assert!(pool.log().contains(&line), "{}", pool.log());
    outside.ran();
    let refused = format!("init {SERVER_NOT_READY}");
    pool.program(&[]).0.expect(&refused);

    // The pool of another daemon serves, while that of the faulted one drains.
    let fresh = machine.pool("fresh");
    fresh.client().runs(10);
    let server = pool.server();
    culprit.ends();
    assert_eq!(pool.status(), "FAULT");
    pool.program(&[]).0.expect(&refused);
    innocent.ends();
    assert_eq!(pool.status(), "ACTIVE");
    pool.client().runs(10);
    assert_eq!(pool.server(), server, "the server is the same");
}

#[test]
fn a_fault_stays_on_its_device() {
    let machine = Machine::new();
    let pool = machine.pool_with("pool", &[("SIMDEV_DEVICES", "2")]);
    let on = |device| pool.program(&[("CUDA_VISIBLE_DEVICES", device)]).ready("mps 1");
    let (mut there, mut elsewhere) = (on("0"), on("1"));
    there.says("crash", &format!("crash {ILLEGAL_ADDRESS}"));
    elsewhere.says("context", "context 0");
    elsewhere.runs(10);
    assert_eq!(pool.status(), "FAULT");
    // The server recovers after the end of the affected client, not after that of an unaffected one.
    elsewhere.ends();
    assert_eq!(pool.status(), "FAULT");
    there.ends();
    assert_eq!(pool.status(), "ACTIVE");
    on("0").runs(10);
}

#[test]
fn an_assertion_that_fails_ends_its_client_only() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut one, mut other) = (pool.client(), pool.client());
    one.says("assert", &format!("assert {ASSERT}"));
    one.says("sync", &format!("sync {ASSERT}"));
    other.runs(10);
    assert_eq!(pool.status(), "ACTIVE");
    pool.client().runs(10);
    let mut alone = machine.outside();
    alone.says("assert", &format!("assert {ASSERT}"));
    alone.says("sync", &format!("sync {ASSERT}"));
}

/// The server waits this long for work that the device executes for a client that is gone.
#[test]
fn a_client_that_is_killed_in_the_midst_of_a_kernel_takes_all_along_if_that_is_long() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut short, mut long, mut innocent) = (pool.client(), pool.client(), pool.client());
    short.gives(10_000);
    signal(short.0.pid(), Signal::KILL);
    innocent.runs(10);
    assert_eq!(pool.status(), "ACTIVE");
    long.gives(FOR_EVER_US);
    signal(long.0.pid(), Signal::KILL);
    until("they have faulted", || pool.status() == "FAULT");
    innocent.fails_with(ILLEGAL_ADDRESS);
    let line = format!("Client {{PID: {}, Context: 1}} encountered a fatal GPU error", innocent.0.pid());
    assert!(pool.log().contains(&line), "{}", pool.log());
}

#[test]
fn a_client_is_terminated_alone() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut one, mut other) = (pool.client(), pool.client());
    one.gives(FOR_EVER_US);
    other.gives(10);
    pool.ask(&format!("terminate_client {} {}", pool.server(), one.0.pid()));
    other.ran();
    one.says("take", &format!("failed {CLIENT_TERMINATED}"));
    one.says("sync", &format!("sync {CLIENT_TERMINATED}"));
    one.says("context", &format!("context {CLIENT_TERMINATED}"));
    assert_eq!(pool.status(), "ACTIVE");
}

#[test]
fn the_daemon_ends_with_its_last_client_once_told_to() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    assert_eq!(pool.ask("get_server_list"), "", "no server without a client");
    pool.ask(&format!("start_server -uid {}", rustix::process::geteuid().as_raw()));
    let (server, mut client) = (pool.server(), pool.client());
    assert_eq!((pool.server(), pool.clients()), (server, vec![client.0.pid()]));
    pool.ask("quit");
    let mut late = pool.program(&[]);
    late.0.expect("init 805");
    // The remaining client is served until it ends.
    client.runs(10);
    client.ends();
    let (status, _, errors) = pool.daemon.wait();
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(!is_alive(server) && !machine.bench.path("pool/control").exists());
    assert!(!machine.say("pool", "get_server_list").status.success(), "no daemon answers");
    // Programs run without the pool.
    machine.program("pool", &[]).ready("mps 0");
}

#[test]
fn the_daemon_ends_with_clients_after_a_time() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let mut client = pool.client();
    client.gives(FOR_EVER_US);
    pool.ask("quit -t 0");
    assert_eq!(pool.daemon.wait().0, 0);
    client.says("take", &format!("failed {CLIENT_TERMINATED}"));
}

#[test]
fn a_server_that_is_killed_is_replaced() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut client, server) = (pool.client(), pool.server());
    client.gives(FOR_EVER_US);
    signal(server, Signal::KILL);
    client.says("take", &format!("failed {CLIENT_TERMINATED}"));
    pool.client().runs(10);
    assert_ne!(pool.server(), server);
}

#[test]
fn a_daemon_that_is_killed_takes_its_server_along() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    let (mut client, server) = (pool.client(), pool.server());
    assert_eq!(pool.ask(&format!("get_server_timeslices {server}")), "0 2048");
    client.gives(FOR_EVER_US);
    drop(pool);
    client.says("take", &format!("failed {CLIENT_TERMINATED}"));
    until("the server has ended", || !is_alive(server));
    // The daemon's socket still exists, but no daemon answers.
    let after = machine.program("pool", &[]).ready("mps 0");
    after.ends();
    // A new daemon serves the same folder.
    machine.pool("pool").client().runs(10);
}

#[test]
fn commands_that_are_none_are_refused() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    assert!(pool.refuse("set_default_active_thread_percentage 10").contains("no command of this stand-in"));
    assert!(pool.refuse("get_server_status 1").contains("no such server"));
    assert!(pool.refuse("start_server -uid 4294967294").contains("only servers of user"));
    let _client = pool.client();
    assert!(pool.refuse(&format!("terminate_client {} 1", pool.server())).contains("no such client"));
    let second = machine.control("pool").arg("-f").output().unwrap();
    assert!(!second.status.success() && String::from_utf8_lossy(&second.stderr).contains("already running"));
}

#[test]
fn a_daemon_in_the_background_ends_with_its_folder() {
    let machine = Machine::new();
    let started = machine.control("pool").arg("-d").output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let client = machine.program("pool", &[]).ready("mps 1");
    let server = String::from_utf8(machine.say("pool", "get_server_list").stdout).unwrap();
    let server: u32 = server.trim().parse().unwrap();
    std::fs::remove_dir_all(machine.bench.path("pool")).unwrap();
    until("the server has ended", || !is_alive(server));
    drop(client);
}

#[test]
fn clients_number_the_devices_that_the_server_sees() {
    let machine = Machine::new();
    let pool = machine.pool_with("pool", &[("SIMDEV_DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", "2,1")]);
    let mut client = pool.program(&[]);
    client.0.expect("devices 2 0000:0C:00.0");
    let mut client = pool.program(&[("CUDA_VISIBLE_DEVICES", "1")]);
    client.0.expect("devices 1 0000:0B:00.0");
    client.0.expect("context 0");
    let mut client = pool.program(&[("CUDA_VISIBLE_DEVICES", "2")]);
    client.0.expect("init 100");
}

/// Programs that behave in a pool as they do without MPS.
#[test]
fn programs_do_in_a_pool_what_they_do_alone() {
    let machine = Machine::new();
    let pool = machine.pool("pool");
    for name in ["basics", "streams", "events", "memops", "hostfuncs", "capture", "graphs", "contexts", "multithread"] {
        println!("{name}");
        let mut command = machine.bench.command(&machine.bench.compile(name, &[]));
        machine.in_folder(&mut command, "pool");
        machine.bench.check(command);
    }
    assert_eq!(pool.status(), "ACTIVE");
    assert!(library().exists());
}
