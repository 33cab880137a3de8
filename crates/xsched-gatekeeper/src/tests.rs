use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};

use xsched_policy::{LOOK_US, ProgramId};
use xsched_proto::hint::Hints;
use xsched_proto::trace::{What, Why};
use xsched_testkit::{is_asleep, until};

use super::company::Company;
use super::*;

mod company;
mod gaps;

const LOW: GroupId = GroupId(1);
const HIGH: GroupId = GroupId(2);

/// A gatekeeper, the words of its groups, and a clock of their own.
struct World {
    keeper: Gatekeeper<Rc<GroupSlot>>,
    words: HashMap<GroupId, Rc<GroupSlot>>,
    now: Micros,
    /// Changes of gates since the test took them last.
    changes: Vec<Change>,
    /// Groups that their host takes off the device when it closes their gates.
    interrupts: Vec<GroupId>,
}

fn spec(id: GroupId, priority: i32, timeslice_us: u64) -> GroupSpec {
    let hints = Hints { timeslice_us: Some(timeslice_us), ..Hints::default() };
    GroupSpec { priority, hints, ..GroupSpec::new(id, ProgramId(id.0), "sim:0") }
}

fn slot() -> GroupSlot {
    let words = GroupSlot::default();
    words.inherited_priority.store(i32::MIN, SeqCst);
    words
}

impl World {
    fn new(policy: &str, budget_us: u32) -> World {
        let keeper = Gatekeeper::new(Arbiter::new(Choice::named(policy).expect("a policy"), 1), budget_us);
        World { keeper, words: HashMap::new(), now: 1_000, changes: Vec::new(), interrupts: Vec::new() }
    }

    /// One low and one high group under the policy hpf, both of which have the device as far as the low one allows.
    fn low_and_high() -> World {
        let mut world = World::new("hpf", BUDGET_DEFAULT_US);
        world.add(spec(LOW, -128, 5_000));
        world.add(spec(HIGH, 128, 5_000));
        world
    }

    fn add(&mut self, spec: GroupSpec) {
        let (id, words) = (spec.id, Rc::new(slot()));
        self.words.insert(id, words.clone());
        self.keeper.add(self.now, spec, words);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(change) = self.keeper.carry_out(self.now) {
            if let Change::Closed(id) = change
                && self.interrupts.contains(&id)
            {
                self.keeper.off_device(self.now, id);
            }
            self.changes.push(change);
        }
    }

    fn scan(&mut self, id: GroupId) {
        assert_eq!(self.keeper.scan(self.now, id, |lent| lent), Ok(()));
        self.carry_out();
    }

    fn state(&mut self, id: GroupId, state: u32) {
        self.words[&id].state.store(state, SeqCst);
        self.scan(id);
    }

    /// Time passes, to the next timer or by this much.
    fn sleep(&mut self, us: Micros) {
        let until = self.now + us;
        while let Some(at) = self.keeper.arbiter().next_timer().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.keeper.event(self.now, Event::Timer);
            self.carry_out();
        }
        self.now = until;
    }

    fn gate(&self, id: GroupId) -> Gate {
        self.words[&id].gate.load()
    }

    fn is_open(&self, id: GroupId) -> bool {
        self.gate(id).is_granted()
    }

    fn budget_us(&self, id: GroupId) -> u32 {
        self.words[&id].budget_us.load(SeqCst)
    }

    fn used_us(&self, id: GroupId) -> f64 {
        self.keeper.arbiter().status(self.now, id).expect("a group").used_us
    }
}

#[test]
fn states_become_gates() {
    let mut world = World::low_and_high();
    let alone = Gate::GRANTED | Gate::CONTENDED | Gate::EXCLUSIVE;
    assert_eq!((world.gate(LOW), world.gate(HIGH)), (alone, alone));
    world.state(LOW, state::READY);
    world.changes.clear();
    world.state(HIGH, state::READY);
    assert_eq!(world.changes, [Change::Closed(LOW)]);
    assert_eq!((world.gate(LOW), world.gate(HIGH)), (Gate::CONTENDED, Gate::GRANTED | Gate::CONTENDED));
    world.state(HIGH, state::IDLE);
    assert_eq!(world.changes, [Change::Closed(LOW), Change::Opened(LOW)]);
    assert!(world.keeper.is_granted(LOW) && world.keeper.is_idle(HIGH) && !world.keeper.is_idle(LOW));
}

