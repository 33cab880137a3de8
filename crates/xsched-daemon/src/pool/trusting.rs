//! Trust in programs, on the side of the loop: facts about a process that asks for a pool are requested, and the work of programs that may
//! prove themselves is followed, one minute at a time. [`crate::services::trust`] does the slow part.

use std::sync::atomic::Ordering::Relaxed;

use xsched_engine::{DeviceShare, Proof, check_name};
use xsched_proto::wire::{DaemonMsg, Platform};

use crate::identity::{self, User};
use crate::pool::keeper::Owner;
use crate::pool::proven::{self, Work};
use crate::pool::trusted::{Followed, Joining, Waiting};
use crate::server::Server;
use crate::server::timers::Timer;
use crate::services::trust::{Known, Outcome, Process, Task};
use crate::services::warnings::OptionalPart;
use crate::tuning::{TRUST_LOOK_NS, TRUST_PIECE, TRUST_WAIT_NS};
use crate::{Error, Program};

impl Server {
    /// Takes the request of a process that is about to touch a GPU. Returns whether it is answered already.
    pub(crate) fn join_pool(&mut self, conn: u64, joining: Joining) -> Result<bool, Error> {
        let environment = |line: &str| Error::environment(line);
        let (pid, user) =
            self.net.conns.get(&conn).map(|c| (c.pid, c.user)).ok_or_else(|| environment("it is gone"))?;
        let uid = user.uid;
        if let Some(job) = &joining.job {
            check_name(job, "job")?;
        }
        if let Some(obstacle) = &joining.obstacle {
            check_name(obstacle, "reason")?;
        }
        // A pool that has ended or broken meanwhile takes no process in.
        self.poll_pools();
        let member = self.expect(pid, user, joining.job.as_deref(), None)?;
        let owner = Owner::of(pid, uid).ok_or_else(|| environment("the process cannot be seen from here"))?;
        let unknown = self.nothing_known("it was not asked for");
        if self.asking(conn, member, &joining, &unknown, |asking| asking.depends_on_trust()).unwrap_or(false) {
            self.ask_for_trust(conn, member, owner, joining);
            return Ok(false);
        }
        Ok(self.place(conn, member, &owner, &joining, &unknown))
    }

    /// Requests the facts about a process that asks for a pool. Once they are there, the process gets its place.
    pub(crate) fn ask_for_trust(&mut self, conn: u64, member: u64, owner: Owner, joining: Joining) {
        let minutes = self.config.pool_proven_minutes();
        let process = self.process_of_command(conn, member);
        let (why, patience_ns) = match process.map(|process| self.services.trust.join(conn, process, minutes)) {
            None => ("it was not started by xsched run", 0),
            Some(true) => ("its files could not be compared in time", TRUST_WAIT_NS),
            Some(false) => ("there is too much to compare now", 0),
        };
        let (until_ns, known) = (self.now_ns + patience_ns, self.nothing_known(why));
        self.places.trusting.joining.insert(conn, Waiting { member, owner, joining, until_ns, known });
    }

    /// Facts about a program of which nothing is known, with the reason.
    pub(crate) fn nothing_known(&self, why: &str) -> Known {
        let mut known = Known::nothing(why);
        if self.config.pool_proven_minutes() == 0 {
            known.standing.proof = Proof::Waived;
        }
        known
    }

    /// Process of an announced command.
    fn process_of_command(&self, conn: u64, member: u64) -> Option<Process> {
        let (who, expected) = (self.commands.who.get(&conn)?, self.places.expected.get(&member)?);
        let program = expected.program.as_deref()?;
        let key = proven::key(program, &who.exe);
        let announced = paths_in(program);
        Some(Process { pid: expected.pid, uid: expected.user.uid, start: who.start, key, announced })
    }

    /// Gives a process its place, by the facts about it.
    fn join_with(&mut self, conn: u64, known: &Known) {
        let Some(Waiting { member, owner, joining, .. }) = self.places.trusting.joining.remove(&conn) else { return };
        if !self.net.conns.contains_key(&conn) {
            return;
        }
        // A pool that has ended or broken meanwhile takes no process in.
        self.poll_pools();
        if self.place(conn, member, &owner, &joining, known) {
            self.finish(conn, &DaemonMsg::End);
        }
    }

    /// Handles a GPU fault of a process outside of pools: its program has to prove itself anew.
    pub(crate) fn faulted(&mut self, conn: u64, user: User) {
        let pid = self.net.conns.get(&conn).map(|c| c.pid);
        let itself = self.places.expected.values().find(|e| Some(e.pid) == pid && e.user == user && !e.ended);
        if let Some(program) = itself.and_then(|expected| expected.program.clone()) {
            self.services.trust.fault(user.uid, program);
        }
    }

    /// Takes the results of the thread.
    pub(crate) fn take_trust(&mut self) {
        while let Some(outcome) = self.services.trust.take() {
            match outcome {
                Outcome::Known { conn, known, .. } => self.join_with(conn, &known),
                // Programs of containers are in no pool.
                Outcome::Lines(uid, lines) => {
                    lines.iter().for_each(|line| self.record(identity::of_machine(uid), line));
                }
                Outcome::Written(_) => (),
            }
        }
        let failed = self.services.trust.failed.clone();
        self.note_part(OptionalPart::Proven, failed.as_deref());
    }

