//! Charges of the ledger, compared with the device itself: the model of the simulated device, which has exact times, in virtual time.
//! Programs launch a kernel at a time and report as the preload library would, as late as it would.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xsched_gatekeeper::Gatekeeper;
use xsched_gatekeeper::ledger::{LATE_NS, Usage};
use xsched_policy::{Arbiter, Choice, Event, GroupId, GroupSpec, PoolId, ProgramId};
use xsched_proto::segment::{GroupSlot, state};
use xsched_sim::model::{Board, ContextId, Model, Timing, Work, stream_of};

const US: u64 = 1_000;
/// From the last completion until a group is told to be idle.
const GRACE_NS: u64 = 200 * US;
const DEVICE: &str = "sim:0";

/// So long after it has done the one before, in µs, a program gets a request of kernels, each so long, in µs.
type Request = (u64, Vec<u64>);

struct Program {
    id: GroupId,
    context: ContextId,
    stream: u32,
    words: Rc<GroupSlot>,
    requests: VecDeque<Request>,
    /// Time of the next kernel.
    next_ns: Option<u64>,
    kernels: VecDeque<u64>,
    running: bool,
    ended_ns: u64,
    /// Time at which the group is reported as idle.
    idle_ns: Option<u64>,
}

struct World {
    model: Model<()>,
    contexts: Vec<ContextId>,
    keeper: Gatekeeper<Rc<GroupSlot>>,
    programs: Vec<Program>,
    now: u64,
}

/// Completions: context, stream and time.
#[derive(Default)]
struct Done(Vec<(ContextId, u32, u64)>);

impl Board<()> for Done {
    fn complete(&mut self, at: u64, context: ContextId, stream: u32, _: u64, (): ()) {
        self.0.push((context, stream, at));
    }
    fn holds(&mut self, (): &()) -> bool {
        true
    }
    fn call(&mut self, _: ContextId, _: u32, _: u64) {}
}

impl World {
    fn new(policy: &str) -> World {
        // The switch from one context to another is no program's time.
        let timing = Timing { switch_ns: 0, ..Timing::default() };
        let arbiter = Arbiter::new(Choice::named(policy).expect("a policy"), 1);
        let keeper = Gatekeeper::new(arbiter, 500);
        World { model: Model::new(timing), contexts: Vec::new(), keeper, programs: Vec::new(), now: 0 }
    }

    fn context(&mut self) -> ContextId {
        let context = self.model.add_context();
        self.contexts.push(context);
        context
    }

    /// A program with a context of its own, or as a member of that of a pool.
    fn add(&mut self, priority: i32, pool: Option<ContextId>, requests: Vec<Request>) {
        let id = GroupId(self.programs.len() as u64);
        let context = pool.unwrap_or_else(|| self.context());
        let member = pool.map_or(0, |context| self.model.add_member(context, 300).expect("room"));
        let words = Rc::new(GroupSlot::default());
        words.inherited_priority.store(i32::MIN, SeqCst);
        let spec = GroupSpec { priority, pool: pool.map(PoolId), ..GroupSpec::new(id, ProgramId(id.0), DEVICE) };
        self.keeper.add(self.now / US, spec, words.clone());
        self.programs.push(Program {
            id,
            context,
            stream: stream_of(member, 0),
            words,
            next_ns: requests.first().map(|(after, _)| after * US),
            requests: requests.into(),
            kernels: VecDeque::new(),
            running: false,
            ended_ns: 0,
            idle_ns: None,
        });
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while self.keeper.carry_out(self.now / US).is_some() {}
    }

    fn tell(&mut self, at: usize, state: u32) {
        self.programs[at].words.state.store(state, SeqCst);
        assert_eq!(self.keeper.scan(self.now / US, self.programs[at].id, |lent| lent), Ok(()));
        self.carry_out();
    }

    /// To the end of all programs.
    fn run(&mut self) {
        for _ in 0..100_000 {
            if self.programs.iter().all(Program::has_ended) {
                return;
            }
            let own = self.programs.iter().flat_map(|p| [p.next_ns, p.idle_ns]).flatten();
            let timer = self.keeper.arbiter().next_timer().map(|us| us * US);
            let next = own.chain(timer).chain(self.model.next_event()).min().expect("something is to come");
            self.now = self.now.max(next);
            self.step();
        }
        panic!("they do not come to an end");
    }

    fn step(&mut self) {
        let mut done = Done::default();
        self.model.run_until(self.now, &mut done);
        for (context, stream, when) in done.0 {
            let of = |p: &Program| p.context == context && p.stream == stream;
            let at = self.programs.iter().position(of).expect("a program");
            self.completed(at, when);
        }
        if self.keeper.arbiter().next_timer().is_some_and(|us| us * US <= self.now) {
            self.keeper.event(self.now / US, Event::Timer);
            self.carry_out();
        }
        for at in 0..self.programs.len() {
            self.end(at);
            self.begin(at);
        }
        self.launch();
    }