#[test]
fn what_is_told_together_is_decided_once() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.changes.clear();
    for state in [state::READY, state::IDLE] {
        world.words[&HIGH].state.store(state, SeqCst);
        assert_eq!(world.keeper.scan(world.now, HIGH, |lent| lent), Ok(()));
    }
    world.carry_out();
    assert_eq!(world.changes, [], "LOW has kept the device");
    let third = Rc::new(slot());
    world.keeper.add(world.now, spec(GroupId(3), 255, 5_000), third.clone());
    world.keeper.event(world.now, Event::Ready(GroupId(3)));
    world.keeper.remove(world.now, GroupId(3));
    world.carry_out();
    assert_eq!(world.changes, []);
    assert!(third.gate.load().is_granted(), "it is left open");
}

#[test]
fn a_group_that_comes_finds_its_words_cleared_and_one_that_goes_leaves_its_gate_open() {
    let mut world = World::low_and_high();
    world.state(HIGH, state::READY);
    let words = Rc::new(slot());
    words.gate.mark(Gate::DAEMONS, true);
    words.gate.grant();
    words.gate.call_idle();
    words.budget_us.store(7, SeqCst);
    world.keeper.add(world.now, spec(GroupId(3), 0, 5_000), words.clone());
    assert_eq!((words.gate.load(), words.budget_us.load(SeqCst)), (Gate::MUST_ANNOUNCE, 0), "until it is decided");
    world.carry_out();
    world.keeper.remove(world.now, GroupId(3));
    world.carry_out();
    assert_eq!(words.gate.load(), Gate::GRANTED | Gate::MUST_ANNOUNCE);
    assert!(!world.keeper.is_granted(GroupId(3)));
}

#[test]
fn a_gate_that_opens_counts_as_a_grant_and_has_its_budget_in_place() {
    let mut world = World::low_and_high();
    let grants = |world: &World| world.words[&LOW].grants.load(SeqCst);
    let before = grants(&world);
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    assert_eq!(grants(&world), before);
    world.state(HIGH, state::IDLE);
    assert_eq!((grants(&world), world.budget_us(LOW)), (before + 1, BUDGET_DEFAULT_US));
}

#[test]
fn several_groups_that_share_the_budget_have_the_least_each() {
    let budgets = |budget_us, groups| {
        let mut world = World::new("hpf", budget_us);
        let ids: Vec<_> = (1..=groups).map(GroupId).collect();
        ids.iter().for_each(|id| world.add(spec(*id, 0, 5_000)));
        world.add(spec(GroupId(99), 128, 5_000));
        ids.iter().for_each(|id| world.state(*id, state::READY));
        ids.iter().map(|id| world.budget_us(*id)).collect::<Vec<_>>()
    };
    assert_eq!(budgets(500, 1), [500]);
    assert_eq!(budgets(500, 4), [400; 4], "not 125");
    assert_eq!(budgets(2_000, 4), [500; 4]);
    assert_eq!(budgets(100, 4), [100; 4], "no more than the whole");
    let mut alone = World::new("hpf", 500);
    alone.add(spec(LOW, 0, 5_000));
    alone.state(LOW, state::READY);
    assert_eq!(alone.budget_us(LOW), 0);
}

#[test]
fn a_budget_of_its_own_takes_the_place_of_a_part_of_the_devices() {
    let budgets = |own_us, others: u64| {
        let mut world = World::new("hpf", 500);
        let ids: Vec<GroupId> = (1..=others + 1).map(GroupId).collect();
        for id in &ids {
            world.add(spec(*id, 0, 1));
            world.state(*id, state::READY);
        }
        world.keeper.set_budget(ids[0], own_us);
        world.add(spec(GroupId(99), 100, 1));
        ids.iter().map(|id| world.budget_us(*id)).collect::<Vec<_>>()
    };
    assert_eq!(budgets(800, 0), [800], "more than the device's");
    assert_eq!(budgets(800, 1), [800, 400], "not a part of it");
    assert_eq!(budgets(300, 1), [300, 400]);
    let mut alone = World::new("hpf", 500);
    alone.add(spec(LOW, 0, 1));
    alone.keeper.set_budget(LOW, 800);
    alone.state(LOW, state::READY);
    assert_eq!(alone.budget_us(LOW), 0, "nobody waits for it");
}

