//! A machine in virtual time: devices, programs, and the daemon between them.
//!
//! [`Node::play`] takes what is due next, from one of three places: the agenda (arrivals of requests, steps of threads, words on their way to
//! the daemon), a device (a command is complete), or the daemon (a timer). `thread` has what a program's thread does, `lifetimes` how programs
//! and daemons come and go.

mod bursts;
mod daemon;
mod device;
mod fluid;
mod lifetimes;
mod rank;
mod thread;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use xsched_policy::Choice;
use xsched_proto::Error;

use crate::memory::Segment;
use crate::outcome::{Outcome, ProgramOutcome, Span, Track};
use crate::placement::{Machine, Placed};
use crate::random::Random;
use crate::scenario::{Program, Scenario, parse_policy};

use daemon::{Daemon, Told};
use device::{Device, Done};
use rank::{Rank, Thread};

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A program begins.
    Begins(usize),
    /// A program ends.
    Ends(usize),
    /// A request of a program comes.
    Arrives(usize),
    /// A program's thread goes on.
    Steps(usize, u32),
    /// A program's grace time ends.
    GraceEnds(usize),
    /// The daemon reads a program's words.
    Heard(usize),
    /// A program's context gets another time slice, in µs.
    Slice(usize, u64),
    /// What a program runs is interrupted, or goes on.
    Interrupt(usize, bool),
    /// A change of the scenario, by its place.
    Event(usize),
    /// A daemon is there again.
    Returns,
}

/// A program.
struct Member<'a> {
    placed: &'a Placed,
    kind: &'a Program,
    /// Its ranks; none before it begins.
    ranks: Vec<usize>,
    /// Arrivals of requests that wait, and of the one that is served first.
    requests: VecDeque<u64>,
    /// Ranks that have not ended the request that is served; 0 = none is served.
    serving: usize,
    /// Requests that came so far.
    came: u64,
    /// Priority by a change of the scenario.
    priority: Option<i32>,
    /// Random numbers of its arrivals, and those of its work: requests come at the same times under each policy.
    arrivals: Random,
    work: Random,
}

/// Number of a program among the parts of a scenario that draw random numbers: two for each.
fn part_of(placed: &Placed) -> u64 {
    (placed.kind as u64) << 33 | u64::from(placed.number) << 1
}

/// A machine.
pub(crate) struct Node<'a> {
    scenario: &'a Scenario,
    machine: &'a Machine,
    policy: Option<Choice>,
    seed: u64,
    now_ns: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    /// Number of the last entry of the agenda: entries of one time keep their order.
    entries: u64,
    devices: Vec<Device>,
    daemon: Option<Daemon>,
    members: Vec<Member<'a>>,
    ranks: Vec<Rank>,
    /// Words of each rank.
    segments: Vec<Segment>,
    done: Vec<Done>,
    /// Ranks at closed gates.
    waiting: Vec<usize>,
    outcome: Outcome,
    has_spans: bool,
}

/// Most spans of a trace.
const SPANS_MAX: usize = 2_000_000;

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
            priority: None,
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
            agenda: BinaryHeap::new(),
            entries: 0,
            devices: (0..machine.devices).map(|at| Device::new(kind, scenario.detail, seed + at as u64)).collect(),
            daemon: policy.map(|policy| Daemon::new(policy.clone(), &scenario.daemon, seed)),
            members: machine.programs.iter().map(member).collect(),
            ranks: Vec::new(),
            segments: Vec::new(),
            done: Vec::new(),
            waiting: Vec::new(),
            outcome: Outcome {
                time_ns: scenario.time.0,
                programs: scenario.programs.iter().map(of_kind).collect(),
                devices_busy_ns: vec![0; scenario.device_count()],
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
        for (at, event) in scenario.events.iter().enumerate() {
            node.set(event.at.0, Happening::Event(at));
        }
        node
    }

    /// Plays everything up to the end of the scenario.
    pub(crate) fn play(mut self) -> Outcome {
        let end_ns = self.scenario.time.0;
        loop {
            let agenda_ns = self.agenda.peek().map(|Reverse((at, _, _))| *at);
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
                if let Some(Reverse((_, _, happening))) = self.agenda.pop() {
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

    fn set(&mut self, at_ns: u64, happening: Happening) {
        self.entries += 1;
        self.agenda.push(Reverse((at_ns, self.entries, happening)));
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
            Happening::Event(at) => self.change(at),
            Happening::Returns => self.restart_daemon(),
        }
    }

    /// Plays a device up to now.
    fn play_device(&mut self, device: usize) {
        self.devices[device].run_until(self.now_ns, &self.segments, &mut self.done);
    }

    fn take_completions(&mut self) {
        while !self.done.is_empty() {
            for done in std::mem::take(&mut self.done) {
                self.complete(done);
            }
        }
    }

    /// Follows what a decision has changed: threads at gates that are open now go on, devices look at their gates again, messages go to
    /// programs.
    fn after_gates(&mut self) {
        for at in 0..self.devices.len() {
            self.play_device(at);
            self.devices[at].look(&self.segments, &mut self.done);
        }
        let Some(daemon) = &mut self.daemon else { return };
        let told = std::mem::take(&mut daemon.told);
        let latency_ns = self.scenario.daemon.latency.0;
        for (rank, told) in told {
            let happening = match told {
                Told::Timeslice(us) => Happening::Slice(rank, us),
                Told::Interrupt(on) => Happening::Interrupt(rank, on),
            };
            self.set(self.now_ns + latency_ns, happening);
        }
        self.wake_open();
    }

    /// Lets threads go on whose gates are open.
    fn wake_open(&mut self) {
        let mut at = 0;
        while let Some(&rank) = self.waiting.get(at) {
            if self.segments[rank].gate.load().is_open() {
                self.waiting.swap_remove(at);
                self.leave_gate(rank);
            } else {
                at += 1;
            }
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

    fn span(&mut self, track: Track, name: &'static str, from_ns: u64, to_ns: u64) {
        if self.has_spans && to_ns > from_ns && self.outcome.spans.len() < SPANS_MAX {
            self.outcome.spans.push(Span { track, name, from_ns, to_ns });
        }
    }

    fn finish(mut self) -> Outcome {
        for device in 0..self.devices.len() {
            self.play_device(device);
            self.outcome.devices_busy_ns[self.machine.first + device] += self.devices[device].busy_ns();
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
        if let Some(daemon) = &self.daemon {
            self.outcome.decisions += daemon.engine.decisions();
        }
        self.outcome
    }

    /// Adds what a rank has had to the outcome.
    fn account(&mut self, rank: usize) {
        let known = self.daemon.as_ref().map_or(0, |daemon| daemon.suspensions(self.now_ns, rank));
        let Rank { member, device_ns, began_ns, suspensions, .. } = self.ranks[rank];
        let outcome = &mut self.outcome.programs[self.members[member].placed.kind];
        outcome.device_ns += device_ns;
        outcome.present_ns += self.now_ns - began_ns;
        outcome.preemptions += suspensions + known;
    }
}

/// The policy of a run.
///
/// # Errors
/// One line that says which policies there are.
pub(crate) fn policy_of(text: &str) -> Result<Option<Choice>, Error> {
    parse_policy(text)
}
