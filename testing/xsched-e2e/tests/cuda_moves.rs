//! Moves of memory that are cut off at each call of the driver which they make, with the software driver of `xsched-fakecuda`: the program is
//! killed there, or the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use xsched_e2e::{Gpu, Process, signal, until};

const MIB: u64 = 1 << 20;
/// Memory of a device that programs may have: all of it for a program that needs the room.
const CAPACITY: &str = "6MiB";
const ALL: [&str; 2] = ["4", "1"];

/// Moves, each of which begins where the one before it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    Freeze,
    Thaw,
    /// To the host, for a more urgent program.
    Lend,
    /// Back from there, after its end.
    Return,
    /// Away, since the turn of another program begins.
    Leave,
    /// Back, since that one's turn is over.
    Back,
}

const MOVES: [Move; 6] = [Move::Freeze, Move::Thaw, Move::Lend, Move::Return, Move::Leave, Move::Back];

/// A device with a program whose moves can be held, and the program that needs the room.
struct Case {
    device: usize,
    /// Folder of the driver's files that say which call is held.
    folder: PathBuf,
    program: Process,
    other: Option<Process>,
    /// Lines of the two that were read while a move was waited for.
    lines: [Option<String>; 2],
}

/// Devices, on each of which a program is held one step later, with memory of so many chunks of 2 MiB.
struct Devices {
    gpu: Gpu,
    file: PathBuf,
    count: usize,
    chunks: u64,
}

impl Devices {
    fn new(count: usize, chunks: u64) -> Devices {
        let gpu = Gpu::with_devices(count as u32);
        let file = gpu.program("freezing");
        let devices = Devices { gpu, file, count, chunks };
        devices.configure("");
        devices
    }

    fn configure(&self, more: &str) {
        let config = format!("[memory]\ncapacity = \"{CAPACITY}\"\n{more}");
        std::fs::write(self.gpu.place.join("config.toml"), config).expect("a file");
    }

    /// Free memory of a device, as the driver alone tells it.
    fn room(&self, device: usize) -> String {
        let mut command = self.gpu.place.command(&self.file, &["2"]);
        command.env("CUDA_VISIBLE_DEVICES", device.to_string());
        let mut process = self.gpu.with_driver(command);
        process.expect("ready");
        process.tell("room");
        process.line()
    }

    fn daemon(&self) -> Process {
        self.gpu.place.daemon(&["--config", self.gpu.place.join("config.toml").to_str().expect("text")])
    }

    /// Starts the program on a device. One that is urgent takes all that programs may have.
    fn start(&self, device: usize, options: &[&str], args: &[&str], folder: Option<&Path>) -> Process {
        let mut command = self.gpu.place.run_command(options, &self.file, args);
        command.env("CUDA_VISIBLE_DEVICES", device.to_string());
        if let Some(folder) = folder {
            command.env("FAKECUDA_HOLD", format!("xsched-mover {}", folder.display()));
        }
        self.gpu.with_driver(command)
    }

