//! Programs that `xsched run` announced: they attach at their first device call, which may be minutes away, and may
//! share their GPU by MPS.

use std::sync::atomic::Ordering::Relaxed;

use rustix::event::epoll::EventFlags;
use rustix::process::{Pid, PidfdFlags};
use xsched_proto::wire::{DaemonMsg, MpsWish, Platform, Share};

use crate::Error;
use crate::client::{Client, Expected, check_name};
use crate::long_kernels;
use crate::mps::Private;
use crate::server::{EXPECTED, Server, kind};

impl Server {
    /// Takes the process that asks for a program from now on.
    pub(crate) fn announce(
        &mut self,
        conn: u64,
        job: String,
        program: String,
        wish: Option<MpsWish>,
    ) -> Result<(), Error> {
        let environment = |line: &str| Error::environment(line);
        let (pid, uid) = self.conns.get(&conn).map(|c| (c.pid, c.uid)).ok_or_else(|| environment("it is gone"))?;
        check_name(&job, "job")?;
        let program = long_kernels::key(uid, &program);
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
        let answer = wish.map(|wish| self.share(uid, &program, wish)).transpose()?;
        let mps = match &answer {
            Some(DaemonMsg::Mps { pipe, .. }) => Some(pipe.clone()),
            _ => None,
        };
        let id = self.next_id();
        self.watch(&pidfd, id + EXPECTED, kind::OWN, EventFlags::IN)
            .map_err(|e| environment(&format!("the process cannot be watched ({e})")))?;
        if let Some(before) = before.and_then(|id| self.expected.remove(&id)) {
            self.unwatch(&before.pidfd);
        }
        let job = format!("{uid}:{job}");
        self.expected.insert(id, Expected { pid, uid, job, pidfd, ended: false, program, mps });
        if let Some(answer) = answer {
            self.send(conn, &answer, &[]);
        }
        self.settle();
        Ok(())
    }

    /// Which MPS daemon a program shall use, or why none.
    fn share(&mut self, uid: u32, program: &str, wish: MpsWish) -> Result<DaemonMsg, Error> {
        let own = |mps: &Option<Private>| mps.as_ref().filter(|m| m.alive()).map(|m| m.pipe().to_owned());
        let pipe = wish.running.or_else(|| own(&self.mps));
        let warning = self.long_kernels.of(program).map(|us| {
            let ms = us as f64 / 1e3;
            format!("this program ran kernels of {ms:.1} ms under MPS, which hold up all others")
        });
        if wish.if_pays {
            if let Some(why) = warning {
                return Ok(DaemonMsg::ByTime { why });
            }
            if !self.all_use(pipe.as_deref()) {
                return Ok(DaemonMsg::ByTime { why: "other programs share a GPU by time".to_owned() });
            }
        }
        if let Some(pipe) = pipe {
            return Ok(DaemonMsg::Mps { pipe, warning });
        }
        if !wish.start {
            return Err(Error::environment("no MPS daemon runs"));
        }
        if uid != rustix::process::geteuid().as_raw() {
            let line = "the daemon starts an MPS daemon for its own user only; start nvidia-cuda-mps-control yourself";
            return Err(Error::environment(line));
        }
        let started = Private::start(self.listener.path())?;
        let pipe = started.pipe().to_owned();
        // One that died is not worth ending.
        self.mps = Some(started);
        Ok(DaemonMsg::Mps { pipe, warning })
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

    /// Remembers a program whose kernels are too long for MPS, while it is still attached.
    pub(crate) fn note_kernels(&mut self, conn: u64) {
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return };
        let Some(expected) = self.announced(client).filter(|e| e.mps.is_some()) else { return };
        let groups = client.groups.iter().filter_map(|id| self.groups.get(id));
        let Some(longest_us) = groups.map(|group| group.words.longest_us.load(Relaxed)).max() else { return };
        let program = expected.program.clone();
        match self.long_kernels.note(&program, longest_us) {
            Ok(()) => (),
            Err(e) => self.log(&e.to_string()),
        }
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

    /// Forgets programs that are gone, ends an MPS daemon without programs, and notes since when there is no client.
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
