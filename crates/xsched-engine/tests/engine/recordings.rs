//! Recordings: programs are followed while a command records them, and their bursts are told.

use std::sync::atomic::Ordering::Relaxed;

use crate::support::{Client, OWN, ROOT, World};
use xsched_engine::{Input, User};
use xsched_proto::segment::{GroupSlot, state};
use xsched_proto::trace::Burst;

const RECORDER: u64 = 90;
const OTHER: User = User { uid: 7, ..OWN };

impl World {
    fn record(&mut self, user: User, pids: &[u32]) {
        self.input(Input::Record { command: RECORDER, user, pids: pids.to_vec() });
    }

    fn bursts(&self) -> Vec<Burst> {
        self.engine.bursts(RECORDER, 0).expect("a recording").2
    }

    /// A burst of some commands, of such a length.
    fn burst(&mut self, client: &Client, us: u64, launches: u64) {
        self.ready(client, 0);
        self.pass_us(us);
        let words = client.words(0);
        words.launches_retired.fetch_add(launches, Relaxed);
        self.end(words, us);
        self.set_state(client, 0, state::IDLE);
    }

    fn end(&self, words: &GroupSlot, us: u64) {
        words.burst_us.store(us, Relaxed);
        words.burst_launches.store(words.launches_retired.load(Relaxed) as u32, Relaxed);
        words.bursts.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_program_alone_is_followed_while_it_is_recorded() {
    let mut world = World::new();
    let (one, two) = (world.attach(0), world.attach(0));
    world.group(&one, 0, "sim:0");
    world.group(&two, 0, "sim:1");
    let gate = |client: &Client| (client.gate(0).is_contended(), client.gate(0).is_exclusive());
    assert_eq!(gate(&one), (false, false));
    world.record(OWN, &[one.pid]);
    assert_eq!((gate(&one), gate(&two)), ((true, true), (false, false)));
    let begin_us = world.now_ns / 1_000;
    world.burst(&one, 3_000, 5);
    world.burst(&two, 1_000, 5);
    world.pass_us(2_000);
    world.burst(&one, 4_000, 7);
    let seen: Vec<_> =
        world.bursts().iter().map(|b| (b.pid, b.began_us - begin_us, b.us, b.commands, b.alone)).collect();
    assert_eq!(seen, [(one.pid, 0, 3_000, 5, true), (one.pid, 6_000, 4_000, 7, true)]);
    // Its device gets company: the gate is as the arbiter wants it.
    world.group(&two, 1, "sim:0");
    assert!(gate(&one).0);
    world.record(OWN, &[two.pid]);
    assert_eq!(gate(&two), (true, true));
    world.input(Input::RecordEnds(RECORDER));
    assert_eq!((gate(&two), world.engine.bursts(RECORDER, 0)), ((false, false), None));
    assert!(gate(&one).0, "another group shares its device");
    assert_eq!(world.engine.inventory().recordings, 0);
}

#[test]
fn beside_another_program_a_burst_tells_of_its_wait_and_of_company() {
    let mut world = World::new();
    let (low, high) = (world.attach(-100), world.attach(100));
    world.record(ROOT, &[]);
    // Programs that come later are recorded as well.
    for client in [&low, &high] {
        world.group(client, 0, "sim:0");
        assert!(client.gate(0).is_contended());
    }
    world.ready(&high, 0);
    world.ready(&low, 0);
    world.pass_us(2_000);
    world.end(high.words(0), 2_000);
    world.set_state(&high, 0, state::IDLE);
    world.pass_us(1_000);
    low.words(0).burst_device_us.store(900, Relaxed);
    world.end(low.words(0), 3_000);
    world.set_state(&low, 0, state::IDLE);
    let seen: Vec<_> = world.bursts().iter().map(|b| (b.pid, b.us, b.waited_us, b.device_us, b.alone)).collect();
    assert_eq!(seen, [(high.pid, 2_000, 0, 0, false), (low.pid, 3_000, 2_000, 900, false)]);
}

#[test]
fn nobody_records_programs_of_others() {
    let mut world = World::new();
    let own = world.attach(0);
    world.group(&own, 0, "sim:0");
    world.record(OTHER, &[]);
    world.burst(&own, 1_000, 1);
    assert!(!own.gate(0).is_contended() && world.bursts().is_empty());
    world.record(OTHER, &[own.pid]);
    world.burst(&own, 1_000, 1);
    assert!(!own.gate(0).is_contended() && world.bursts().is_empty());
}

/// A training that is followed to its end, and a server whose last burst the training still sees.
#[test]
fn a_burst_is_cut_where_its_program_or_the_recording_ends() {
    let mut world = World::new();
    let (low, high) = (world.attach(-100), world.attach(100));
    world.record(ROOT, &[]);
    for client in [&low, &high] {
        world.group(client, 0, "sim:0");
    }
    let begin_us = world.now_ns / 1_000;
    world.ready(&low, 0);
    world.pass_us(1_000);
    world.burst(&high, 2_000, 5);
    // The program ends a burst, and is gone before the daemon reads of it.
    world.ready(&high, 0);
    world.pass_us(500);
    world.end(high.words(0), 400);
    high.words(0).state.store(state::IDLE, Relaxed);
    world.input(Input::Left { program: high.id, by_itself: true });
    world.pass_us(3_000);
    let cut = |b: &Burst| (b.pid, b.began_us - begin_us, b.us, b.commands, b.alone, b.cut);
    let open: Vec<_> = world.engine.open_bursts(RECORDER).iter().map(cut).collect();
    assert_eq!(open, [(low.pid, 0, 6_500, 0, false, true)], "the server was there in its midst");
    world.pass_us(500);
    world.input(Input::Left { program: low.id, by_itself: true });
    let seen: Vec<_> = world.bursts().iter().map(cut).collect();
    assert_eq!(seen[1..], [(high.pid, 3_000, 400, 0, false, false), (low.pid, 0, 7_000, 0, false, true)]);
    assert_eq!((seen.len(), world.engine.open_bursts(RECORDER)), (3, Vec::new()));
}
