//! Cost of the record of groups' steps: `cargo bench -p xsched-decisions --bench record`.
//!
//! Two groups on a device; the more urgent one becomes ready, takes the device, and goes idle, again and again: two decisions, each
//! with a gate that opens and one that closes. Gatekeepers with and without a record take turns; told is the least and the median of
//! all rounds, per decision.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use xsched_gatekeeper::Gatekeeper;
use xsched_policy::{Arbiter, Choice, GroupId, GroupSpec, ProgramId};
use xsched_proto::segment::{GroupSlot, state};

const LOW: GroupId = GroupId(1);
const HIGH: GroupId = GroupId(2);
const ROUNDS: usize = 200;
const TIMES: u64 = 5_000;
/// As the daemon has it.
const BYTES: usize = 4 << 20;

struct Side {
    keeper: Gatekeeper<Rc<GroupSlot>>,
    high: Rc<GroupSlot>,
    now: u64,
    ns: Vec<f64>,
}

impl Side {
    fn new(records: bool) -> Side {
        let arbiter = Arbiter::new(Choice::named("hpf").expect("a policy"), 1);
        let keeper = Gatekeeper::new(arbiter, 500);
        let mut keeper = if records { keeper.recording(BYTES) } else { keeper };
        let words = [(LOW, -128), (HIGH, 128)].map(|(id, priority)| {
            let words = Rc::new(GroupSlot::default());
            words.inherited_priority.store(i32::MIN, SeqCst);
            let spec = GroupSpec { priority, ..GroupSpec::new(id, ProgramId(id.0), "sim:0") };
            keeper.add(1, spec, words.clone());
            words
        });
        let [low, high] = words;
        low.state.store(state::READY, SeqCst);
        let mut side = Side { keeper, high, now: 1, ns: Vec::new() };
        side.scan(LOW);
        side
    }

    fn scan(&mut self, id: GroupId) {
        self.keeper.scan(self.now, id, |lent| lent).expect("a state");
        while self.keeper.carry_out(self.now).is_some() {}
    }

    fn round(&mut self) {
        let begin = Instant::now();
        for _ in 0..TIMES {
            self.now += 100;
            self.high.ready_at_ns.store(self.now * 1_000, SeqCst);
            self.high.state.store(state::READY, SeqCst);
            self.scan(HIGH);
            self.now += 100;
            self.high.state.store(state::IDLE, SeqCst);
            self.scan(HIGH);
        }
        self.ns.push(begin.elapsed().as_nanos() as f64 / (2 * TIMES) as f64);
    }
}

fn main() {
    let mut sides = [Side::new(false), Side::new(true)];
    for _ in 0..ROUNDS {
        sides.iter_mut().for_each(Side::round);
    }
    for (name, side) in ["without", "with"].into_iter().zip(&mut sides) {
        side.ns.sort_unstable_by(f64::total_cmp);
        println!("{name:>8} a record: least {:.0} ns, median {:.0} ns", side.ns[0], side.ns[ROUNDS / 2]);
    }
}