    /// Gives processes that have waited for long enough their places, and polls the last minute of some programs.
    pub(crate) fn tend_trust(&mut self) {
        let now_ns = self.now_ns;
        let overdue = |(conn, waiting): (&u64, &Waiting)| (waiting.until_ns <= now_ns).then_some(*conn);
        let overdue: Vec<u64> = self.places.trusting.joining.iter().filter_map(overdue).collect();
        for conn in overdue {
            self.services.trust.forget(conn);
            if let Some(known) = self.places.trusting.joining.get(&conn).map(|waiting| waiting.known.clone()) {
                self.join_with(conn, &known);
            }
        }
        for _ in 0..TRUST_PIECE {
            let first = self.places.trusting.due.first().copied();
            let Some((at_ns, conn)) = first.filter(|(at_ns, _)| *at_ns <= now_ns) else { break };
            self.places.trusting.due.remove(&(at_ns, conn));
            if let Some((process, work)) = self.work_of(conn) {
                self.places.trusting.look_at(conn, now_ns + TRUST_LOOK_NS);
                // If the task is refused, the program has one minute of proof less.
                let _ = self.services.trust.push(Task::Minute(process, work));
            }
        }
        self.timers.set(Timer::Trust, self.places.trusting.deadline_ns());
    }

    /// Follows a program that has made a context on a GPU from now on, if it is in a pool or urgent.
    pub(crate) fn follow_trust(&mut self, conn: u64, platform: Platform) {
        let Some(program) = self.engine.programs().get(&conn) else { return };
        let Some(client) = self.programs.clients.get(&conn) else { return };
        let matters = client.seat.is_some() || self.is_urgent(program);
        if platform != Platform::Cuda || !matters || self.places.trusting.followed.contains_key(&conn) {
            return;
        }
        let Some(announced) = self.announced(program).and_then(|expected| expected.program.as_deref()) else { return };
        let (pid, uid, start) = (program.pid, program.user.uid, program.start);
        let key = proven::key(announced, &client.peer.exe);
        let process = Process { pid, uid, start, key, announced: paths_in(announced) };
        self.places.trusting.followed.insert(conn, Followed { process, used_us: 0.0, due_ns: 0 });
        self.places.trusting.look_at(conn, self.now_ns + TRUST_LOOK_NS);
    }

    /// Ends the following of a program that leaves.
    pub(crate) fn unfollow_trust(&mut self, conn: u64, is_pooled: bool) {
        let ended = self.work_of_pooled(conn, is_pooled);
        if let Some(followed) = self.places.trusting.followed.remove(&conn) {
            self.places.trusting.due.remove(&(followed.due_ns, conn));
        }
        if let Some((process, work)) = ended {
            let _ = self.services.trust.push(Task::Ended(process, work));
        }
    }

    fn work_of(&mut self, conn: u64) -> Option<(Process, Work)> {
        let is_pooled = self.programs.clients.get(&conn)?.seat.is_some();
        self.work_of_pooled(conn, is_pooled)
    }

    /// Work of a followed program since the last poll.
    fn work_of_pooled(&mut self, conn: u64, is_pooled: bool) -> Option<(Process, Work)> {
        let bursts = self.device_share(conn);
        let (at_ns, now_us) = (self.now_ns, self.now_us());
        let program = self.engine.programs().get(&conn)?;
        let arbiter = self.engine.arbiter();
        let groups = || self.engine.groups_of(program).filter(|(_, group)| group.platform == Platform::Cuda);
        let used_us: f64 = groups().filter_map(|(id, _)| Some(arbiter.status(now_us, id)?.used_us)).sum();
        let longest_us = groups().map(|(_, group)| group.words.longest_us.load(Relaxed)).max().unwrap_or(0);
        let is_urgent = self.is_urgent(program);
        let followed = self.places.trusting.followed.get_mut(&conn)?;
        let has_worked = used_us > std::mem::replace(&mut followed.used_us, used_us);
        Some((followed.process.clone(), Work { at_ns, has_worked, longest_us, bursts, is_urgent, is_pooled }))
    }

    /// Number of bursts of a program, and part of them for which it needed the device; none = none are known.
    fn device_share(&self, program: u64) -> Option<DeviceShare> {
        let program = self.engine.programs().get(&program)?;
        let demands = program.groups.iter().map(|id| self.engine.gatekeeper().demand(*id));
        let demand = demands.reduce(|all, one| all.and(one))?;
        Some(DeviceShare { bursts: demand.bursts, percent: demand.percent()? })
    }

    fn is_urgent(&self, program: &Program) -> bool {
        program.class() > self.config.pool_max_class()
    }
}

/// Paths in the name of a program ([`crate::pool::unsuitable::key`]): those of the announced executable and of its script.
fn paths_in(program: &str) -> Vec<String> {
    let Some(at) = program.find(" /") else { return Vec::new() };
    let announced = &program[at + 1..];
    let (exe, script) = announced.split_once(" /").map_or((announced, None), |(exe, script)| (exe, Some(script)));
    let script = script.map(|script| format!("/{script}"));
    std::iter::once(exe.to_owned()).chain(script).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_and_script_are_found_in_the_name_of_a_program() {
        assert_eq!(paths_in("7 /usr/bin/python3 /home/a b/c.py"), ["/usr/bin/python3", "/home/a b/c.py"]);
        assert_eq!(paths_in("7 /bin/serve"), ["/bin/serve"]);
        assert_eq!(paths_in("7 /usr/bin/python3 torch.distributed.run"), ["/usr/bin/python3 torch.distributed.run"]);
        assert!(paths_in("7 p").is_empty());
    }
}
