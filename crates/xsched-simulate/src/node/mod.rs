//! A machine in virtual time: devices, programs, and the daemon between them.
//!
//! [`Node::play`] takes the next thing that is due, from one of three places: the agenda (arrivals of requests, steps of threads, words on
//! their way to the daemon), a device (a command is complete), or the daemon (a timer).
//!
//! - `state` is the machine; `rank` one program at one of its devices.
//! - `requests`, `words`, `kernels` and `bursts` are the way of a program's thread: requests come, words are stored, commands are launched.
//! - `company` is the way past a gate that yields.
//! - `gates` follows decisions, `lifetimes` programs and daemons that come and go.
//! - `device` and `fluid` are the models of a device, `daemon` is the host of the engine.

mod bursts;
mod company;
mod daemon;
mod device;
mod fluid;
mod gates;
mod kernels;
mod lifetimes;
mod rank;
mod requests;
mod state;
mod words;

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::Choice;
use xsched_proto::Error;
use xsched_proto::trace::Burst;

use crate::outcome::{Outcome, ProgramOutcome};
use crate::placement::{Machine, Placed};
use crate::random::Random;
use crate::recording::Recorded;
use crate::scenario::{Program, Scenario, parse_policy};

use daemon::Daemon;
use device::Device;
use rank::{Rank, Thread};
use state::{Agenda, Happening, Member, part_of};

pub(crate) use state::Node;

