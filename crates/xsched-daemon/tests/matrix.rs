//! Kills, stops or ends a program at each step of the protocol: the program beside it gets the device, and the daemon keeps nothing of the
//! lost program. Daemon and client are processes that run this test program.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, kill_process};
use support::{Client, connect, hello, memfd, options, own_pidfd, receive, seals, send, try_connect};
use xsched_daemon::run;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::hint::Hints;
use xsched_proto::segment::{SEGMENT_BYTES, state};
use xsched_proto::wire::{ClientMsg, Levels, Platform, ProgramOptions, Request, Sharing, Target};
use xsched_testkit::{TIMEOUT, least_of, so_within, until};

const FOLDER: &str = "XSCHED_TEST_FOLDER";
const STEP: &str = "XSCHED_TEST_STEP";
const DEVICE: &str = "sim:0";

/// Longest time until the program beside has the device again, and number of tries; see [`least_of`].
const RESUMES: Duration = Duration::from_millis(50);
const TRIES: u32 = 5;

/// Step of a program in the protocol: the way to get there, and whether the program has the device there.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    priority: i32,
    has_device: bool,
    get_there: fn(&Path, ProgramOptions) -> Held,
}

/// Things that a program holds open while it is at a step.
type Held = Vec<Box<dyn std::any::Any>>;

const STEPS: [Step; 15] = [
    Step { name: "connected", priority: 0, has_device: false, get_there: |socket, _| vec![Box::new(connect(socket))] },
    Step { name: "hello sent, welcome unread", priority: 0, has_device: false, get_there: greeted },
    Step {
        name: "welcome received",
        priority: 128,
        has_device: false,
        get_there: |s, o| vec![Box::new(Client::attach(s, o))],
    },
    Step {
        name: "group sent, answer unread",
        priority: 128,
        has_device: false,
        get_there: |s, o| attached(s, o, group_unread),
    },
    Step {
        name: "group added",
        priority: 128,
        has_device: false,
        get_there: |s, o| attached(s, o, |c| _ = c.group(0, DEVICE)),
    },
    Step { name: "queue added", priority: 128, has_device: false, get_there: |s, o| attached(s, o, queued) },
    Step { name: "running", priority: 128, has_device: true, get_there: |s, o| attached(s, o, runs) },
    Step {
        name: "running, can be interrupted",
        priority: 128,
        has_device: true,
        get_there: |s, o| attached(s, o, runs_at_3),
    },
    Step { name: "held at its gate", priority: -128, has_device: false, get_there: |s, o| attached(s, o, is_held) },
    Step { name: "idle after it ran", priority: 128, has_device: false, get_there: |s, o| attached(s, o, has_run) },
    Step { name: "hint of a group sent", priority: 128, has_device: true, get_there: |s, o| attached(s, o, hints) },
    Step { name: "hint by a command, answer unread", priority: 128, has_device: true, get_there: hints_by_command },
    Step { name: "list asked for, answer unread", priority: 128, has_device: true, get_there: lists },
    Step { name: "group being removed", priority: 128, has_device: false, get_there: |s, o| attached(s, o, removes) },
    Step { name: "leaving: no more is sent", priority: 128, has_device: false, get_there: leaves },
];

fn attached(socket: &Path, options: ProgramOptions, then: fn(&Client)) -> Held {
    let client = Client::attach(socket, options);
    then(&client);
    vec![Box::new(client)]
}

fn greeted(socket: &Path, options: ProgramOptions) -> Held {
    let (socket, event) = (connect(socket), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let segment = memfd(SEGMENT_BYTES, seals());
    send(&socket, &hello(options), &[segment.as_fd(), event.as_fd(), own_pidfd().as_fd()]);
    vec![Box::new(socket), Box::new(event), Box::new(segment)]
}

fn group_unread(client: &Client) {
    client.say(&ClientMsg::GroupAdd {
        slot: 0,
        device: DEVICE.into(),
        platform: Platform::Sim,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ONE,
        sharing: Sharing::Time,
    });
}

fn queued(client: &Client) {
    client.group(0, DEVICE);
    client.queue(0, 0);
}

fn runs(client: &Client) {
    queued(client);
    client.ready(0);
    client.until_open(0);
}

fn runs_at_3(client: &Client) {
    client.group_with(0, DEVICE, 0, Levels::ONE.with_if(true, Levels::THREE));
    client.queue(0, 0);
    client.ready(0);
    client.until_open(0);
}

fn is_held(client: &Client) {
    queued(client);
    client.ready(0);
    client.until_closed(0);
}

fn has_run(client: &Client) {
    runs(client);
    client.idle(0);
}

fn hints(client: &Client) {
    runs(client);
    client.say(&ClientMsg::GroupHint { slot: 0, priority: Some(200), hints: Hints::default() });
}

fn removes(client: &Client) {
    runs(client);
    client.say(&ClientMsg::GroupRemove { slot: 0 });
}

fn command(socket: &Path, request: Request) -> Box<dyn std::any::Any> {
    let connection = connect(socket);
    send(&connection, &ClientMsg::Control { version: PROTOCOL_VERSION, request }, &[]);
    Box::new(connection)
}

fn hints_by_command(socket: &Path, options: ProgramOptions) -> Held {
    let mut held = attached(socket, options, runs);
    let target = Target::Pid(std::process::id());
    let hints = Hints::default();
    held.push(command(
        socket,
        Request::Hint { targets: vec![target], priority: Some(100), hints, level: None, threshold: None, batch: None },
    ));
    held
}

fn lists(socket: &Path, options: ProgramOptions) -> Held {
    let mut held = attached(socket, options, runs);
    held.push(command(socket, Request::Ps));
    held
}

fn leaves(socket: &Path, options: ProgramOptions) -> Held {
    let client = Client::attach(socket, options);
    runs(&client);
    rustix::net::shutdown(&client.socket, Shutdown::Write).unwrap();
    // The program's own gate opens once the daemon has hung up, so its last messages are read first.
    while receive(&client.socket).is_some() {}
    vec![Box::new(client)]
}

/// Ways in which a program ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Killed,
    Stopped,
    Exits,
}