    fn case(&self, device: usize) -> Case {
        let folder = self.gpu.place.join(&format!("hold-{device}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        for left in ["calls", "held"] {
            let _ = std::fs::remove_file(folder.join(left));
        }
        let go = folder.join("go");
        if !go.exists() {
            rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
        }
        let pieces = (self.chunks - 1).to_string();
        let program = self.start(device, &["--memory", "swap"], &["2", &pieces], Some(&folder));
        Case { device, folder, program, other: None, lines: [None, None] }
    }

    fn cases(&self) -> Vec<Case> {
        let mut all: Vec<Case> = (0..self.count).map(|device| self.case(device)).collect();
        all.iter_mut().for_each(|case| case.program.expect("ready"));
        all
    }

    /// Memory of programs in `ps`, by process: in MiB on the device, in MiB away, frozen or not.
    fn memory(&self) -> impl Fn(u32) -> Option<(u64, u64, bool)> + use<> {
        let answer = self.gpu.place.ps();
        move |pid| {
            let program = answer.as_ref()?["programs"].as_array()?.iter().find(|program| program["pid"] == pid)?;
            let held = &program["memory"][0]["held"];
            let mib = |name: &str| held[name].as_u64().map(|bytes| bytes / MIB);
            Some((mib("used_bytes")?, mib("away_bytes")?, held["frozen"] == json!(true)))
        }
    }

    /// Asks for a freeze or a thaw of all programs, without waiting for them.
    fn order(&self, verb: &str, all: &[Case]) -> Process {
        let pids: Vec<String> = all.iter().map(|case| case.program.pid().to_string()).collect();
        let args: Vec<&str> = std::iter::once(verb).chain(pids.iter().map(String::as_str)).collect();
        Process::start(self.gpu.place.xsched(&args))
    }

    /// Begins a move of all programs. Returns the command that asked for it, if one did.
    fn begin(&self, what: Move, all: &mut [Case]) -> Option<Process> {
        match what {
            Move::Freeze => {
                all.iter_mut().for_each(Case::end_other);
                return Some(self.order("freeze", all));
            }
            Move::Thaw => return Some(self.order("thaw", all)),
            Move::Lend => all.iter_mut().for_each(|case| case.other = Some(self.urgent(case.device))),
            Move::Leave => all.iter_mut().for_each(|case| {
                case.other = Some(self.start(case.device, &["--memory", "swap"], &ALL, None));
            }),
            Move::Return => all.iter_mut().for_each(Case::end_other),
            Move::Back => all.iter_mut().for_each(|case| case.program.tell("add")),
        }
        None
    }

    /// Makes a move of all programs to its end.
    fn make(&self, what: Move, all: &mut [Case]) {
        let order = self.begin(what, all);
        self.until_held_or_done(what, all);
        drop(order.map(Process::finish));
        all.iter_mut().for_each(|case| case.settle(what));
    }

    /// Begins a move of all programs, each of which is held one step later than the one before it, the first one after so many steps. Returns
    /// the command that asked for it, and the number of programs that are held: if all are, there are more steps.
    fn hold(&self, what: Move, after: usize, all: &mut [Case]) -> (Option<Process>, usize) {
        all.iter().zip(after + 1..).for_each(|(case, n)| case.arm(n));
        let order = self.begin(what, all);
        let held = self.until_held_or_done(what, all);
        let names: Vec<&str> = held.iter().flatten().map(String::as_str).collect();
        println!("{what:?}, {} steps after {after}: {}", names.len(), names.join(" "));
        (order, names.len())
    }

    /// Kills programs, each at another step of a move. True: there are more steps.
    fn kill_programs(&self, what: Move, after: usize) -> bool {
        let mut all = self.cases();
        match what {
            Move::Freeze | Move::Lend | Move::Leave => {}
            Move::Thaw => self.make(Move::Freeze, &mut all),
            Move::Return => self.make(Move::Lend, &mut all),
            Move::Back => self.make(Move::Leave, &mut all),
        }
        let (order, held) = self.hold(what, after, &mut all);
        assert!(held > 3 || after > 0, "{what:?} has {held} steps");
        all.iter().for_each(|case| signal(case.program.pid(), Signal::KILL));
        if let Some(order) = order {
            assert_eq!(order.wait().0, 3, "programs have ended");
        }
        for case in all.iter_mut().filter(|case| case.other.is_none()) {
            case.other = Some(self.urgent(case.device));
        }
        for case in &mut all {
            if what != Move::Back {
                until("the other program has its room", || case.other_says("ready"));
            }
            works(case.other.as_mut().expect("started"));
        }
        let memory = self.memory();
        assert!(all.iter().all(|case| memory(case.program.pid()).is_none()), "{what:?}: they are forgotten");
        all.iter_mut().for_each(Case::end_other);
        held == self.count
    }

    /// Kills the daemon while programs are held, each at another step of a move, and starts another one. True: there are more steps.
    fn kill_daemon(&self, what: Move, after: usize, daemon: &mut Process, all: &mut [Case]) -> bool {
        let (order, held) = self.hold(what, after, all);
        signal(daemon.pid(), Signal::KILL);
        drop(order.map(Process::wait));
        all.iter().for_each(Case::release);
        for case in &mut *all {
            case.settle(what);
            case.work();
        }
        *daemon = self.daemon();
        let mut memory = self.memory();
        until(&format!("the daemon knows all after {what:?}"), || {
            memory = self.memory();
            all.iter()
                .all(|case| memory(case.program.pid()).is_some_and(|memory| is_after(what, 2 * self.chunks, memory)))
        });
        if what != Move::Freeze {
            all.iter_mut().for_each(Case::work);
        }
        held == self.count
    }

    fn urgent(&self, device: usize) -> Process {
        self.start(device, &["--priority", "high"], &ALL, None)
    }

    /// Waits until the move of each program is done, or held where it was to be. Returns the names of the functions at which it is held.
    fn until_held_or_done(&self, what: Move, all: &mut [Case]) -> Vec<Option<String>> {
        let mut held: Vec<Option<String>> = vec![None; all.len()];
        let mut done = vec![false; all.len()];
        until(&format!("{what:?} is done or held"), || {
            let memory = self.memory();
            for (i, case) in all.iter_mut().enumerate() {
                held[i] = std::fs::read_to_string(case.folder.join("held")).ok();
                done[i] = done[i] || case.is_done(what, 2 * self.chunks, memory(case.program.pid()));
            }
            held.iter().zip(&done).all(|(held, done)| held.is_some() || *done)
        });
        held
    }
}

impl Case {
    /// Has the nth call of the mover from now on held.
    fn arm(&self, n: usize) {
        let _ = std::fs::remove_file(self.folder.join("held"));
        let fresh = self.folder.join("fresh");
        std::fs::write(&fresh, n.to_string()).expect("a file");
        std::fs::rename(fresh, self.folder.join("calls")).expect("a file");
    }