/// As long as it is charged for what another does it is never behind it.
#[test]
fn a_group_whose_grant_ends_before_its_thread_wakes_up_is_charged_for_its_grants_only() {
    let mut world = World::new("up", BUDGET_DEFAULT_US);
    world.add(spec(LOW, 0, 500));
    world.add(spec(HIGH, 0, 500));
    world.interrupts = vec![HIGH];
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    // A thread waits at the gate, and goes on doing so.
    world.state(LOW, state::DRAINED);
    let closed = |world: &World| world.changes.iter().filter(|c| **c == Change::Closed(LOW)).count();
    while closed(&world) < 5 {
        world.sleep(100);
        world.scan(LOW);
        assert!(world.now < 1_000_000, "its grants come: {:?}", world.changes);
    }
    let (waiting, running) = (world.used_us(LOW), world.used_us(HIGH));
    assert!((waiting - running).abs() <= 1_000.0, "{waiting} {running}");
}

/// Work that waits on the device goes on for a process that lives, and never for one that has ended.
#[test]
fn a_group_that_is_given_up_has_its_gate_open_and_one_of_the_dead_closed() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    let is_open = |world: &World, id| world.words[&id].gate.load().is_open_on_device();
    assert_eq!([LOW, HIGH].map(|id| is_open(&world, id)), [false, true]);
    let high = &world.words[&HIGH].gate;
    high.bypass(high.load(), true).unwrap();
    world.keeper.remove_dead(world.now, HIGH);
    world.keeper.remove(world.now, LOW);
    assert_eq!([LOW, HIGH].map(|id| is_open(&world, id)), [true, false]);
}

#[test]
fn a_group_that_has_the_device_is_not_drained_whatever_its_word_says() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    world.state(LOW, state::DRAINED);
    world.state(HIGH, state::IDLE);
    world.sleep(1_000);
    world.scan(LOW);
    assert!(world.is_open(LOW) && !world.keeper.is_idle(LOW));
    let before = world.used_us(LOW);
    world.sleep(1_000);
    assert!(world.used_us(LOW) >= before + 1_000.0, "it is charged from its grant on");
    // The next time is news.
    world.words[&LOW].state.store(state::READY, SeqCst);
    world.state(HIGH, state::READY);
    world.state(LOW, state::DRAINED);
    let before = world.used_us(LOW);
    world.sleep(1_000);
    assert_eq!(world.used_us(LOW), before);
}

#[test]
fn a_group_that_its_host_takes_off_the_device_is_charged_no_more() {
    for (interrupts, charged) in [(Vec::new(), true), (vec![LOW], false)] {
        let mut world = World::low_and_high();
        world.interrupts = interrupts;
        world.state(LOW, state::READY);
        world.state(HIGH, state::READY);
        let before = world.used_us(LOW);
        world.sleep(1_000);
        assert_eq!(world.used_us(LOW) > before, charged);
    }
}

#[test]
fn an_idle_group_that_its_host_takes_off_the_device_does_not_want_it() {
    let mut world = World::low_and_high();
    world.interrupts = vec![LOW];
    world.keeper.event(world.now, Event::Hold(ProgramId(LOW.0)));
    world.carry_out();
    assert!(!world.is_open(LOW));
    assert!(!world.keeper.arbiter().status(world.now, LOW).expect("a group").ready);
}

#[test]
fn a_group_without_progress_is_stalled_until_its_next_launch() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    world.state(LOW, state::DRAINED);
    world.keeper.look(world.now, HIGH, || 5);
    world.carry_out();
    world.sleep(LOOK_US);
    world.keeper.look(world.now, HIGH, || 5);
    assert!(!world.is_open(LOW));
    world.carry_out();
    assert!(world.is_open(LOW), "it has its time");
    assert!(world.gate(HIGH).is_stalled());
    world.scan(HIGH);
    assert!(world.is_open(LOW), "nothing has changed");
    // The store that a launch makes.
    world.words[&HIGH].gate.go_on();
    world.scan(HIGH);
    assert!(!world.is_open(LOW));
}

