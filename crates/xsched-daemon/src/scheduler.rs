//! An operator's own scheduler: a process beside the daemon that is asked and answers, and whose end costs only itself.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use xsched_policy::{Answer, Event, GroupId, Question, registry};
use xsched_proto::host::{self, FromHost};
use xsched_proto::wire::{MAX_PACKET, decode, encode};

use crate::Error;
use crate::server::Server;
use crate::tuning::{AGAIN_US, DEADLINE_NS, LOAD_S};

/// Whether it is found out by asking or by hearing.
const ENDED: &str = "it ended";
/// The policy that asks.
pub(crate) const POLICY: &str = "external";

/// The process.
pub(crate) struct Host {
    library: PathBuf,
    child: Option<Child>,
    pub(crate) socket: OwnedFd,
    /// Questions without an answer, and since when the oldest one waits.
    open: u32,
    asked_ns: u64,
}

impl Host {
    /// Starts it and waits until the library has registered its scheduler.
    pub(crate) fn start(library: &Path) -> Result<Host, Error> {
        let shown = library.display();
        let failed = |e: &dyn std::fmt::Display| Error::Environment(format!("cannot start the scheduler {shown}: {e}"));
        let (socket, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|e| failed(&e))?;
        let exe = std::env::current_exe().map_err(|e| failed(&e))?;
        let child = Command::new(exe)
            .arg("scheduler-host")
            .arg(library)
            .env("XSCHED_DISABLE", "1")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| failed(&e))?;
        let host = Host { library: library.to_owned(), child: Some(child), socket, open: 0, asked_ns: 0 };
        let mut fds = [PollFd::new(&host.socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: LOAD_S, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&patience)).map_err(|e| failed(&e))? == 0 {
            return Err(Error::Input(format!("the scheduler {shown} does not register itself within {LOAD_S} s")));
        }
        match host.receive() {
            Ok(Some(FromHost::Loaded)) => Ok(host),
            Ok(Some(FromHost::Failed(why))) => Err(Error::Input(format!("the scheduler {shown}: {why}"))),
            _ => Err(Error::Input(format!("the scheduler {shown} ended while it was loaded"))),
        }
    }

    /// One message; none = nothing there. An error = it is gone, or speaks nonsense.
    fn receive(&self) -> Result<Option<FromHost>, Error> {
        let mut buffer = vec![0; MAX_PACKET];
        match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(Error::environment(ENDED)),
            Ok((_, length)) => decode(&buffer[..length]).map(Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(Error::environment(ENDED)),
        }
    }

    /// When an answer is overdue, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        (self.open > 0).then_some(self.asked_ns + DEADLINE_NS)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        // One that crashed may be busy leaving a core file: the daemon does not wait for that.
        std::thread::spawn(move || child.wait());
    }
}

impl Server {
    /// Passes the policy's questions on.
    pub(crate) fn ask_scheduler(&mut self) {
        for (device, question) in self.gatekeeper.questions() {
            let message = self.question_for_host(device, question);
            let now_ns = self.now_ns;
            let Some(host) = &mut self.scheduler else { return };
            let sent = encode(&message).map_err(|_| Errno::MSGSIZE).and_then(|packet| {
                rustix::net::send(&host.socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(|_| ())
            });
            match sent {
                Ok(()) => {
                    if host.open == 0 {
                        host.asked_ns = now_ns;
                    }
                    host.open += 1;
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return self.scheduler_failed(ENDED),
                Err(e) => return self.scheduler_failed(&format!("it does not take questions ({e})")),
            }
        }
    }

    fn question_for_host(&self, device: String, question: Question) -> host::Question {
        let group = |g: xsched_policy::Group| host::Group {
            id: g.id.0,
            program: g.program.0,
            pid: self.conns.get(&g.program.0).map_or(0, |c| c.pid),
            weight: g.weight,
            priority: g.priority,
            ready: g.ready,
            running: g.granted,
            timeslice_us: g.timeslice_us,
            ready_since_us: g.ready_since,
            used_us: g.used_us as u64,
        };
        let groups = question.groups.into_iter().map(group).collect();
        host::Question { device, number: question.number, groups }
    }

    /// Takes the answers that are there.
    pub(crate) fn hear_scheduler(&mut self) {
        loop {
            let Some(host) = &mut self.scheduler else { return };
            match host.receive() {
                Ok(None) => return,
                Ok(Some(FromHost::Answer { device, number, run, again_in_us })) if host.open > 0 => {
                    host.open -= 1;
                    host.asked_ns = self.now_ns;
                    let run = run.into_iter().map(GroupId).collect();
                    let again_in_us = again_in_us.map(|us| us.clamp(AGAIN_US.0, AGAIN_US.1));
                    self.event(Event::Answer { device, answer: Answer { number, run, again_in_us } });
                }
                Ok(Some(_)) => return self.scheduler_failed("it speaks out of turn"),
                Err(why) => return self.scheduler_failed(&why.to_string()),
            }
        }
    }

    /// Ends it if an answer is overdue.
    pub(crate) fn watch_scheduler(&mut self) {
        if self.scheduler.as_ref().and_then(Host::deadline_ns).is_some_and(|at| at <= self.now_ns) {
            self.scheduler_failed(&format!("it did not answer within {} ms", DEADLINE_NS / 1_000_000));
        }
    }

    fn scheduler_failed(&mut self, why: &str) {
        let Some(host) = self.scheduler.take() else { return };
        let _ = epoll::delete(&self.epoll, host.socket.as_fd());
        let default = registry::DEFAULT;
        let now_us = self.now_us();
        let back =
            self.gatekeeper.arbiter().policy().name == POLICY && self.gatekeeper.set_policy(now_us, default).is_ok();
        if back {
            for id in self.groups.keys().copied().collect::<Vec<_>>() {
                self.publish_level(id);
            }
            self.act();
        }
        let then = if back { format!(": the policy is {default} from here on") } else { String::new() };
        self.say(&format!("the scheduler {} failed: {why}{then}", host.library.display()));
    }

    /// Begins to listen to it.
    pub(crate) fn watch_scheduler_socket(&self, token: u64) -> Result<(), Error> {
        let Some(host) = &self.scheduler else { return Ok(()) };
        epoll::add(&self.epoll, &host.socket, EventData::new_u64(token), EventFlags::IN)
            .map_err(|e| Error::Environment(format!("cannot make an epoll entry: {e}")))
    }
}