const ENDS: [(End, &str); 3] = [(End::Killed, "killed"), (End::Stopped, "stopped"), (End::Exits, "exits")];

fn main() -> ExitCode {
    if let Some(step) = std::env::var_os(STEP) {
        return play(step.to_str().unwrap().parse().unwrap());
    }
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        return match run(xsched_daemon::Options { log: Some(folder.join("log")), ..options(folder) }) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("xsched: {e}");
                ExitCode::from(e.exit_code())
            }
        };
    }
    all();
    println!("matrix: {} steps, {} ends each: passed", STEPS.len(), ENDS.len());
    ExitCode::SUCCESS
}

/// Client process: goes to a step, reports it, and echoes lines until the input ends.
fn play(step: usize) -> ExitCode {
    let folder = std::env::var_os(FOLDER).expect("a folder");
    let socket = options(Path::new(&folder)).socket;
    let step = &STEPS[step];
    let held = (step.get_there)(&socket, ProgramOptions { priority: Some(step.priority), ..ProgramOptions::default() });
    println!("there");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        println!("{line}");
    }
    drop(held);
    ExitCode::SUCCESS
}

/// Process that runs this test program, and ends with the test.
struct Actor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Actor {
    fn start(folder: &Path, step: Option<usize>) -> Actor {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FOLDER, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        step.map(|step| command.env(STEP, step.to_string()));
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let stdin = child.stdin.take();
        Actor { child, stdin, lines }
    }

    fn expect(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(TIMEOUT).as_deref(), Ok(line));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Asserts that the program is still there, and obeys.
    fn answers(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"still there\n").unwrap();
        self.expect("still there");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Numbers of a daemon's descriptors, mapped memfds and threads.
fn holdings(pid: u32) -> [usize; 3] {
    let entries = |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap().count();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    [entries("fd"), maps.lines().filter(|line| line.contains("/memfd:")).count(), entries("task")]
}

fn programs(socket: &Path) -> usize {
    support::ask(socket, Request::Ps).unwrap().len() - 1
}

fn all() {
    let folder = tempfile::tempdir().unwrap();
    let socket: PathBuf = options(folder.path()).socket;
    let daemon = Actor::start(folder.path(), None);
    until("the daemon listens", || try_connect(&socket).is_some());
    let beside = Client::attach(&socket, ProgramOptions { priority: Some(0), ..ProgramOptions::default() });
    beside.group(0, DEVICE);
    // After one trial the daemon has the structures that it makes with the first client and keeps.
    trial(folder.path(), &beside, 6, End::Killed);
    until("only one program is left", || programs(&socket) == 1);
    // A connection that has just asked may still be open. One that stays open shows in the trials below.
    let mut before = holdings(daemon.child.id());

    for (step, Step { name, has_device, .. }) in STEPS.iter().enumerate() {
        for (end, how) in ENDS {
            let what = format!("{name}, {how}: the program beside has the device after");
            if *has_device {
                least_of(TRIES, RESUMES, &what, || trial(folder.path(), &beside, step, end));
            } else {
                println!("{what}: {:?}", trial(folder.path(), &beside, step, end));
            }
            until("only one program is left", || programs(&socket) == 1);
            let mut left = before;
            let nothing = || {
                left = holdings(daemon.child.id());
                left.iter().zip(before).all(|(now, then)| *now <= then)
            };
            assert!(
                so_within(TIMEOUT, nothing),
                "{what}: [descriptors, mapped memfds, threads] {left:?}, before {before:?}"
            );
            before = left;
        }
    }
    daemon.signal(Signal::TERM);
    let mut daemon = daemon;
    until("the daemon ends", || daemon.child.try_wait().unwrap().is_some());
    assert!(daemon.child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(socket.parent().unwrap()).unwrap().count(), 0, "no file is left");
}

/// Ends a program at a step. Returns the time until the program beside it, which wants the device throughout, has it.
fn trial(folder: &Path, beside: &Client, step: usize, end: End) -> Duration {
    let Step { has_device, name, .. } = STEPS[step];
    let mut program = loop {
        beside.ready(0);
        beside.until_open(0);
        let program = Actor::start(folder, Some(step));
        program.expect("there");
        // The program shows no progress, so that it loses the device in a second: on a busy machine that may have passed already.
        if !has_device || !beside.open(0) {
            break program;
        }
    };
    if has_device {
        // The work that it had on the device is done, and delays nothing.
        beside.set_state(0, state::DRAINED);
    }
    let begin = Instant::now();
    match end {
        End::Killed => program.signal(Signal::KILL),
        End::Stopped => program.signal(Signal::STOP),
        End::Exits => program.stdin = None,
    }
    beside.until_open(0);
    let took = begin.elapsed();
    match end {
        End::Killed | End::Exits => {
            until("it has ended", || program.child.try_wait().unwrap().is_some());
            let status = program.child.wait().unwrap();
            assert_eq!(status.success(), end == End::Exits, "{name}: {status}");
        }
        End::Stopped => {
            program.signal(Signal::CONT);
            program.answers();
        }
    }
    drop(program);
    // The other program is scheduled as before.
    beside.idle(0);
    beside.ready(0);
    beside.until_open(0);
    took
}