#[test]
fn progress_is_followed_while_others_wait_only() {
    let mut world = World::low_and_high();
    world.state(HIGH, state::READY);
    let mut asked = 0;
    let mut look = |world: &mut World| {
        world.keeper.look(world.now, HIGH, || {
            asked += 1;
            5
        });
        world.carry_out();
        asked
    };
    assert_eq!(look(&mut world), 0);
    world.state(LOW, state::READY);
    assert_eq!(look(&mut world), 1);
    world.sleep(LOOK_US);
    // A completion is progress.
    world.words[&HIGH].completed.store(1, SeqCst);
    assert_eq!(look(&mut world), 2);
    assert!(!world.gate(HIGH).is_stalled());
}

#[test]
fn a_lent_priority_counts_for_what_its_host_says() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    // Two groups of one program: the second may lend the first what it has itself.
    world.add(spec(LOW, -128, 5_000));
    world.add(GroupSpec { program: ProgramId(LOW.0), ..spec(HIGH, 128, 5_000) });
    let priority = |world: &World| world.keeper.arbiter().status(world.now, LOW).expect("a group").priority;
    world.words[&LOW].inherited_priority.store(128, SeqCst);
    world.keeper.scan(world.now, LOW, |lent| lent.min(3)).expect("a known state");
    assert_eq!(priority(&world), 3);
    world.words[&LOW].inherited_priority.store(i32::MIN, SeqCst);
    world.keeper.scan(world.now, LOW, |_| unreachable!("nothing is lent")).expect("a known state");
    assert_eq!(priority(&world), -128);
}

#[test]
fn a_state_that_is_none_is_told_once_and_counts_as_idle() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    world.words[&HIGH].state.store(77, SeqCst);
    assert_eq!(world.keeper.scan(world.now, HIGH, |lent| lent), Err(UnknownState));
    world.carry_out();
    assert!(world.is_open(LOW));
    world.scan(HIGH);
}

#[test]
fn a_host_hears_of_a_gate_that_is_about_to_close() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    assert!(world.keeper.closing(world.now).next().is_none());
    world.words[&HIGH].state.store(state::READY, SeqCst);
    world.keeper.scan(world.now, HIGH, |lent| lent).expect("a known state");
    assert!(world.keeper.closing(world.now).eq([LOW]) && world.is_open(LOW));
    world.carry_out();
    assert!(world.keeper.closing(world.now).next().is_none() && !world.is_open(LOW));
}

#[test]
fn a_thread_that_waits_is_woken_when_its_gate_opens_or_its_group_goes() {
    const PATIENCE: Duration = Duration::from_secs(60);
    for remove in [false, true] {
        let mut keeper = Gatekeeper::new(Arbiter::new(Choice::named("hpf").expect("a policy"), 1), BUDGET_DEFAULT_US);
        let low = Arc::new(slot());
        keeper.add(0, spec(LOW, -128, 5_000), low.clone());
        keeper.event(0, Event::Hold(ProgramId(LOW.0)));
        while keeper.carry_out(0).is_some() {}
        let (seen, waiter_id) = (low.gate.load(), AtomicI32::new(0));
        assert!(!seen.is_granted());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                waiter_id.store(rustix::thread::gettid().as_raw_nonzero().get(), SeqCst);
                let began = Instant::now();
                low.gate.sleep(seen, PATIENCE.as_nanos() as u64);
                began.elapsed()
            });
            // The thread sleeps nowhere else.
            until("it waits", || match waiter_id.load(SeqCst) {
                0 => false,
                id => is_asleep(std::process::id(), id as u32),
            });
            if remove {
                keeper.remove(1, LOW);
            } else {
                keeper.event(1, Event::Release(ProgramId(LOW.0)));
            }
            while keeper.carry_out(1).is_some() {}
            assert!(waiter.join().expect("no panic") < PATIENCE, "it slept until its timeout");
        });
    }
}

