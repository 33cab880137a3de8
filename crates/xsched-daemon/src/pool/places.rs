//! Places in pools: which programs are in one, and when a pool begins and ends.
//!
//! - A process asks for a place in a pool of its user when it first touches a GPU ([`Server::join_pool`]). [`Asking::place`] decides. The
//!   first process of a pool waits until the server has reported that its slices hold ([`Server::pool_server`]).
//! - A process keeps its place until it ends, whatever happens to its connections.
//! - A pool that a GPU fault has broken takes no process in; the next process starts another.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use xsched_engine::{Asking, Placement, Side, check_name};
use xsched_proto::class::Class;
use xsched_proto::wire::DaemonMsg;

use crate::Error;
use crate::net::Own;
use crate::pool::keeper::{Order, Owner};
use crate::pool::process::{self, Process};
use crate::pool::trusted::Joining;
use crate::pool::{Pool, Stage, log, machine};
use crate::server::Server;
use crate::services::trust::Known;
use crate::tuning::{POOL_BLAME_NS, POOL_LINGER_NS, POOL_MEMBERS_MAX, POOL_RETRY_NS, POOL_START_NS};

impl Server {
    /// Gives a process its place: in a pool, whose start may take a while, or outside. Returns true if the answer was sent.
    pub(crate) fn place(&mut self, conn: u64, member: u64, owner: &Owner, joining: &Joining, known: &Known) -> bool {
        let uid = owner.uid;
        loop {
            let placed = self.asking(conn, member, joining, known, |asking| (asking.place(), asking.is_urgent()));
            let (placement, is_urgent) = placed.unwrap_or((Placement::Time(None), false));
            let (side, why) = match placement {
                Placement::Time(why) => {
                    self.note_place(member, None, false, why.as_deref());
                    return self.by_time(conn, uid, why);
                }
                Placement::Inner(why) => (Side::Inner, why),
                Placement::Outer(why) => (Side::Outer, why),
            };
            let at = match self.pool_at(uid, side) {
                Some(at) => at,
                None => match self.start_pool(owner.clone(), side) {
                    Ok(at) => at,
                    Err(why) => {
                        // With the pools of this side refused, the process gets another place.
                        self.log(&format!("user {uid}: {}", why.line()));
                        self.refuse_pools(uid, side, why.line());
                        continue;
                    }
                },
            };
            let pool = &mut self.places.pools.list[at];
            pool.unused_ns = None;
            let id = pool.id;
            pool.waiting.push(conn);
            self.note_place(member, Some(id), is_urgent && side == Side::Inner, Some(&why));
            self.poll_pools();
            return false;
        }
    }

    /// Notes the place of a process, with the reason.
    fn note_place(&mut self, member: u64, pool: Option<u64>, is_urgent: bool, why: Option<&str>) {
        if let Some(expected) = self.places.expected.get_mut(&member) {
            (expected.pool, expected.is_urgent, expected.why) = (pool, is_urgent, why.map(Into::into));
        }
    }

    /// Pool of a user that takes processes in.
    fn pool_at(&self, uid: u32, side: Side) -> Option<usize> {
        let theirs = |p: &Pool| p.uid == uid && p.side == side && p.stage != Stage::Ending;
        self.places.pools.list.iter().position(theirs)
    }

    /// Handles the refusal of a process by the server of a pool. The process cannot be helped any more, since its driver remembers the
    /// refusal. The next process gets another pool; if it is refused as well, pools are given up.
    pub(crate) fn pool_refused(&mut self, uid: u32, pipe: &str) {
        let theirs = |p: &&Pool| p.uid == uid && p.process.pipe() == pipe;
        let Some((id, side)) = self.places.pools.list.iter().find(theirs).map(|p| (p.id, p.side)) else { return };
        let last_ns = self.places.pools.refusals.insert((uid, side), self.now_ns);
        if last_ns.is_some_and(|last_ns| self.now_ns.saturating_sub(last_ns) < POOL_RETRY_NS) {
            self.give_up_pool(id, "no pool: its server refuses programs");
        } else {
            self.end_pool(id);
        }
    }

