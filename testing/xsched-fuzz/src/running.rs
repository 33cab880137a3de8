//! Daemons in a thread of this process.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use xsched_daemon::{Error, Options};
use xsched_proto::ask::{self, NoAnswer};
use xsched_proto::host::{FromHost, Question};
use xsched_proto::wire::{ClientMsg, DaemonInfo, DaemonMsg, MAX_PACKET, ProgramInfo, Request, decode, encode};

/// Longest time of an answer of a daemon in good order, even under a sanitizer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Running {
    pub(crate) socket: PathBuf,
    thread: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Starts a daemon that listens.
    pub(crate) fn start(socket: &Path, state: Option<&Path>) -> Running {
        let options = options(socket, state);
        Running::of(socket, move || xsched_daemon::run(options))
    }

    /// Starts a daemon with a scheduler, which answers each question at once: groups that want the device may have it in turn.
    pub(crate) fn with_scheduler(socket: &Path, state: &Path, config: &Path, per_stream: bool) -> Running {
        let options = Options { config: vec![config.to_owned()], ..options(socket, Some(state)) };
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (own, theirs) = pair.expect("a pair of sockets");
        std::thread::spawn(move || answer_questions(&theirs));
        Running::of(socket, move || xsched_daemon::fuzzing::run_with_scheduler(&options, own, per_stream))
    }

    fn of(socket: &Path, run: impl FnOnce() -> Result<(), Error> + Send + 'static) -> Running {
        let running = Running { socket: socket.to_owned(), thread: std::thread::spawn(run) };
        let end = Instant::now() + PATIENCE;
        while connect(socket).is_none() {
            assert!(!running.thread.is_finished() && Instant::now() < end, "the daemon does not listen");
            std::thread::yield_now();
        }
        running
    }

    /// Report of the daemon on itself and its programs.
    pub(crate) fn ps(&self) -> (DaemonInfo, Vec<ProgramInfo>) {
        let answer = ask::ask(&self.socket, Request::Ps, PATIENCE).unwrap_or_else(|why| panic!("no answer: {why:?}"));
        let (mut daemon, mut programs): (Option<DaemonInfo>, _) = (None, Vec::new());
        for part in answer {
            match part {
                DaemonMsg::Daemon(said) => daemon = Some(said),
                DaemonMsg::Program(program) => programs.push(*program),
                _ => {}
            }
        }
        let daemon = daemon.expect("a word about the daemon");
        // Caught panics count, too.
        assert_eq!(daemon.panics, 0, "the daemon has panicked: its log has the place");
        (daemon, programs)
    }

    /// Stops the daemon and waits for its thread.
    pub(crate) fn end(self) {
        match ask::ask(&self.socket, Request::Stop, PATIENCE) {
            Ok(_) | Err(NoAnswer::HungUp) => {}
            Err(why) => panic!("it does not stop: {why:?}"),
        }
        self.thread.join().expect("no panic").expect("it ends well");
    }
}

/// Connects to a daemon; none = no process listens.
pub(crate) fn connect(socket: &Path) -> Option<OwnedFd> {
    let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let made = made.expect("a socket");
    rustix::net::connect(&made, &SocketAddrUnix::new(socket).expect("a short path")).ok()?;
    Some(made)
}

/// Sends a message. A daemon that has hung up is no error.
pub(crate) fn send(socket: &OwnedFd, message: &ClientMsg) {
    if let Ok(packet) = encode(message) {
        let _ = rustix::net::send(socket, &packet, SendFlags::NOSIGNAL);
    }
}

fn options(socket: &Path, state: Option<&Path>) -> Options {
    Options {
        socket: socket.to_owned(),
        policy: None,
        scheduler: None,
        usual_config: Vec::new(),
        metrics_not_of: None,
        config: Vec::new(),
        log: Some(crate::scratch::place("log")),
        log_details: false,
        library: None,
        pool_keeper: None,
        device_host: None,
        state: state.map(Path::to_owned),
        idle_exit: None,
        seed: 1,
        bursts: None,
    }
}

fn answer_questions(socket: &OwnedFd) {
    let mut buffer = vec![0; MAX_PACKET];
    while let Ok((length, _)) = rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty())
        && length > 0
    {
        let Question { device, number, groups, .. } = decode(&buffer[..length]).expect("a question");
        let wanting: Vec<u64> = groups.iter().filter(|group| group.ready).map(|group| group.id).collect();
        let run = wanting.get(number as usize % wanting.len().max(1)).copied().into_iter().collect();
        let answer = FromHost::Answer { device, number, run, again_in_us: None };
        let _ = rustix::net::send(socket, &encode(&answer).expect("small"), SendFlags::NOSIGNAL);
    }
}