/// The ratio of what two of a pool complete. Beside each other one of them gets on five times as fast, alone both do a command each ms.
/// `limited` = their clients say that the device is what holds them up. `urgent` = a third one of their server has bursts of so many ms
/// each 25 ms, and keeps up.
fn ratio_of_a_pool(limited: bool, urgent: Option<u64>) -> f64 {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    let pooled = |id| GroupSpec { pool: Some(xsched_policy::PoolId(1)), ..spec(id, 0, 5_000) };
    world.add(pooled(LOW));
    world.add(pooled(HIGH));
    assert!(!world.keeper.arbiter().is_counted(LOW), "there is no company yet");
    world.state(LOW, state::READY);
    assert_eq!(world.budget_us(LOW), 0);
    world.state(HIGH, state::READY);
    assert!(world.keeper.arbiter().is_counted(LOW) && world.budget_us(LOW) > 0 && world.budget_us(HIGH) > 0);
    let third = GroupId(3);
    if urgent.is_some() {
        world.add(GroupSpec { pool: Some(xsched_policy::PoolId(1)), ..spec(third, 128, 5_000) });
        world.words[&third].publishes.store(1, SeqCst);
        for (id, page) in [(LOW, None), (HIGH, None), (third, Some((0, 1)))] {
            world.keeper.set_company(id, Some(Company { server: 7, page }));
        }
    }
    let mut done = [0.0, 0.0];
    let mut from = [0.0, 0.0];
    for ms in 0..if urgent.is_some() { 60_000 } else { 8_000 } {
        world.sleep(1_000);
        if let Some(burst) = urgent {
            let words = world.words[&third].clone();
            let word = if ms % 25 < burst { state::READY } else { state::IDLE };
            if words.state.load(SeqCst) != word {
                words.completed.fetch_add(5, SeqCst);
                words.burst_us.store(burst * 1_000, SeqCst);
                words.bursts.fetch_add(u64::from(word == state::IDLE), SeqCst);
                world.state(third, word);
            }
        }
        let open = [LOW, HIGH].map(|id| world.is_open(id) || world.gate(id).yields());
        let speeds = if open == [true, true] { [1.0, 0.2] } else { open.map(|open| if open { 1.0 } else { 0.0 }) };
        for (at, id) in [LOW, HIGH].into_iter().enumerate() {
            done[at] += speeds[at];
            world.words[&id].completed.store(done[at] as u64, SeqCst);
            if limited {
                world.words[&id].limited.store(done[at] as u32, SeqCst);
            }
            let word = if open[at] { state::READY } else { state::DRAINED };
            if world.words[&id].state.load(SeqCst) != word {
                world.state(id, word);
            }
        }
        if ms == 2_000 {
            from = done;
        }
    }
    let [first, second] = [0, 1].map(|at| done[at] - from[at]);
    first / second
}

#[test]
fn what_clients_complete_is_counted_and_decides_within_a_pool() {
    let ratio = ratio_of_a_pool(true, None);
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    let ratio = ratio_of_a_pool(false, None);
    assert!((ratio - 5.0).abs() < 0.1, "who is held up by its own host is not waited for: {ratio}");
}

#[test]
fn those_of_a_pool_get_on_evenly_beside_an_urgent_one_that_they_yield_to() {
    for burst in [5, 9, 15] {
        let ratio = ratio_of_a_pool(true, Some(burst));
        assert!((0.9..1.1).contains(&ratio), "bursts of {burst} ms: {ratio}");
    }
}

/// Device time charged to the program of a group, in µs.
fn charged_us(world: &mut World, id: GroupId) -> u64 {
    let now = world.now * 1_000 + ledger::LATE_NS;
    world.keeper.ledger_mut().settle(now);
    let account = world.keeper.ledger().accounts().find(|a| a.program == ProgramId(id.0));
    account.map_or(0, |a| a.usage.gpu_ns / 1_000)
}