    /// Answers a process that it makes contexts of its own. Returns true: the answer was sent.
    fn by_time(&mut self, conn: u64, uid: u32, why: Option<String>) -> bool {
        let why = why.and_then(|why| self.places.pools.tell_once(uid, why));
        self.net.send(conn, &DaemonMsg::ByTime { why }, &[]);
        true
    }

    /// Runs a function on the facts about a process that asks for a place. None: the process is gone.
    pub(crate) fn asking<T>(
        &self,
        conn: u64,
        member: u64,
        joining: &Joining,
        known: &Known,
        answer: impl FnOnce(&Asking<'_>) -> T,
    ) -> Option<T> {
        let expected = self.places.expected.get(&member)?;
        let (user, program) = (expected.user, expected.program.clone());
        let impossible = match self.places.pools.library {
            None => Some("libxsched.so is not beside the daemon's program".to_owned()),
            Some(_) => machine::obstacle(),
        };
        let unsuitable = program.and_then(|program| self.places.unsuitable.of(&program));
        let [inner_refused, outer_refused] = Side::ALL.map(|side| self.why_refused(user.uid, side));
        let mut policies = self.engine.arbiter().policies_in_force();
        let asking = Asking {
            class: Class::of(self.priority_to_be(conn, joining.priority)),
            insists: joining.insists,
            is_contained: user.is_contained(),
            may_pool: self.config.may_pool(),
            max_class: self.config.pool_max_class(),
            obstacle: joining.obstacle.as_deref(),
            turns: policies.find(|choice| choice.entry.takes_turns).map(|choice| choice.entry.name),
            unsuitable: unsuitable.as_deref(),
            impossible: impossible.as_deref(),
            inner_refused: inner_refused.as_deref(),
            outer_refused: outer_refused.as_deref(),
            urgent: self.config.pool_urgent(),
            has_urgent: known.has_urgent || self.has_urgent_inside(user.uid),
            standing: &known.standing,
        };
        Some(answer(&asking))
    }

    /// Reason for which a user's pool takes no process in.
    pub(crate) fn why_refused(&self, uid: u32, side: Side) -> Option<String> {
        let refused = self.places.pools.refused.get(&(uid, side)).filter(|(_, until_ns)| *until_ns > self.now_ns);
        if let Some((why, _)) = refused {
            return Some(why.clone());
        }
        let id = self.places.pools.list[self.pool_at(uid, side)?].id;
        let members = self.places.expected.values().filter(|e| !e.ended && e.pool == Some(id)).count();
        let is_full = members >= POOL_MEMBERS_MAX;
        is_full.then(|| format!("{POOL_MEMBERS_MAX} programs are in the pool, which has room for no more"))
    }

    /// Reports whether an urgent program of a user is in the inner pool.
    fn has_urgent_inside(&self, uid: u32) -> bool {
        self.places.expected.values().any(|e| e.user.uid == uid && !e.ended && e.is_urgent)
    }

    /// Starts a pool of a user. Returns its place in the list.
    fn start_pool(&mut self, owner: Owner, side: Side) -> Result<usize, Error> {
        let id = self.net.next_id();
        let library = self.places.pools.library.clone().unwrap_or_default();
        let socket = self.net.listener.path().to_owned();
        let timeslice_us = self.config.pool_timeslice_us(side);
        let uid = owner.uid;
        let process = Process::start(
            Order { owner, library, socket, pool: id, timeslice_us },
            self.places.pools.keeper.as_deref(),
        )?;
        // Watched until the keeper has answered.
        let _ = self.net.watch_own(&process.keeper, Own::Pools);
        self.places.pools.list.push(Pool {
            id,
            uid,
            side,
            process,
            stage: Stage::Starting,
            waiting: Vec::new(),
            reports: 0,
            devices: 1,
            started_ns: self.now_ns,
            server: None,
            unused_ns: None,
            has_broken: false,
            is_named: false,
            cut_off_ns: None,
        });
        Ok(self.places.pools.list.len() - 1)
    }

    /// Has the loop woken up by new lines in a pool's log, and by the end of the pool.
    fn watch_pool(&mut self, id: u64) {
        if self.places.pools.watch.is_none() {
            let Ok(watch) = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) else { return };
            let added = self.net.watch_own(&watch, Own::Pools);
            self.places.pools.watch = added.is_ok().then_some(watch);
        }
        let Some(pool) = self.places.pools.list.iter().find(|pool| pool.id == id) else { return };
        self.net.unwatch(&pool.process.keeper);
        if let Some(pidfd) = pool.process.pidfd() {
            let _ = self.net.watch_own(pidfd, Own::Pools);
        }
        if let (Some(watch), Some(path)) = (&self.places.pools.watch, pool.process.log_path()) {
            // Without the watch, a fault is noticed when the next program comes.
            let _ = inotify::add_watch(watch, path, WatchFlags::MODIFY);
        }
    }