    /// Lets the call that is held go on, and holds none any more.
    fn release(&self) {
        let _ = std::fs::remove_file(self.folder.join("calls"));
        if std::fs::remove_file(self.folder.join("held")).is_ok() {
            drop(std::fs::OpenOptions::new().write(true).open(self.folder.join("go")).expect("the call waits"));
        }
    }

    fn is_done(&mut self, what: Move, held: u64, memory: Option<(u64, u64, bool)>) -> bool {
        match what {
            Move::Freeze => memory.is_some_and(|(_, away, frozen)| (away, frozen) == (held, true)),
            Move::Thaw => memory.is_some_and(|(_, away, frozen)| (away, frozen) == (0, false)),
            Move::Return => memory.is_some_and(|(_, away, _)| away == 0),
            Move::Lend | Move::Leave => self.other_says("ready"),
            Move::Back => self.program_says("added"),
        }
    }

    fn other_says(&mut self, wanted: &str) -> bool {
        self.other.as_mut().is_some_and(|other| says(other, &mut self.lines[1], wanted))
    }

    fn program_says(&mut self, wanted: &str) -> bool {
        says(&mut self.program, &mut self.lines[0], wanted)
    }

    fn end_other(&mut self) {
        self.other.take().map(finished);
    }

    /// Checks that both programs work.
    #[track_caller]
    fn work(&mut self) {
        works(&mut self.program);
        self.other.iter_mut().for_each(works);
    }

    /// Waits until the program has said what it was asked before, and the other one, too.
    #[track_caller]
    fn settle(&mut self, what: Move) {
        match what {
            Move::Lend | Move::Leave => until("the other program has its room", || self.other_says("ready")),
            Move::Back => until("the program goes on", || self.program_says("added")),
            _ => Duration::ZERO,
        };
        self.lines = [None, None];
    }
}

/// Checks whether a process has said this, which is the next that it says.
#[track_caller]
fn says(process: &mut Process, said: &mut Option<String>, wanted: &str) -> bool {
    *said = said.take().or_else(|| process.line_within(Duration::ZERO));
    assert!(said.as_ref().is_none_or(|line| line == wanted), "{said:?}: {}", process.errors());
    said.is_some()
}

#[track_caller]
fn works(process: &mut Process) {
    for (command, answer) in [("check", "right"), ("add", "added"), ("check", "right")] {
        process.tell(command);
        process.expect(answer);
    }
}

/// A program that is killed at any call of a move leaves all of its room, on the device and on the host, and the other program goes on.
#[test]
fn a_program_that_is_killed_within_a_move_leaves_its_room() {
    let devices = Devices::new(12, 1);
    let room = devices.room(0);
    let _daemon = devices.daemon();
    for what in MOVES {
        let mut steps = (0..).step_by(devices.count);
        while steps.next().is_some_and(|after| devices.kill_programs(what, after)) {}
    }
    // Nothing is counted as the user's on the host, and the driver has as much memory as before.
    devices.configure("host_limit = \"2MiB\"\n");
    devices.gpu.place.ask(&["daemon", "reload"]);
    let mut last = vec![devices.case(0)];
    last[0].program.expect("ready");
    devices.make(Move::Freeze, &mut last);
    devices.make(Move::Thaw, &mut last);
    works(&mut last[0].program);
    last.into_iter().for_each(|case| drop(case.program.finish()));
    assert!((0..devices.count).all(|device| devices.room(device) == room));
}

/// A daemon that is killed at any call of a move: programs go on with right contents, and the next daemon learns where their memory is.
#[test]
fn a_move_whose_daemon_is_killed_ends_well() {
    let devices = Devices::new(16, 2);
    let mut daemon = devices.daemon();
    let mut all = devices.cases();
    let mut steps = (0..).step_by(devices.count);
    let mut cut_off = |after| MOVES.map(|what| devices.kill_daemon(what, after, &mut daemon, &mut all)).contains(&true);
    while steps.next().is_some_and(&mut cut_off) {}
    for case in all {
        let pids: Vec<u32> = case.other.into_iter().chain([case.program]).map(finished).collect();
        assert!(pids.into_iter().all(|pid| devices.gpu.driver_stats(pid)["illegal"] == json!(0)));
    }
}

fn finished(process: Process) -> u32 {
    let pid = process.pid();
    assert_eq!(process.wait().0, 0);
    pid
}

/// Checks the memory of a program after a move that was cut off.
fn is_after(what: Move, held: u64, (used, away, frozen): (u64, u64, bool)) -> bool {
    match what {
        Move::Freeze => (used, away, frozen) == (0, held, true),
        Move::Thaw | Move::Return => (used, away, frozen) == (held, 0, false),
        // A daemon that does not know of the other program yet may have let memory come back.
        Move::Lend | Move::Leave | Move::Back => used + away == held && !frozen,
    }
}
