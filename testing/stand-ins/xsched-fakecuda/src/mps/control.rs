//! `nvidia-cuda-mps-control`: the control daemon, and the program that passes commands to it.

use super::log::Log;
use super::packet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Longest time for a server to come up or to answer, and for a program that connects to send its request.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Length of the queue of connections to be accepted.
const BACKLOG: i32 = 128;
/// CUDA_ERROR_MPS_CONNECTION_FAILED, for clients that connect when the daemon is about to end or has no server.
const CONNECTION_FAILED: &str = "error 805";
/// Line that a detached daemon prints once it answers, after its log.
const READY: &str = "ready";
/// Argument for the copy of the program that `-d` starts.
const DETACHED: &str = "--detached";

const USAGE: &str = "usage: nvidia-cuda-mps-control [-f | -d]; without an option, commands are read from stdin: \
    get_server_list, get_server_status PID, get_client_list PID, start_server -uid UID, terminate_client SERVER CLIENT, \
    quit [-t SECONDS]; of this stand-in's own: get_server_timeslices PID";

/// The program. Exit status 0 if everything requested was done.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => pass_on(),
        ["-f"] => serve().map(|()| true),
        ["-f", DETACHED] => detached().map(|()| true),
        ["-d"] => detach().map(|()| true),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("nvidia-cuda-mps-control: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Passes the lines of stdin to the daemon. Returns false if one of them was refused.
fn pass_on() -> io::Result<bool> {
    let mut all = true;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let daemon = packet::connect(&packet::folder())
            .map_err(|_| io::Error::other("Cannot find MPS control daemon process"))?;
        let answer = packet::ask(&daemon, &format!("command {}", line.trim()))?;
        match answer.split_once('\n') {
            Some(("ok", text)) => println!("{text}"),
            Some((_, text)) => {
                eprintln!("{text}");
                all = false;
            }
            None => all &= answer == "ok",
        }
    }
    Ok(all)
}

/// Starts a daemon that outlives this process, and waits until it answers.
fn detach() -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["-f", DETACHED]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().map(BufReader::new).ok_or(io::ErrorKind::BrokenPipe)?;
    let is_ready = stdout.lines().map_while(Result::ok).any(|line| line == READY);
    // The daemon has reported errors itself.
    if is_ready { Ok(()) } else { Err(io::Error::other("the daemon has not started")) }
}

/// Body of the daemon that `detach` starts.
fn detached() -> io::Result<()> {
    rustix::process::setsid()?;
    let daemon = Daemon::new()?;
    println!("{READY}");
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, 0.into())?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    daemon.serve()
}

fn serve() -> io::Result<()> {
    Daemon::new()?.serve()
}

/// A running server.
struct Server {
    child: Child,
    socket: OwnedFd,
}

