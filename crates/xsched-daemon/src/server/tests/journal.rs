//! Journals of simulated daemons, replayed by this one: it must decide the same.

use std::sync::Arc;

use xsched_engine::{Arrival, Ceilings, Given, MemoryTerms, Message, NewGroup, Terms, Wishes};
use xsched_policy::{Choice, Level, Lineage};
use xsched_proto::wire::{Levels, Platform, Sharing};
use xsched_simulate::journal::{Entry, Event, Gate};
use xsched_simulate::{Run, Scenario};

use super::*;
use crate::Input;
use crate::programs::memory::{ClientSegment, Shared};

/// Time from the begin of a journal to that of its replay, in ns.
const OFFSET_NS: u64 = 3_600_000_000_000;

/// A server, two trainings, and one that comes later; commands are held on the host.
const SCENARIO: &str = "time = \"400ms\"
[daemon]
latency = \"10us\"
[[device]]
preemption = \"host\"
[[program]]
name = \"server\"
class = \"high\"
arrivals = { poisson = \"8ms\" }
kernels = [{ count = 10, time = \"100us +- 20%\" }]
[[program]]
name = \"training\"
count = 2
kernels = [{ count = 40, time = \"150us +- 20%\" }]
[[program]]
name = \"late\"
class = \"low\"
start = \"100ms\"
end = \"350ms\"
arrivals = { pause = \"3ms\" }
kernels = [{ count = 20, time = \"300us\" }]
";

fn journal(policy: &str) -> Vec<Entry> {
    let scenario = Scenario::read(SCENARIO, |_| unreachable!()).expect("a scenario");
    let mut run = Run::new(&scenario, policy, scenario.placement.strategy).expect("a policy");
    run.has_journal = true;
    run.play().journal
}

/// Programs of a journal at a daemon, by their place.
struct Replay {
    world: World,
    programs: Vec<(u64, Arc<ClientSegment>)>,
}

impl Replay {
    fn input(&mut self, entry: &Entry, input: Input) {
        self.world.server.set_now(entry.at_ns + OFFSET_NS);
        self.world.server.input(input);
    }

    fn come(&mut self, entry: &Entry, priority: Option<i32>, device: &str) {
        let id = 1_000_000 + self.programs.len() as u64;
        let pid = 10_000_000 + id as u32;
        let segment = Arc::new(ClientSegment::new(segment_and_eventfd().0).expect("a segment"));
        let user = crate::identity::pretended(rustix::process::geteuid().as_raw());
        let level = Level { id: 1, weight: 100 };
        let arrival = Arrival {
            pid,
            user,
            exe: "/usr/bin/a".into(),
            name: "a".into(),
            start: None,
            ancestors: vec![pid],
            nice: 0,
            lineage: Lineage { user: level, cgroup: vec![level], namespace: None },
            memory: Shared(segment.clone()),
            wishes: Wishes { priority, ..Wishes::default() },
            terms: Terms {
                given: Given::default(),
                ceilings: Ceilings::NONE,
                bounds: self.world.server.config.bounds(user.uid, true),
                memory: MemoryTerms::default(),
            },
        };
        let group = NewGroup {
            slot: 0,
            device: device.to_owned(),
            platform: Platform::Cuda,
            steps: 0,
            fixed: None,
            system: false,
            levels: Levels::ONE,
            sharing: Sharing::Time,
            pool: None,
            state: None,
        };
        let slot = &segment.words().groups[0];
        slot.inherited_priority.store(i32::MIN, std::sync::atomic::Ordering::SeqCst);
        slot.gate.attach();
        self.programs.push((id, segment));
        self.input(entry, Input::Attached(id, Box::new(arrival)));
        self.input(entry, Input::Message(id, Message::GroupAdd(group)));
        self.input(entry, Input::Message(id, Message::QueueAdd { slot: 0, group: 0 }));
    }

    fn play(&mut self, entry: &Entry) {
        for (words, (_, segment)) in entry.words.iter().zip(&self.programs) {
            words.store(&segment.words().groups[0], OFFSET_NS);
        }
        let id = |at: usize| self.programs[at].0;
        let input = match &entry.event {
            Event::Came { priority, device } => return self.come(entry, *priority, device),
            Event::Left(at) => Input::Left { program: id(*at), by_itself: true },
            Event::Words(at) => Input::Words(id(*at)),
            Event::Decide => Input::Decide,
            Event::Policy => Input::PolicyTime,
            Event::LookTime => Input::LookTime,
            Event::Look(at) => Input::Look(id(*at)),
            Event::Beat => Input::Beat,
        };
        self.input(entry, input);
    }
}

#[test]
fn the_daemon_decides_as_the_simulated_one() {
    for policy in ["hpf", "fair", "up", "slo", "mlfq", "awf", "cfs"] {
        let journal = journal(policy);
        let mut replay = Replay { world: World::new(), programs: Vec::new() };
        replay.world.server.set_now(OFFSET_NS);
        replay.world.server.input(Input::Policy(None, Choice::named(policy).expect("a policy")));
        let mut changes = 0;
        let mut before: Vec<Gate> = Vec::new();
        for (at, entry) in journal.iter().enumerate() {
            replay.play(entry);
            let gates = replay.programs.iter().map(|(_, segment)| Gate::of(&segment.words().groups[0]));
            let gates: Vec<Gate> = gates.collect();
            // A program that is gone sees no gate.
            let is_there = |n: &usize| !journal[..=at].iter().any(|entry| entry.event == Event::Left(*n));
            for n in (0..gates.len()).filter(is_there) {
                assert_eq!(gates[n], entry.gates[n], "{policy}, entry {at}, program {n}: {entry:?}");
            }
            changes += usize::from(gates != before);
            before = gates;
        }
        assert!(changes > 20, "{policy}: {changes} of {} decisions changed a gate", journal.len());
    }
}