    /// Handles new lines in pools' logs, and ends of pools.
    pub(crate) fn take_pool_logs(&mut self) {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        if let Some(watch) = &self.places.pools.watch {
            let mut reader = inotify::Reader::new(watch, &mut buffer);
            while reader.next().is_ok() {}
        }
        self.poll_pools();
    }

    /// Handles the report of a pool's server on its time slice on one device.
    pub(crate) fn pool_server(&mut self, conn: u64, pool: u64, fault: Option<String>) -> Result<(), Error> {
        let (pid, uid) = self.net.conns.get(&conn).map(|c| (c.pid, c.user.uid)).unzip();
        let theirs = |p: &&mut Pool| p.id == pool && Some(p.uid) == uid;
        let pool = self
            .places
            .pools
            .list
            .iter_mut()
            .find(theirs)
            .ok_or_else(|| Error::environment("there is no such pool"))?;
        match fault {
            None => {
                pool.reports += 1;
                if pool.server.is_none()
                    && let Some(server) = pid.and_then(process::MpsServer::of)
                {
                    let _ = self.net.watch_own(&server.pidfd, Own::Pools);
                    pool.server = Some(server);
                }
            }
            Some(fault) => {
                check_name(&fault, "reason")?;
                let id = pool.id;
                self.give_up_pool(id, &format!("no pool: {fault}"));
            }
        }
        self.poll_pools();
        Ok(())
    }

    /// Reads the lines that pools have written, and handles pools that start or end.
    pub(crate) fn poll_pools(&mut self) {
        let now_ns = self.now_ns;
        let (mut over, mut faults, mut lost, mut begun) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for pool in &mut self.places.pools.list {
            match pool.process.hear() {
                Ok(None) => {}
                Ok(Some(gpus)) => {
                    pool.devices = gpus.max(1);
                    begun.push(pool.id);
                }
                Err(why) => {
                    over.push((pool.id, format!("no pool: {}", why.line())));
                    continue;
                }
            }
            if let Some(server) = pool.server.take_if(|server| server.is_ending()) {
                self.net.unwatch(&server.pidfd);
                lost.push(pool.id);
            }
            let news = pool.process.news();
            if let Some(fault) = log::fault(&news) {
                faults.push((pool.id, fault));
            }
            if pool.stage == Stage::Starting && pool.process.answers() {
                pool.stage = Stage::Asked;
                pool.process.start_server();
            }
            if pool.stage == Stage::Asked && pool.reports >= pool.devices {
                pool.stage = Stage::Serving;
            }
            let starts = matches!(pool.stage, Stage::Starting | Stage::Asked);
            if starts && !pool.process.is_alive() {
                let last = news.lines().next_back().unwrap_or("its log says nothing");
                over.push((pool.id, format!("no pool: the MPS daemon has ended ({last})")));
            } else if starts && now_ns.saturating_sub(pool.started_ns) > POOL_START_NS {
                over.push((pool.id, "no pool: the MPS server does not start".to_owned()));
            }
        }
        begun.into_iter().for_each(|id| self.watch_pool(id));
        for (id, why) in over {
            self.give_up_pool(id, &why);
        }
        for (id, fault) in faults {
            self.fault(id, fault);
        }
        lost.into_iter().for_each(|id| self.end_pool(id));
        let ended: Vec<Pool> = self.places.pools.list.extract_if(.., |pool| !pool.process.is_alive()).collect();
        for pool in ended {
            if let Some(pidfd) = pool.process.pidfd() {
                self.net.unwatch(pidfd);
            }
            if let Some(server) = &pool.server {
                self.net.unwatch(&server.pidfd);
            }
            self.move_on(pool.waiting, pool.side);
            pool.process.bury();
        }
        self.admit();
        self.end_unused_pools();
    }