#[test]
fn bursts_that_the_host_has_not_seen_are_charged_as_the_last_one() {
    let mut world = World::low_and_high();
    let burst = |world: &World, at_us: u64, us: u64, goes_on: bool| {
        let words = &world.words[&HIGH];
        words.ready_at_ns.store(at_us * 1_000, SeqCst);
        words.state.store(state::READY, SeqCst);
        if !goes_on {
            words.burst_us.store(us, SeqCst);
            words.bursts.fetch_add(1, SeqCst);
            words.state.store(state::IDLE, SeqCst);
        }
    };
    // One burst, reported when it is over.
    burst(&world, 1_100, 300, false);
    world.now = 1_500;
    world.scan(HIGH);
    assert_eq!(charged_us(&mut world, HIGH), 300);
    // One burst that was seen, two that were not, and one that goes on.
    world.now = 200_000;
    burst(&world, 200_000, 0, true);
    world.scan(HIGH);
    for at_us in [200_000, 203_000, 206_000] {
        burst(&world, at_us, 1_000, false);
    }
    burst(&world, 209_000, 0, true);
    world.now = 210_000;
    world.scan(HIGH);
    assert_eq!(charged_us(&mut world, HIGH), 300 + 3_000 + 1_000);
    // And three more, of which the last is over.
    for at_us in [209_000, 212_000, 215_000] {
        burst(&world, at_us, 1_000, false);
    }
    world.now = 400_000;
    world.scan(HIGH);
    assert_eq!(charged_us(&mut world, HIGH), 300 + 3_000 + 3_000);
}

#[test]
fn waits_and_preemptions_are_kept_where_that_is_asked() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    assert_eq!(world.keeper.outcomes().count(), 0);
    world.keeper.keep_outcomes();
    let kept = |world: &mut World| world.keeper.outcomes().collect::<Vec<_>>();
    world.now = 2_000;
    world.words[&HIGH].ready_at_ns.store(1_990_000, SeqCst);
    world.state(HIGH, state::READY);
    let wanted = [(HIGH, Outcome::Wanted(1_990_000)), (HIGH, Outcome::Waited(0)), (LOW, Outcome::Preempted)];
    assert_eq!(kept(&mut world), wanted);
    world.now = 2_300;
    world.state(LOW, state::DRAINED);
    assert_eq!(kept(&mut world), [(LOW, Outcome::Left(300_000))]);
    world.now = 3_000;
    world.state(HIGH, state::IDLE);
    assert_eq!(kept(&mut world), [(LOW, Outcome::Waited(1_000_000))]);
    // Held by an operator it is not preempted, and waits for nothing.
    world.keeper.event(world.now, Event::Hold(ProgramId(LOW.0)));
    world.carry_out();
    world.now = 9_000;
    world.keeper.event(world.now, Event::Release(ProgramId(LOW.0)));
    world.carry_out();
    assert!(world.is_open(LOW));
    assert_eq!(kept(&mut world), []);
}

/// At levels 2 and 3 the daemon charges nothing from the closing of the gate on, and the command that runs then ends a moment later.
#[test]
fn a_group_that_was_taken_off_the_device_has_left_once_it_says_so() {
    let mut world = World::low_and_high();
    world.keeper.keep_outcomes();
    world.interrupts.push(LOW);
    world.state(LOW, state::READY);
    world.now = 2_000;
    world.state(HIGH, state::READY);
    let left =
        |world: &mut World| world.keeper.outcomes().filter(|(_, o)| matches!(o, Outcome::Left(_))).collect::<Vec<_>>();
    assert_eq!(left(&mut world), []);
    world.now = 2_100;
    world.state(LOW, state::DRAINED);
    assert_eq!(left(&mut world), [(LOW, Outcome::Left(100_000))]);
}

/// Drained before its gate closed, it says so no more.
#[test]
fn a_group_that_was_drained_when_its_gate_closed_has_left_at_once() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    world.state(LOW, state::DRAINED);
    world.state(HIGH, state::IDLE);
    assert!(world.is_open(LOW));
    world.keeper.keep_outcomes();
    world.now = 2_000;
    world.state(HIGH, state::READY);
    world.now = 5_000;
    world.state(LOW, state::IDLE);
    let of_low = world.keeper.outcomes().filter(|(id, _)| *id == LOW).map(|(_, outcome)| outcome).collect::<Vec<_>>();
    assert_eq!(of_low, [Outcome::Preempted, Outcome::Left(0)]);
}

