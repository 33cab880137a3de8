//! Programs that `xsched run` announced: they attach at their first device call, which may be minutes away, and may
//! share their GPU by MPS.

use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::process::{Pid, PidfdFlags};
use xsched_proto::wire::{DaemonMsg, MpsWish, Platform, Refusal, Share};

use crate::client::{Client, check_name};
use crate::control::Refused;
use crate::mps::Private;
use crate::server::{EXPECTED, Server, kind};

/// A program that was announced.
pub(crate) struct Expected {
    pid: u32,
    uid: u32,
    /// As clients have it.
    job: String,
    pidfd: OwnedFd,
    /// The process has ended; others of its job are attached.
    ended: bool,
    /// Pipe directory of the MPS daemon that it uses.
    mps: Option<String>,
}

impl Server {
    /// Takes the process that asks for a program from now on.
    pub(crate) fn announce(&mut self, conn: u64, job: String, wish: Option<MpsWish>) -> Result<(), Refused> {
        let environment = |line: &str| (Refusal::Environment, line.to_owned());
        let (pid, uid) = self.conns.get(&conn).map(|c| (c.pid, c.uid)).ok_or_else(|| environment("it is gone"))?;
        check_name(&job, "job").map_err(|e| (Refusal::BadRequest, e))?;
        let us = rustix::process::geteuid().as_raw();
        if us != 0 && uid != us && uid != 0 {
            return Err(environment("this daemon serves another user"));
        }
        // The same process again replaces what it said before.
        let before = self.expected.iter().find(|(_, e)| e.pid == pid && !e.ended).map(|(id, _)| *id);
        let of_user = self.expected.values().filter(|e| e.uid == uid).count();
        let full = self.expected.len() >= self.max_conns || uid != 0 && uid != us && of_user >= self.max_conns / 4;
        if before.is_none() && full {
            return Err(environment("too many programs are announced"));
        }
        let pidfd = Pid::from_raw(pid.cast_signed())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|e| environment(&format!("the process cannot be seen from here ({e})")))?;
        let mps = match wish {
            Some(wish) => self.mps_for(uid, wish)?,
            None => None,
        };
        let id = self.next_id();
        self.watch(&pidfd, id + EXPECTED, kind::OWN, EventFlags::IN)
            .map_err(|e| environment(&format!("the process cannot be watched ({e})")))?;
        if let Some(before) = before.and_then(|id| self.expected.remove(&id)) {
            self.unwatch(&before.pidfd);
        }
        let job = format!("{uid}:{job}");
        self.expected.insert(id, Expected { pid, uid, job, pidfd, ended: false, mps: mps.clone() });
        if let Some(pipe) = mps {
            self.send(conn, &DaemonMsg::Mps { pipe }, &[]);
        }
        self.settle();
        Ok(())
    }

    /// Which MPS daemon a program shall use, if any.
    fn mps_for(&mut self, uid: u32, wish: MpsWish) -> Result<Option<String>, Refused> {
        let own = |mps: &Option<Private>| mps.as_ref().filter(|m| m.alive()).map(|m| m.pipe().to_owned());
        let pipe = wish.running.or_else(|| own(&self.mps));
        if wish.if_all && !self.all_use(pipe.as_deref()) {
            return Ok(None);
        }
        if let Some(pipe) = pipe {
            return Ok(Some(pipe));
        }
        if !wish.start {
            return Err((Refusal::Environment, "no MPS daemon runs".to_owned()));
        }
        if uid != rustix::process::geteuid().as_raw() {
            let line = "the daemon starts an MPS daemon for its own user only; start nvidia-cuda-mps-control yourself";
            return Err((Refusal::Environment, line.to_owned()));
        }
        let started = Private::start(self.listener.path()).map_err(|line| (Refusal::Environment, line))?;
        let pipe = started.pipe().to_owned();
        // One that died is not worth ending.
        self.mps = Some(started);
        Ok(Some(pipe))
    }

    /// Whether no attached program uses a CUDA device but by the MPS daemon at `pipe`.
    fn all_use(&self, pipe: Option<&str>) -> bool {
        let cuda = |c: &Client| {
            c.groups.iter().any(|id| self.groups.get(id).is_some_and(|group| group.platform == Platform::Cuda))
        };
        let mut clients = self.conns.values().filter_map(|c| c.client()).filter(|c| cuda(c));
        clients.all(|c| pipe.is_some() && self.announced(c).is_some_and(|e| e.mps.as_deref() == pipe))
    }

    fn announced(&self, client: &Client) -> Option<&Expected> {
        let itself = self.expected.values().find(|e| e.pid == client.peer.pid && !e.ended);
        itself.or_else(|| self.expected.values().find(|e| Some(&e.job) == client.job.as_ref()))
    }

    /// How an attached program shares its GPU, as far as it was announced.
    pub(crate) fn share_of(&self, client: &Client) -> Option<Share> {
        self.announced(client).map(|e| if e.mps.is_some() { Share::Spatial } else { Share::Time })
    }

    /// A process that was announced has ended.
    pub(crate) fn expected_ended(&mut self, id: u64) {
        if let Some(expected) = self.expected.get_mut(&id) {
            expected.ended = true;
        }
        if let Some(expected) = self.expected.get(&id) {
            self.unwatch(&expected.pidfd);
        }
        self.settle();
    }

    /// Forgets programs that are gone, ends an MPS daemon that nobody uses, and notes since when nobody is here.
    pub(crate) fn settle(&mut self) {
        let conns = &self.conns;
        let attached =
            |job: &str| conns.values().filter_map(|c| c.client()).any(|c| c.job.as_deref().is_some_and(|j| j == job));
        self.expected.retain(|_, e| !e.ended || attached(&e.job));
        let unused = |mps: &mut Private| !self.expected.values().any(|e| e.mps.as_deref() == Some(mps.pipe()));
        if let Some(mps) = self.mps.take_if(unused) {
            mps.end();
        }
        if self.conns.is_empty() && self.expected.is_empty() {
            self.idle_since.get_or_insert(self.now_ns);
        } else {
            self.idle_since = None;
        }
    }
}