impl<'a> Node<'a> {
    /// A machine with its programs, at the begin of virtual time. No policy: the machine has no xsched.
    pub(crate) fn new(
        scenario: &'a Scenario,
        machine: &'a Machine,
        policy: Option<&Choice>,
        has_spans: bool,
    ) -> Node<'a> {
        let seed = scenario.seed ^ (machine.first as u64) << 20;
        let kind = &scenario.devices[machine.kind];
        let member = |placed: &'a Placed| Member {
            placed,
            kind: &scenario.programs[placed.kind],
            ranks: Vec::new(),
            requests: VecDeque::new(),
            serving: 0,
            came: 0,
            served: 0,
            priority: None,
            traced: None,
            arrivals: Random::new(scenario.seed, part_of(placed)),
            work: Random::new(scenario.seed, part_of(placed) + 1),
        };
        let of_kind = |kind: &Program| ProgramOutcome { name: kind.name.clone(), ..ProgramOutcome::default() };
        let mut node = Node {
            scenario,
            machine,
            policy: policy.cloned(),
            seed,
            now_ns: 0,
            agenda: Agenda::default(),
            devices: (0..machine.devices).map(|at| Device::new(kind, scenario.detail, seed + at as u64)).collect(),
            daemon: policy
                .map(|policy| Daemon::new(policy.clone(), &scenario.daemon, kind.inside, scenario.detail, seed)),
            members: machine.programs.iter().map(member).collect(),
            ranks: Vec::new(),
            segments: Vec::new(),
            done: Vec::new(),
            waiting: Vec::new(),
            outcome: Outcome {
                time_ns: scenario.time.0,
                programs: scenario.programs.iter().map(of_kind).collect(),
                first_device: machine.first,
                devices_busy_ns: vec![0; machine.devices],
                intervals: scenario.no_intervals(),
                ..Outcome::default()
            },
            has_spans,
        };
        for (at, placed) in machine.programs.iter().enumerate() {
            let kind = &scenario.programs[placed.kind];
            node.outcome.programs[placed.kind].placed += 1;
            node.set(kind.start.0, Happening::Begins(at));
            if let Some(end) = kind.end {
                node.set(end.0, Happening::Ends(at));
            }
        }
        if let Some(interval) = scenario.interval {
            node.set(interval.0, Happening::IntervalEnds(0));
        }
        for (at, event) in scenario.events.iter().enumerate() {
            node.set(event.at.0, Happening::Event(at));
        }
        node
    }

    /// Plays everything up to the end of the scenario.
    pub(crate) fn play(mut self) -> Outcome {
        let end_ns = self.scenario.time.0;
        loop {
            let agenda_ns = self.agenda.next_ns();
            let device_ns = self.devices.iter().filter_map(Device::next_ns).min();
            let daemon_ns = self.daemon.as_mut().and_then(|daemon| daemon.next_ns(self.now_ns));
            let Some(at_ns) = [agenda_ns, device_ns, daemon_ns].into_iter().flatten().min() else { break };
            if at_ns > end_ns {
                break;
            }
            self.now_ns = self.now_ns.max(at_ns);
            self.outcome.events += 1;
            // At one time the device is first, then threads, then the daemon.
            if device_ns.is_some_and(|at| at <= self.now_ns) {
                for at in 0..self.devices.len() {
                    if self.devices[at].next_ns().is_some_and(|at| at <= self.now_ns) {
                        self.devices[at].run_until(self.now_ns, &self.segments, &mut self.done);
                    }
                }
            } else if agenda_ns.is_some_and(|at| at <= self.now_ns) {
                if let Some(happening) = self.agenda.pop() {
                    self.take(happening);
                }
            } else if let Some(daemon) = &mut self.daemon {
                for device in &mut self.devices {
                    device.run_until(self.now_ns, &self.segments, &mut self.done);
                    device.publish(&self.segments);
                }
                daemon.turn(self.now_ns);
                self.after_gates();
            }
            self.take_completions();
        }
        self.now_ns = end_ns;
        self.finish()
    }

    fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Begins(member) => self.begin(member),
            Happening::Ends(member) => self.end(member),
            Happening::Arrives(member) => self.arrive(member),
            Happening::Steps(rank, step) => {
                if self.ranks[rank].step == step && self.ranks[rank].thread != Thread::Gone {
                    self.go_on(rank);
                }
            }
            Happening::Looks(rank) => {
                if self.ranks[rank].flight.pending == 0 && self.ranks[rank].thread != Thread::Gone {
                    self.follow(rank);
                }
            }
            Happening::GraceEnds(rank) => self.end_grace(rank),
            Happening::Heard(rank) => {
                if let Some(daemon) = &mut self.daemon
                    && self.ranks[rank].thread != Thread::Gone
                {
                    daemon.words(self.now_ns, rank);
                    self.after_gates();
                }
            }
            Happening::Slice(rank, us) => {
                let Rank { device, seat, thread, .. } = self.ranks[rank];
                if thread != Thread::Gone {
                    self.play_device(device);
                    self.devices[device].set_timeslice(seat, us);
                }
            }
            Happening::Interrupt(rank, on) => {
                let Rank { device, seat, thread, .. } = self.ranks[rank];
                if thread != Thread::Gone {
                    self.play_device(device);
                    self.devices[device].interrupt(seat, on, &self.segments, &mut self.done);
                }
            }
            Happening::Page { rank, owner, page, epoch } => {
                self.ranks[rank].company.learn(rank, owner, page, epoch, &self.segments)
            }
            Happening::Event(at) => self.change(at),
            Happening::Returns => self.restart_daemon(),
            Happening::IntervalEnds(at) => self.end_interval(at),
        }
    }

    fn change(&mut self, at: usize) {
        let event = &self.scenario.events[at];
        if let Some(policy) = &event.policy
            && let (Some(daemon), Ok(Some(choice))) = (&mut self.daemon, parse_policy(policy))
        {
            self.policy = Some(choice.clone());
            daemon.input(self.now_ns, xsched_engine::Input::Policy(None, choice));
            self.after_gates();
        }
        if let Some(name) = &event.kill {
            let of_name = (0..self.members.len()).filter(|at| self.members[*at].kind.name == *name);
            of_name.collect::<Vec<_>>().into_iter().for_each(|member| self.end(member));
        }
        if let Some(away) = event.restart {
            self.lose_daemon(away.0);
        }
        if let (Some(name), Some(class)) = (&event.program, &event.class)
            && let Ok(priority) = xsched_proto::class::parse_priority(class)
        {
            self.change_priority(name, priority);
        }
    }

    /// An interval has ended, and another one begins.
    fn end_interval(&mut self, at: usize) {
        let Some(interval) = self.scenario.interval.filter(|_| at < self.outcome.intervals.len()) else { return };
        for device in 0..self.devices.len() {
            self.play_device(device);
        }
        let before_ns: u64 = self.outcome.intervals[..at].iter().map(|interval| interval.busy_ns).sum();
        let busy_ns: u64 = self.devices.iter().map(Device::busy_ns).sum();
        let ended = &mut self.outcome.intervals[at];
        ended.busy_ns = busy_ns.saturating_sub(before_ns);
        for member in &self.members {
            ended.programs[member.placed.kind].open_requests += member.requests.len() as u64;
        }
        self.set(self.now_ns + interval.0, Happening::IntervalEnds(at + 1));
    }

    fn finish(mut self) -> Outcome {
        let last = self.scenario.interval.map_or(0, |interval| (self.now_ns / interval.0) as usize);
        if self.scenario.interval.is_some_and(|interval| !self.now_ns.is_multiple_of(interval.0)) {
            self.end_interval(last);
        }
        for device in 0..self.devices.len() {
            self.play_device(device);
            self.outcome.devices_busy_ns[device] += self.devices[device].busy_ns();
            self.outcome.switches += self.devices[device].switches();
        }
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].thread != Thread::Gone {
                self.account(rank);
            }
        }
        for member in &self.members {
            let outcome = &mut self.outcome.programs[member.placed.kind];
            outcome.open_requests += member.requests.len() as u64;
            let open_ns = member.requests.front().map_or(0, |came_ns| self.now_ns - came_ns);
            outcome.longest_open_ns = outcome.longest_open_ns.max(open_ns);
        }
        if let Some(journal) = self.daemon.as_mut().and_then(|daemon| daemon.journal.take()) {
            self.outcome.journal = journal;
        }
        if let Some(bursts) = self.daemon.as_mut().and_then(|daemon| daemon.recorded.take()) {
            self.outcome.recorded = self.recorded_programs(&bursts);
        }
        if let Some(daemon) = &self.daemon {
            self.outcome.decisions += daemon.engine.decisions();
        }
        self.outcome
    }
}

