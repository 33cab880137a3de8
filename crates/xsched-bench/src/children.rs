//! Processes that a measuring command starts. They always end with the command, each by its own process id.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::client;
use crate::failure::{Error, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Makes Ctrl-C and SIGTERM end the command by way of [`check`] from now on, so that it cleans up.
pub(crate) fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler stores to an atomic and does nothing else.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// Fails once the user has interrupted the command.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Error::Interrupted("interrupted".into())) } else { Ok(()) }
}

/// Child process that ends with the command at the latest.
#[derive(Debug)]
pub(crate) struct Guarded {
    child: Child,
    what: &'static str,
}

impl Guarded {
    /// Starts the child.
    pub(crate) fn spawn(mut command: Command, what: &'static str) -> Result<Guarded> {
        let parent = std::process::id();
        // SAFETY: prctl and getppid are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // If this process is killed, the child is killed too.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() as u32 != parent { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
            });
        }
        let child = command.spawn().map_err(|e| Error::environment(format!("cannot start {what}: {e}")))?;
        Ok(Guarded { child, what })
    }

    /// Process id of the child.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the child's end; none = it still runs after `patience`.
    pub(crate) fn ended_within(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            check()?;
            if let Some(status) = self.child.try_wait().map_err(Error::environment)? {
                return Ok(Some(status));
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the child answers at `socket`.
    pub(crate) fn answers_at(&self, socket: &Path) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let pidfd = Pid::from_raw(self.child.id() as i32)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|e| Error::environment(format!("cannot watch {}: {e}", self.what)))?;
        while client::connect(socket).is_err() {
            check()?;
            if client::readable(&pidfd, Duration::from_millis(2)).map_err(Error::environment)? {
                return Err(Error::environment(format!("{} ended as soon as it was started", self.what)));
            }
            if Instant::now() > deadline {
                return Err(Error::environment(format!("{} does not answer", self.what)));
            }
        }
        Ok(())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            // SIGTERM comes first, so that a daemon removes its socket.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
            let gone = rustix::process::pidfd_open(pid, PidfdFlags::empty())
                .is_ok_and(|fd| client::readable(&fd, Duration::from_secs(1)).unwrap_or(false));
            if !gone {
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }
}

/// Worker, with its input and output.
#[derive(Debug)]
pub(crate) struct Worker {
    stdin: Option<ChildStdin>,
    stdout: OwnedFd,
    pending: Vec<u8>,
    process: Guarded,
}

impl Worker {
    /// Starts a worker.
    pub(crate) fn spawn(mut command: Command, what: &'static str) -> Result<Worker> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Guarded::spawn(command, what)?;
        let stdin = process.child.stdin.take();
        let stdout = process.child.stdout.take().ok_or_else(|| Error::environment("a worker without stdout"))?.into();
        Ok(Worker { stdin, stdout, pending: Vec::new(), process })
    }

    /// Process id of the worker.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends the worker the line `go`.
    pub(crate) fn go(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or_else(|| Error::environment("a worker without stdin"))?;
        stdin.write_all(b"go\n").map_err(|e| Error::environment(format!("lost {}: {e}", self.process.what)))
    }

    /// Closes the child's standard input, at which the child stops.
    pub(crate) fn stop(&mut self) {
        self.stdin = None;
    }

    /// Waits for one line, which must be `expected`.
    pub(crate) fn expect(&mut self, expected: &str, patience: Duration) -> Result<()> {
        let line = self.line(patience)?;
        if line == expected {
            Ok(())
        } else {
            Err(Error::environment(format!("{} said '{line}' instead of '{expected}'", self.process.what)))
        }
    }

    /// Next line of the worker's output.
    pub(crate) fn line(&mut self, patience: Duration) -> Result<String> {
        let what = self.process.what;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(end) = self.pending.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            check()?;
            if Instant::now() > deadline {
                return Err(Error::environment(format!("{what} said nothing for {} s", patience.as_secs())));
            }
            if client::readable(&self.stdout, Duration::from_millis(100)).map_err(Error::environment)? {
                let mut bytes = [0u8; 4096];
                match rustix::io::read(&self.stdout, &mut bytes) {
                    Ok(0) => {
                        check()?;
                        let status = self.process.child.wait().map_err(Error::environment)?;
                        return Err(Error::environment(format!("{what} ended ({status})")));
                    }
                    Ok(n) => self.pending.extend_from_slice(&bytes[..n]),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(Error::environment(format!("lost {what}: {e}"))),
                }
            }
        }
    }
}
