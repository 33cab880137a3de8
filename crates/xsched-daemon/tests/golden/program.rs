//! Programs, whose processes only connect; the daemon's process; and simulated progress of all groups.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, LazyLock, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use xsched_daemon::Options;
use xsched_proto::segment::{GroupSlot, Segment};
use xsched_proto::wakeup::run_first;
use xsched_proto::wire::ClientMsg;

use crate::parse::number;
use crate::support::{connect, options, receive_packet, send, send_raw};

/// Environment variable with the folder, for a process that is the daemon.
pub(crate) const FOLDER: &str = "XSCHED_TEST_FOLDER";
/// Environment variable with the socket of the daemon to which a process connects.
pub(crate) const SOCKET: &str = "XSCHED_TEST_SOCKET";
/// Environment variable with the user, for a process that is a program of another user than the test's.
pub(crate) const USER: &str = "XSCHED_TEST_USER";

/// First name of programs of another user. The daemon serves these when their user has time left, so that only an answer on a program's own
/// connection shows that its message was taken.
pub(crate) const FOREIGN: char = 'u';
/// Id of that other user.
pub(crate) const NOBODY: u32 = 65_534;

/// Lock that a thread holds while it starts processes, until each executes its program. Before that, each has all descriptors open, so that
/// a closed connection would stay open for a moment. Programs hang up only while the lock is free.
pub(crate) static STARTS: RwLock<()> = RwLock::new(());

/// Program, attached or not. Its process only makes the connection; the test does everything else for it.
pub(crate) struct Program {
    pub(crate) process: Child,
    line: OwnedFd,
    pub(crate) link: Option<Link>,
    pub(crate) groups: BTreeMap<u16, Member>,
    pub(crate) queues: BTreeMap<u16, u16>,
    pub(crate) is_alive: bool,
}

/// Connection of a program, and the memory that it shares with the daemon.
pub(crate) struct Link {
    pub(crate) socket: OwnedFd,
    pub(crate) eventfd: OwnedFd,
    pub(crate) segment: &'static Segment,
    pub(crate) _files: [OwnedFd; 2],
}

/// Group of a program, and its last state word.
pub(crate) struct Member {
    pub(crate) word: u32,
}

impl Program {
    pub(crate) fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Starts a program's process. Texts name processes by their ids, so a process whose id stands for something else there is not used.
    pub(crate) fn start(name: char, socket: &Path) -> Program {
        loop {
            let mut program = Program::start_any(name, socket);
            if !recorded_numbers().contains(&program.pid()) {
                return program;
            }
            program.process.kill().unwrap();
            program.process.wait().unwrap();
        }
    }

    fn start_any(name: char, socket: &Path) -> Program {
        let (line, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(SOCKET, socket).stdin(Stdio::from(other));
        if name >= FOREIGN {
            command.env(USER, NOBODY.to_string());
        }
        let process = command.spawn().unwrap();
        let (groups, queues) = (BTreeMap::new(), BTreeMap::new());
        receive_packet(&line).expect("a word of the process");
        Program { process, line, link: None, groups, queues, is_alive: true }
    }

    /// Makes a connection of the program's process to the daemon.
    pub(crate) fn connect(&self) -> OwnedFd {
        send_raw(&self.line, b"connect", &[]).unwrap();
        let (_, mut passed) = receive_packet(&self.line).expect("a living process");
        receive_packet(&self.line).expect("a living process");
        passed.pop().expect("a connection")
    }

    pub(crate) fn link(&self) -> &Link {
        self.link.as_ref().expect("an attached program")
    }

    pub(crate) fn say(&self, message: &ClientMsg) {
        send(&self.link().socket, message, &[]);
    }

    pub(crate) fn words(&self, slot: u16) -> &'static GroupSlot {
        &self.link().segment.groups[usize::from(slot)]
    }

    pub(crate) fn hang_up(&mut self) {
        let _no_start = STARTS.read().unwrap();
        self.link = None;
        self.groups.clear();
        self.queues.clear();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Plays the process of a program: it connects as often as the test asks it to.
pub(crate) fn be_program(socket: &Path) -> ExitCode {
    let line = rustix::stdio::stdin().try_clone_to_owned().unwrap();
    if let Some(user) = std::env::var_os(USER) {
        let user = number(user.to_str().unwrap());
        // SAFETY: both change numbers of this process, which has one thread.
        let is_changed = unsafe { libc::setresgid(user, user, user) == 0 && libc::setresuid(user, user, user) == 0 };
        assert!(is_changed);
    }
    send_raw(&line, b"here", &[]).unwrap();
    while receive_packet(&line).is_some() {
        let connection = connect(socket);
        send_raw(&line, b"connected", &[connection.as_fd()]).unwrap();
        // From here on only the test has the connection.
        drop(connection);
        send_raw(&line, b"closed", &[]).unwrap();
    }
    ExitCode::SUCCESS
}

/// Runs the daemon.
pub(crate) fn be_daemon(folder: &Path) -> ExitCode {
    let policy = std::fs::read_to_string(folder.join("policy")).ok();
    let config = vec![folder.join("config.toml")];
    let log = Some(folder.join("log"));
    match xsched_daemon::run(Options { log, config, policy, log_details: true, ..options(folder) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xsched: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

/// Simulated progress of all groups: raises the counters of commands until it ends.
pub(crate) struct Ticker {
    pub(crate) segments: Arc<Mutex<Vec<&'static Segment>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Ticker {
    pub(crate) fn start() -> Ticker {
        let (segments, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (of_thread, ended) = (segments.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            // Runs with the precedence of the daemon's loop: on a busy machine it would else wait for longer than the daemon waits for
            // progress.
            run_first();
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            while !ended.load(SeqCst) {
                count(&of_thread.lock().unwrap());
                longest = longest.max(last.elapsed());
                last = Instant::now();
                std::thread::sleep(Duration::from_millis(1));
            }
            longest
        });
        Ticker { segments, ends, thread: Some(thread) }
    }

    /// Ends the thread. Returns the longest time without a count.
    pub(crate) fn end(&mut self) -> Duration {
        self.ends.store(true, SeqCst);
        self.thread.take().map_or(Duration::ZERO, |thread| thread.join().unwrap())
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn count(segments: &[&'static Segment]) {
    for segment in segments {
        segment.groups[..8].iter().for_each(|words| _ = words.completed.fetch_add(1, SeqCst));
    }
}

/// Number of times that the daemon found a group of a program without progress.
pub(crate) fn stalls(segment: &Segment) -> u32 {
    segment.groups[..8].iter().map(|words| words.stalls.load(Relaxed)).sum()
}

/// Numbers in all recordings.
fn recorded_numbers() -> &'static HashSet<u32> {
    static NUMBERS: LazyLock<HashSet<u32>> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let texts = files.filter(|file| file.extension().is_some_and(|e| e == "txt"));
        let numbers = |text: String| {
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect::<Vec<u32>>()
        };
        texts.flat_map(|file| numbers(std::fs::read_to_string(file).unwrap())).collect()
    });
    &NUMBERS
}