#[test]
fn what_happens_is_recorded_with_its_reason() {
    let mut world = World::low_and_high();
    world.keeper = Gatekeeper::new(Arbiter::new(Choice::named("hpf").expect("a policy"), 1), 500).recording(1 << 16);
    world.add(spec(LOW, -128, 5_000));
    world.add(spec(HIGH, 128, 5_000));
    world.interrupts.push(LOW);
    world.state(LOW, state::READY);
    world.now = 1_100;
    world.words[&HIGH].ready_at_ns.store(1_060_000, SeqCst);
    world.words[&LOW].level.store(3, SeqCst);
    world.state(HIGH, state::READY);
    world.now = 1_200;
    // The group wants the device again while the other has it.
    world.state(LOW, state::IDLE);
    world.state(LOW, state::READY);
    world.words[&LOW].waiting.store(2, SeqCst);
    world.now = 1_300;
    world.state(HIGH, state::IDLE);
    world.keeper.event(world.now, Event::Hold(ProgramId(LOW.0)));
    world.carry_out();
    world.keeper.event(world.now, Event::Hold(ProgramId(LOW.0)));
    world.carry_out();
    world.keeper.remove(world.now, HIGH);
    let ring = world.keeper.ring().expect("it records");
    let all: Vec<_> = (0..ring.next()).filter_map(|n| ring.get(n)).collect();
    let told: Vec<_> = all.iter().map(|r| (r.at_us, r.group, r.what, r.why)).collect();
    let (low, high) = (LOW.0, HIGH.0);
    let expected = [
        (1_000, low, What::Ready, Why::Unsaid),
        (1_100, high, What::Ready, Why::Unsaid),
        (1_100, low, What::Closed, Why::Policy),
        (1_100, low, What::Drained, Why::Unsaid),
        (1_200, low, What::Idle, Why::Unsaid),
        (1_200, low, What::Ready, Why::Unsaid),
        (1_200, low, What::Waits, Why::Policy),
        (1_300, high, What::Idle, Why::Unsaid),
        (1_300, low, What::Opened, Why::Policy),
        (1_300, low, What::Closed, Why::Suspended),
        (1_300, low, What::Drained, Why::Unsaid),
        (1_300, low, What::Waits, Why::Suspended),
        (1_300, high, What::Removed, Why::Unsaid),
    ];
    // Before these both come to be, and their gates open for whichever is ready first.
    let from = told.iter().position(|r| *r == expected[0]).expect("it became ready");
    assert!(told[..from].iter().any(|r| r.2 == What::Added && r.1 == high), "{told:?}");
    let opened = |r: &&(Micros, u64, What, Why)| r.2 != What::Opened || r.0 == 1_300;
    assert_eq!(told[from..].iter().filter(opened).copied().collect::<Vec<_>>(), expected);
    let at = |what, group| all.iter().rev().find(|r| (r.what, r.group) == (what, group)).expect("it is recorded");
    assert_eq!(at(What::Ready, high).value, 40, "so long ago its first launch came");
    assert_eq!(at(What::Opened, low).value, 2, "threads that waited");
    assert_eq!(at(What::Waits, low).level, 3);
}

#[test]
fn what_the_daemon_hears_of_late_is_counted_and_so_is_what_it_never_hears_of() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    world.keeper = world.keeper.recording(1 << 20);
    world.add(spec(LOW, -128, 5_000));
    world.add(spec(HIGH, 128, 5_000));
    world.state(LOW, state::READY);
    let wants = |world: &World| {
        world.words[&HIGH].ready_at_ns.store(world.now * 1_000, SeqCst);
        world.words[&HIGH].state.store(state::READY, SeqCst);
    };
    let late = |world: &World| world.words[&HIGH].heard_late();
    // In time.
    wants(&world);
    world.sleep(1_000);
    world.scan(HIGH);
    assert!(!world.is_open(LOW));
    world.state(HIGH, state::IDLE);
    assert_eq!(late(&world).count, 0);
    // The daemon is away: LOW has the device as before.
    world.sleep(5_000);
    wants(&world);
    world.sleep(30_000);
    assert!(world.is_open(LOW));
    assert_eq!(world.words[&HIGH].heard_late_by(world.now * 1_000).us, 30_000);
    world.scan(HIGH);
    assert!(!world.is_open(LOW));
    assert_eq!((late(&world).count, late(&world).us, late(&world).longest_us), (1, 30_000, 30_000));
    world.state(HIGH, state::IDLE);
    // Two bursts come and go before it is back, and then two more until the program is gone.
    world.sleep(5_000);
    let burst = |world: &mut World| {
        let words = world.words[&HIGH].clone();
        words.ready_at_ns.store(world.now * 1_000, SeqCst);
        let since = words.unheard_since_ns().unwrap();
        world.sleep(20_000);
        words.unheard_ready_ns.store(since, SeqCst);
        words.bursts.fetch_add(1, SeqCst);
    };
    (0..2).for_each(|_| burst(&mut world));
    world.scan(HIGH);
    assert_eq!((late(&world).count, late(&world).us, late(&world).longest_us), (2, 70_000, 40_000));
    world.sleep(5_000);
    (0..2).for_each(|_| burst(&mut world));
    world.keeper.remove(world.now, HIGH);
    world.carry_out();
    assert_eq!((late(&world).count, late(&world).us, late(&world).longest_us), (3, 110_000, 40_000));
    let ring = world.keeper.ring().expect("kept");
    let of_high = (ring.oldest()..ring.next()).filter_map(|n| ring.get(n)).filter(|r| r.group == HIGH.0);
    let told: Vec<_> = of_high.map(|r| (r.what, r.value)).collect();
    let gone_by = [(What::Ready, 40_000), (What::Idle, 0)];
    assert_eq!(told[told.len() - 5..], [&gone_by[..], &gone_by, &[(What::Removed, 0)]].concat());
    assert!(told.contains(&(What::Ready, 30_000)), "{told:?}");
}