impl Node<'_> {
    /// Has the daemon record its programs, as long as it is there.
    pub(crate) fn record(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.recorded = Some(Vec::new());
        }
    }

    /// Keeps the journal of the daemon from now on.
    pub(crate) fn keep_journal(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.journal = Some(Vec::new());
        }
    }

    /// Each program on each device, with its bursts.
    fn recorded_programs(&self, bursts: &[(usize, Burst)]) -> Vec<Recorded> {
        let of = |(at, rank): (usize, &Rank)| {
            let member = &self.members[rank.member];
            let name = format!("{}-{}-{}", member.kind.name, member.placed.number, rank.device);
            let bursts = bursts.iter().filter(|(of, _)| *of == at).map(|(_, burst)| *burst);
            Recorded {
                program: Program {
                    name,
                    count: 1,
                    devices: 1,
                    device: vec![(self.machine.first + rank.device) as u32],
                    ..member.kind.clone()
                },
                bursts: bursts.collect(),
                commands: self.segments[at].completed_commands(),
                ran_us: rank.tally.device_ns / 1_000,
                longest_us: self.segments[at].longest_us.load(Relaxed),
            }
        };
        self.ranks.iter().enumerate().map(of).collect()
    }
}

/// The policy of a run.
///
/// # Errors
/// One line that says which policies there are.
pub(crate) fn policy_of(text: &str) -> Result<Option<Choice>, Error> {
    parse_policy(text)
}
