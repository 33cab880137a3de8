//! Operator's own scheduler: a process beside the daemon that is asked and answers. If it ends, the daemon goes on.

pub(crate) mod process;

use std::collections::{BTreeSet, HashMap};

use rustix::io::Errno;
use xsched_policy::{Answer, Choice, GroupId, Question, registry};
use xsched_proto::host::{self, FromHost};
use xsched_proto::wire::encode;

use crate::guard::{Fault, guarded};
use crate::scheduler::process::{ENDED, Host};
use crate::server::Server;
use crate::tuning::{AGAIN_US, DEADLINE_NS, HOST_POLICY};
use crate::{Input, Program};

impl Server {
    /// Sends the questions of the policy `external` to the operator's scheduler.
    pub(crate) fn ask_scheduler(&mut self) {
        for (device, question) in self.engine.gatekeeper_mut().questions() {
            let message = self.question_for_host(device, question);
            let Some(host) = &mut self.services.scheduler else { return };
            match encode(&message) {
                Ok(packet) => host.put(&message.device, packet),
                // Any user makes it longer by more groups. The last answer holds, for some groups less.
                Err(why) => self.log(&format!("the scheduler is not asked about {}: {why}", message.device)),
            }
        }
        let now_ns = self.now_ns;
        match self.services.scheduler.as_mut().map_or(Ok(()), |host| host.send(now_ns)) {
            Ok(()) => (),
            Err(Errno::PIPE | Errno::CONNRESET) => self.scheduler_failed(ENDED),
            Err(e) => self.scheduler_failed(&format!("it does not take questions ({e})")),
        }
    }

    fn question_for_host(&self, device: String, question: Question) -> host::Question {
        let streams = match self.services.scheduler.as_ref().is_some_and(|host| host.per_stream) {
            true => self.streams_of(&question),
            false => HashMap::new(),
        };
        let group = |g: xsched_policy::GroupView| host::Group {
            id: g.id.0,
            program: g.program.0,
            pid: self.engine.programs().get(&g.program.0).map_or(0, |program| program.pid),
            weight: g.hints.weight(),
            priority: g.priority,
            ready: g.ready,
            running: g.granted,
            timeslice_us: g.hints.turn_us(),
            ready_since_us: g.ready_since,
            used_us: g.used_us as u64,
            stream: streams.get(&g.id).copied(),
        };
        let groups = question.groups.into_iter().map(group).collect();
        host::Question { device, number: question.number, groups, state: question.state }
    }

    /// Streams of the groups in question.
    fn streams_of(&self, question: &Question) -> HashMap<GroupId, host::Stream> {
        let programs: BTreeSet<u64> = question.groups.iter().map(|g| g.program.0).collect();
        let mut streams: HashMap<GroupId, host::Stream> = HashMap::new();
        for program in programs.iter().filter_map(|id| self.engine.programs().get(id)) {
            let (pid, user) = (program.pid, program.user);
            let found =
                guarded(format_args!("the streams of process {pid} of user {user}"), || self.streams_in(program));
            // Without its streams the program is decided as by a scheduler that knows none.
            streams.extend(found.map_err(Fault::note).unwrap_or_default());
        }
        streams
    }

    /// Streams of a program, by group. Where streams share a group, its stream is the oldest one, with the launches of all.
    fn streams_in(&self, program: &Program) -> HashMap<GroupId, host::Stream> {
        let mut streams: HashMap<GroupId, host::Stream> = HashMap::new();
        let launches = program.memory.0.queue_launches();
        let groups = self.engine.groups_of(program).map(|(id, group)| (group.slot, (id, group.steps)));
        let groups: HashMap<u16, (GroupId, i32)> = groups.collect();
        for (slot, queue) in &program.queues {
            let Some((group, priority)) = groups.get(&queue.group).copied() else { continue };
            let Some(read) = launches.of_living(*slot) else { continue };
            let stream = streams.entry(group).or_insert(host::Stream { id: queue.id, priority, launches: 0 });
            stream.id = stream.id.min(queue.id);
            stream.launches = stream.launches.wrapping_add(queue.launches(read.all));
        }
        streams
    }

    /// Takes the answers that have arrived.
    pub(crate) fn take_scheduler_answers(&mut self) {
        loop {
            let Some(host) = &mut self.services.scheduler else { return };
            match host.receive() {
                Ok(None) => return,
                Ok(Some(FromHost::Answer { device, number, run, again_in_us })) if host.open > 0 => {
                    host.open -= 1;
                    host.asked_ns = self.now_ns;
                    let run = run.into_iter().map(GroupId).collect();
                    let again_in_us = again_in_us.map(|us| us.clamp(AGAIN_US.0, AGAIN_US.1));
                    self.input(Input::Answer(device, Answer { number, run, again_in_us }));
                }
                Ok(Some(_)) => return self.scheduler_failed("it speaks out of turn"),
                Err(why) => return self.scheduler_failed(&why.to_string()),
            }
        }
    }

    /// Ends the scheduler if an answer is overdue.
    pub(crate) fn check_scheduler_deadline(&mut self) {
        if self.services.scheduler.as_ref().and_then(Host::deadline_ns).is_some_and(|at| at <= self.now_ns) {
            self.scheduler_failed(&format!("it did not answer within {} ms", DEADLINE_NS / 1_000_000));
        }
    }

    fn scheduler_failed(&mut self, why: &str) {
        let Some(host) = self.services.scheduler.take() else { return };
        self.net.unwatch(&host.socket);
        self.do_without_scheduler(&format!("the scheduler {} failed: {why}", host.library.display()));
    }

    /// Goes on with the default policy, for this reason.
    pub(crate) fn do_without_scheduler(&mut self, why: &str) {
        let default = registry::DEFAULT;
        let arbiter = self.engine.arbiter();
        let mut back: Vec<Option<String>> = Vec::new();
        back.extend((arbiter.policy().entry.name == HOST_POLICY).then_some(None));
        let devices = arbiter.policies().filter(|(_, choice)| choice.entry.name == HOST_POLICY);
        back.extend(devices.map(|(device, _)| Some(device.to_owned())));
        let is_back = !back.is_empty();
        for device in back {
            if let Ok(choice) = Choice::named(default) {
                self.input(Input::Policy(device, choice));
            }
        }
        let then = if is_back { format!(": the policy is {default} from here on") } else { String::new() };
        let line = format!("{why}{then}");
        self.say(&line);
        self.history.scheduler_failure = Some(line);
    }
}