    /// Answers processes that wait for a pool which serves and is not in doubt.
    fn admit(&mut self) {
        let (mut admitted, now_ns) = (Vec::new(), self.now_ns);
        let ready = |pool: &&mut Pool| pool.stage == Stage::Serving && !pool.is_doubtful(now_ns);
        for pool in self.places.pools.list.iter_mut().filter(ready) {
            let pipe = pool.process.pipe().to_owned();
            admitted.extend(pool.waiting.drain(..).map(|conn| (conn, pool.uid, pool.side, pipe.clone())));
        }
        for (conn, uid, side, pipe) in admitted {
            let note = match side {
                Side::Inner => {
                    "in the inner pool, with urgent programs: a GPU fault of one program ends all of them; \
                     --share time keeps one apart"
                }
                Side::Outer => {
                    "in a pool: a GPU fault of one program ends all best-effort programs of its user; \
                     --share time keeps one apart"
                }
            };
            let note = self.places.pools.tell_once(uid, note.to_owned());
            let pid = self.net.conns.get(&conn).map(|c| c.pid);
            let is_urgent = self.places.expected.values().any(|e| Some(e.pid) == pid && !e.ended && e.is_urgent);
            self.net.send(conn, &DaemonMsg::Pool { pipe, note, is_urgent }, &[]);
            self.finish(conn, &DaemonMsg::End);
            // The next daemon has to know the place of each process.
            self.remember();
        }
    }

    /// Gives up a pool that cannot be started: processes that wait for it get contexts of their own, and its user gets no other pool for a
    /// while.
    fn give_up_pool(&mut self, id: u64, why: &str) {
        let Some(pool) = self.places.pools.list.iter_mut().find(|pool| pool.id == id) else { return };
        let (uid, side, waiting) = (pool.uid, pool.side, std::mem::take(&mut pool.waiting));
        self.log(&format!("user {uid}: {why}"));
        self.refuse_pools(uid, side, why);
        for conn in waiting {
            let pid = self.net.conns.get(&conn).map(|c| c.pid);
            for expected in self.places.expected.values_mut().filter(|e| Some(e.pid) == pid && e.pool == Some(id)) {
                expected.leave_pool();
                expected.why = Some(why.into());
            }
            self.by_time(conn, uid, Some(why.to_owned()));
            self.finish(conn, &DaemonMsg::End);
        }
        self.end_pool(id);
    }

    /// Closes a pool: it takes no process in, and ends with its last program; the next process starts another.
    fn end_pool(&mut self, id: u64) {
        let Some(pool) = self.places.pools.list.iter_mut().find(|pool| pool.id == id) else { return };
        if pool.stage != Stage::Ending {
            pool.stage = Stage::Ending;
            pool.process.quit();
        }
        let (side, waiting) = (pool.side, std::mem::take(&mut pool.waiting));
        self.move_on(waiting, side);
    }