struct Daemon {
    log: Log,
    /// Watches the pipe directory for removals.
    watch: OwnedFd,
    socket: OwnedFd,
    path: PathBuf,
    server: Option<Server>,
    quitting: bool,
    /// Time after which clients are no longer waited for.
    deadline: Option<Instant>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // If the file still exists, it is ours.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Daemon {
    fn new() -> io::Result<Self> {
        let folder = packet::folder();
        std::fs::create_dir_all(&folder)?;
        let log = Log::open("control.log", "Control")
            .map_err(|error| io::Error::other(format!("Cannot open log file: {error}")))?;
        if packet::connect(&folder).is_ok() {
            return Err(io::Error::other("An instance of this daemon is already running"));
        }
        let path = packet::control(&folder);
        match rustix::fs::unlink(&path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = packet::socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // For tests: simulates a machine that is busy at this point.
        let late_ms = std::env::var("MPS_LISTENS_LATE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(0);
        std::thread::sleep(Duration::from_millis(late_ms));
        rustix::net::listen(&socket, BACKLOG)?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let gone = inotify::WatchFlags::DELETE | inotify::WatchFlags::DELETE_SELF | inotify::WatchFlags::MOVE_SELF;
        inotify::add_watch(&watch, &folder, gone)?;
        log.line(&format!("Starting control daemon using socket {}", path.display()));
        log.line(&format!(
            "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
            folder.display()
        ));
        Ok(Self { log, watch, socket, path, server: None, quitting: false, deadline: None })
    }

    fn serve(mut self) -> io::Result<()> {
        loop {
            if self.quitting && self.server.is_none() {
                self.log.line("Exiting");
                return Ok(());
            }
            let [called, moved, server] = self.wait()?;
            if moved && !self.path.exists() {
                self.log.line("The pipe directory is gone");
                self.end_server();
                return Ok(());
            }
            if server {
                // A server only answers requests, so a readable socket here means that it has ended.
                self.reap();
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.end_server();
            } else if called {
                self.accept();
            }
        }
    }

    /// Waits for a connection, a change of the pipe directory, or the end of the server.
    fn wait(&self) -> io::Result<[bool; 3]> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().cast_signed(),
            // Not rounded down, so that the wait does not end before the deadline.
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.watch, PollFlags::IN)];
        fds.extend(self.server.as_ref().map(|server| PollFd::new(&server.socket, PollFlags::IN)));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let ready = [is_ready(0), is_ready(1), is_ready(2)];
        if ready[1] {
            // The kind of change does not matter.
            while rustix::io::read(&self.watch, &mut [0; 4096]).is_ok() {}
        }
        Ok(ready)
    }

    fn accept(&mut self) {
        let Ok(caller) = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) else { return };
        if limit_waits(&caller).is_err() {
            return;
        }
        let Ok((text, _)) = packet::receive(&caller) else { return };
        let pid = rustix::net::sockopt::socket_peercred(&caller).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        if text == "client" {
            self.log.line(&format!("NEW CLIENT {pid}"));
            if self.pass_client(&caller).is_err() {
                let _ = packet::send(&caller, CONNECTION_FAILED, None);
            }
        } else if let Some(command) = text.strip_prefix("command ") {
            let answer = match self.command(&command.split_ascii_whitespace().collect::<Vec<_>>()) {
                Ok(text) if text.is_empty() => "ok".to_string(),
                Ok(text) => format!("ok\n{text}"),
                Err(text) => format!("error\n{text}"),
            };
            let _ = packet::send(&caller, &answer, None);
        }
    }

    fn pass_client(&mut self, caller: &OwnedFd) -> io::Result<()> {
        if self.quitting {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        // A server that has ended meanwhile is replaced.
        let passed = self.start().and_then(|server| packet::send(&server.socket, "client", Some(caller.as_fd())));
        passed.or_else(|_| {
            self.reap();
            packet::send(&self.start()?.socket, "client", Some(caller.as_fd()))
        })
    }

    /// Executes a command. Returns its answer, or the error.
    fn command(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["quit"] => self.quit(None),
            ["quit", "-t", seconds] => match seconds.parse() {
                Ok(seconds) => self.quit(Some(Duration::from_secs(seconds))),
                Err(_) => Err(format!("{seconds}: expected a number of seconds")),
            },
            ["get_server_list"] => {
                Ok(self.server.as_ref().map_or_else(String::new, |server| server.child.id().to_string()))
            }
            ["get_server_status", pid] => self.ask(pid, "status"),
            ["get_client_list", pid] => self.ask(pid, "clients"),
            ["get_server_timeslices", pid] => self.ask(pid, "slices"),
            ["terminate_client", pid, client] => self.ask(pid, &format!("terminate {client}")),
            ["start_server", "-uid", uid] => {
                let own = rustix::process::geteuid().as_raw();
                if uid.parse() != Ok(own) {
                    return Err(format!("{uid}: only servers of user {own} can be started here"));
                }
                self.start().map(|_| String::new()).map_err(|error| format!("no server: {error}"))
            }
            _ => Err(format!("{}: no command of this stand-in; {USAGE}", words.join(" "))),
        }
    }

    /// Ends with the last client, or at the latest after `limit`.
    fn quit(&mut self, limit: Option<Duration>) -> Result<String, String> {
        self.log.line("Quit");
        self.quitting = true;
        if let Some(server) = &self.server {
            let _ = packet::send(&server.socket, "quit", None);
        }
        self.deadline = limit.map(|limit| Instant::now() + limit).or(self.deadline);
        Ok(String::new())
    }

    /// Sends a request to the server with this process ID.
    fn ask(&mut self, pid: &str, question: &str) -> Result<String, String> {
        let server = self.server.as_ref().filter(|server| Ok(server.child.id()) == pid.parse());
        let server = server.ok_or_else(|| format!("{pid}: no such server"))?;
        let answer = packet::ask(&server.socket, question).map_err(|error| format!("no answer: {error}"))?;
        match answer.split_once('\n') {
            Some(("error", text)) => Err(text.to_string()),
            Some((_, text)) => Ok(text.to_string()),
            None => Ok(String::new()),
        }
    }

    /// The server, started if there is none.
    fn start(&mut self) -> io::Result<&Server> {
        if self.server.is_none() {
            let started = spawn()?;
            let user = rustix::process::geteuid().as_raw();
            self.log.line(&format!("Starting new server {} for user {user}", started.child.id()));
            // Stored at once, so that it does not outlive the daemon.
            let server = self.server.insert(started);
            let up = limit_waits(&server.socket).is_ok() && packet::receive(&server.socket).is_ok();
            if !up {
                self.end_server();
                return Err(io::Error::other("the server has not started"));
            }
            self.log.line("NEW SERVER: Ready");
        }
        self.server.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Waits for a server that has ended or is about to.
    fn reap(&mut self) {
        if let Some(Server { mut child, socket }) = self.server.take() {
            drop(socket);
            let status = child.wait();
            self.log.line(&format!(
                "Server {} exited: {}",
                child.id(),
                status.map_or_else(|e| e.to_string(), |s| s.to_string())
            ));
        }
    }

    /// Ends the server even if it has clients.
    fn end_server(&mut self) {
        if let Some(server) = &self.server {
            let _ = packet::send(&server.socket, "end", None);
        }
        self.reap();
    }
}

/// Limits the time that a receive from the other side waits.
fn limit_waits(socket: &OwnedFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?)
}

/// Starts a server with this daemon's environment; it talks to the daemon over its descriptor 0.
fn spawn() -> io::Result<Server> {
    let program = std::env::current_exe()?.with_file_name("nvidia-cuda-mps-server");
    let (socket, other) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = Command::new(program).stdin(Stdio::from(other)).spawn()?;
    Ok(Server { child, socket })
}