/// Its first burst was known when the daemon lost its processor: the news that came late then were counted and not recorded.
#[test]
fn late_news_of_a_group_that_is_known_to_want_the_device_are_recorded_as_often_as_they_are_counted() {
    // Words as a daemon finds them that was away while one burst ended and others began.
    let found = [(state::READY, false), (state::DRAINED, false), (state::IDLE, false), (state::IDLE, true)];
    for (word, is_removed) in found {
        for known in [state::IDLE, state::READY, state::DRAINED] {
            let mut world = World::new("hpf", BUDGET_DEFAULT_US);
            world.keeper = world.keeper.recording(1 << 20);
            world.add(spec(LOW, -128, 5_000));
            world.add(spec(HIGH, 128, 5_000));
            world.state(HIGH, state::READY);
            world.state(LOW, known);
            // Only behind a closed gate there is such a state.
            if known == state::IDLE {
                world.state(LOW, state::READY);
                world.state(LOW, state::IDLE);
            }
            let words = world.words[&LOW].clone();
            world.sleep(5_000);
            words.ready_at_ns.store(world.now * 1_000, SeqCst);
            words.bursts.fetch_add(1, SeqCst);
            words.state.store(word, SeqCst);
            world.sleep(30_000);
            match is_removed {
                true => world.keeper.remove(world.now, LOW),
                false => world.scan(LOW),
            }
            world.carry_out();
            let ring = world.keeper.ring().expect("kept");
            let all = (ring.oldest()..ring.next()).filter_map(|n| ring.get(n));
            let of_low: Vec<_> = all.filter(|r| r.group == LOW.0 && r.at_us == world.now).collect();
            let late = of_low.iter().position(|r| (r.what, r.value) == (What::Ready, 30_000));
            let about = format!("{known} {word} {is_removed}: {of_low:?}");
            assert_eq!(words.heard_late().count, 1, "{about}");
            let late = late.unwrap_or_else(|| panic!("{about}"));
            // A reader takes only one that was idle for ready anew.
            let was_idle = of_low[..late].iter().any(|r| (r.what, r.value) == (What::Idle, 30_000));
            assert_eq!(was_idle, known != state::IDLE, "{about}");
            assert_eq!(of_low.iter().filter(|r| r.what == What::Ready).count(), 1, "{about}");
            let ends = of_low[late..].iter().any(|r| r.what == What::Idle);
            assert_eq!(ends, word == state::IDLE, "{about}");
        }
    }
}

#[test]
fn a_group_that_counts_as_idle_for_want_of_progress_is_counted() {
    let mut world = World::low_and_high();
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    world.state(LOW, state::DRAINED);
    for _ in 0..3 {
        world.keeper.look(world.now, HIGH, || 7);
        world.carry_out();
        world.sleep(LOOK_US);
    }
    assert!(world.is_open(LOW), "it has the device meanwhile");
    assert_eq!((world.words[&HIGH].stalls.load(SeqCst), world.words[&LOW].stalls.load(SeqCst)), (1, 0));
}