    /// Moves processes that wait for a pool that is over to another pool of its side.
    fn move_on(&mut self, waiting: Vec<u64>, side: Side) {
        let first =
            waiting.first().and_then(|conn| self.net.conns.get(conn)).and_then(|c| Owner::of(c.pid, c.user.uid));
        let Some(fresh) = first.and_then(|owner| self.start_pool(owner, side).ok()) else { return };
        let pids: Vec<u32> = waiting.iter().filter_map(|conn| Some(self.net.conns.get(conn)?.pid)).collect();
        let pool = &mut self.places.pools.list[fresh];
        pool.waiting = waiting;
        for expected in self.places.expected.values_mut().filter(|e| pids.contains(&e.pid)) {
            expected.pool = Some(pool.id);
        }
    }

    /// Handles a GPU fault of a program, which has ended all programs of a pool.
    fn fault(&mut self, id: u64, fault: log::Fault) {
        let Some(pool) = self.places.pools.list.iter_mut().find(|pool| pool.id == id) else { return };
        // A program that is killed in the midst of a long kernel breaks the pool, and the log names another one.
        let was_cut_off = pool.cut_off_ns.is_some_and(|at| self.now_ns.saturating_sub(at) < POOL_BLAME_NS);
        let culprit = fault.pid.filter(|_| !pool.is_named && !was_cut_off);
        let is_news = !std::mem::replace(&mut pool.has_broken, true) || culprit.is_some();
        pool.is_named |= culprit.is_some();
        let uid = pool.uid;
        if is_news {
            let named = culprit.map_or("unknown".to_owned(), |pid| format!("process {pid}"));
            self.log(&format!("user {uid}: a GPU fault has ended a pool; culprit: {named}"));
        }
        let expected =
            culprit.and_then(|pid| self.places.expected.values().find(|e| e.pid == pid && e.user.uid == uid));
        if let Some(program) = expected.and_then(|e| e.program.clone()) {
            self.services.trust.fault(uid, program.clone());
            if let Err(e) = self.places.unsuitable.note_fault(&program) {
                self.log(&e.to_string());
            }
        }
        self.end_pool(id);
    }

    fn refuse_pools(&mut self, uid: u32, side: Side, why: &str) {
        self.places.pools.refused.insert((uid, side), (why.to_owned(), self.now_ns.saturating_add(POOL_RETRY_NS)));
    }

    /// Ends pools that have had no programs for a while. A pool whose last program ended in the midst of its work is ended at once: a
    /// server without clients notices only with its next client that it cannot get rid of that work, and then ends that client, too.
    pub(crate) fn end_unused_pools(&mut self) {
        let (now_ns, conns) = (self.now_ns, &self.net.conns);
        let mut over = Vec::new();
        for pool in &mut self.places.pools.list {
            let waits = |pid| pool.waiting.iter().any(|conn| conns.get(conn).is_some_and(|c| c.pid == pid));
            let programs = self.places.expected.values().filter(|e| e.pool == Some(pool.id)).any(|e| !waits(e.pid));
            let used = programs || !pool.waiting.is_empty();
            pool.unused_ns = if used { None } else { Some(pool.unused_ns.unwrap_or(now_ns)) };
            let lingers = pool.unused_ns.is_none_or(|since| now_ns.saturating_sub(since) < POOL_LINGER_NS);
            if !lingers || !programs && pool.is_doubtful(now_ns) {
                over.push(pool.id);
            }
        }
        over.into_iter().for_each(|id| self.end_pool(id));
    }

    /// Ends all pools at the daemon's end: programs that use them do so until their own end, which the MPS daemons wait for.
    pub(crate) fn end_pools(&mut self) {
        for pool in &self.places.pools.list {
            pool.process.quit();
        }
    }
}