    fn completed(&mut self, at: usize, when: u64) {
        let program = &mut self.programs[at];
        (program.running, program.ended_ns) = (false, when);
        if program.kernels.is_empty() {
            program.idle_ns = Some(when + GRACE_NS);
            // Within the grace time it would go on with the same burst.
            program.next_ns = program.requests.front().map(|(after, _)| when + GRACE_NS + after * US);
        } else if !program.words.gate.load().is_granted() {
            self.tell(at, state::DRAINED);
        }
    }

    /// The grace time is over, if it is.
    fn end(&mut self, at: usize) {
        let program = &mut self.programs[at];
        if program.idle_ns.is_some_and(|due| due <= self.now) {
            program.idle_ns = None;
            let began = program.words.ready_at_ns.load(SeqCst);
            program.words.burst_us.store((program.ended_ns - began) / US, SeqCst);
            program.words.bursts.fetch_add(1, SeqCst);
            self.tell(at, state::IDLE);
        }
    }

    /// A request comes, if it is time.
    fn begin(&mut self, at: usize) {
        let program = &mut self.programs[at];
        if program.next_ns.is_some_and(|due| due <= self.now) {
            program.next_ns = None;
            program.kernels.extend(program.requests.pop_front().expect("a request").1);
            program.words.ready_at_ns.store(self.now, SeqCst);
            self.tell(at, state::READY);
        }
    }

    fn launch(&mut self) {
        let mut done = Done::default();
        for program in &mut self.programs {
            if program.running || !program.words.gate.load().is_granted() {
                continue;
            }
            if let Some(us) = program.kernels.pop_front() {
                program.running = true;
                program.words.state.store(state::READY, SeqCst);
                self.model.submit(program.context, program.stream, Work::Run(us * US), (), &mut done);
            }
        }
        assert!(done.0.is_empty(), "a kernel takes time");
    }

    /// Usage charged to each program and in all, and the time in which the device itself was busy, in ns.
    fn figures(mut self) -> (Vec<Usage>, Usage, u64) {
        // Where there is but one group, nothing is followed.
        self.add(-200, None, Vec::new());
        self.add(-200, None, Vec::new());
        self.run();
        self.keeper.ledger_mut().settle(self.now + LATE_NS);
        let device_ns = self.contexts.iter().map(|id| self.model.used_ns(*id)).sum();
        let ledger = self.keeper.ledger();
        (ledger.accounts().map(|a| a.usage).collect(), ledger.busy(DEVICE), device_ns)
    }
}

impl Program {
    fn has_ended(&self) -> bool {
        self.next_ns.is_none() && self.idle_ns.is_none() && !self.running && self.kernels.is_empty()
    }
}

#[test]
fn programs_that_come_one_after_the_other_are_charged_what_their_kernels_took() {
    let mut world = World::new("hpf");
    world.add(0, None, vec![(0, vec![500, 700]), (20_000, vec![1_000])]);
    world.add(0, None, vec![(5_000, vec![300])]);
    let (usage, busy, device_ns) = world.figures();
    assert_eq!(usage[..2].iter().map(|u| u.gpu_ns).collect::<Vec<_>>(), [2_200 * US, 300 * US]);
    assert_eq!((busy.gpu_ns, device_ns), (2_500 * US, 2_500 * US));
}

#[test]
fn kernels_side_by_side_in_a_pool_share_the_time_that_they_have_together() {
    let mut world = World::new("hpf");
    let pool = world.context();
    world.add(0, Some(pool), vec![(0, vec![1_000; 10])]);
    world.add(0, Some(pool), vec![(4_000, vec![1_000; 10])]);
    let (usage, busy, device_ns) = world.figures();
    assert_eq!(usage[..2].iter().map(|u| u.gpu_ns).collect::<Vec<_>>(), [7_000 * US, 7_000 * US]);
    assert_eq!(usage[..2].iter().map(|u| u.resident_ns).collect::<Vec<_>>(), [10_000 * US, 10_000 * US]);
    assert_eq!((busy.gpu_ns, device_ns), (14_000 * US, 14_000 * US));
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..8_000u64, proptest::collection::vec(10..3_000u64, 1..8));
    proptest::collection::vec(request, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// By turns, suspended, side by side: to the ns.
    #[test]
    fn what_is_charged_sums_to_what_the_device_was_busy(
        policy in prop_oneof![Just("hpf"), Just("up"), Just("fair"), Just("mlfq")],
        own in proptest::collection::vec((-200..200i32, requests()), 0..4),
        pooled in proptest::collection::vec(requests(), 0..4),
    ) {
        let mut world = World::new(policy);
        for (priority, requests) in own {
            world.add(priority, None, requests);
        }
        let pool = world.context();
        for requests in pooled {
            world.add(0, Some(pool), requests);
        }
        let (usage, busy, device_ns) = world.figures();
        prop_assert_eq!(busy.gpu_ns, device_ns);
        prop_assert_eq!(usage.iter().map(|u| u.gpu_ns).sum::<u64>(), device_ns);
        prop_assert_eq!(busy.by_driver_ns + busy.at_most_ns, 0);
    }
}
