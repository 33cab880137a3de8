//! Time that the arbiter takes for one event, by policy and by number of programs on one device:
//! `cargo bench -p xsched-decisions --bench decide [-- --json] [POLICY …]`.
//!
//! Groups chosen at random become ready and idle, three of ten are ready on average, and timers come when they are due. Programs
//! give hints of all kinds.

use std::time::Instant;

use xsched_policy::registry;
use xsched_policy::{Action, Arbiter, Choice, Event, GroupId, GroupSpec, Level, Lineage, ProgramId};
use xsched_proto::hint::{Hints, Laxity, Slo};

const PROGRAMS: [u64; 3] = [10, 100, 1_000];
const EVENTS: usize = 20_000;
const WARM_UP: usize = 2_000;
/// Of ten groups, how many are ready.
const READY: u64 = 3;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct Row {
    policy: &'static str,
    programs: u64,
    median_us: f64,
    p99_us: f64,
}

fn spec(id: u64, random: &mut Random) -> GroupSpec {
    let mut some = |of: u64| random.below(10) < of;
    let hints = Hints {
        weight: some(5).then_some(100 + id as u32),
        utilization: some(2).then_some(10),
        timeslice_us: some(2).then_some(3_000),
        deadline_us: some(5).then_some(20_000),
        k: some(1).then_some(2),
        laxity: some(3).then_some(Laxity { us: 5_000, lax: Some(-100), critical: None }),
        active: some(1).then_some(true),
        slo: some(3).then_some(Slo::P99(10_000)),
    };
    let user = Level { id: id % 20, weight: 100 };
    let cgroup = vec![Level { id: id % 5, weight: 100 }, Level { id: id % 25, weight: 100 }];
    GroupSpec {
        id: GroupId(id),
        program: ProgramId(id),
        device: "d0".to_owned(),
        priority: random.below(511) as i32 - 255,
        hints,
        nice: random.below(40) as i32 - 20,
        active: false,
        lineage: Some(Lineage { user, cgroup, namespace: None }.into()),
        job: None,
        spatial: None,
        pool: None,
        system: false,
    }
}

fn measure(policy: &'static str, programs: u64) -> Row {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut arbiter = Arbiter::new(Choice::named(policy).expect("it is listed"), 1);
    let mut actions: Vec<Action> = Vec::new();
    let (mut now, mut ready) = (1_000, vec![false; programs as usize + 1]);
    for id in 1..=programs {
        arbiter.event(now, Event::Add(spec(id, &mut random)), &mut actions);
    }
    let mut took = Vec::with_capacity(EVENTS);
    for n in 0..WARM_UP + EVENTS {
        actions.clear();
        let mut event = |now, event| {
            let begin = Instant::now();
            arbiter.event(now, event, &mut actions);
            if n >= WARM_UP {
                took.push(begin.elapsed().as_nanos() as f64 / 1e3);
            }
            arbiter.next_timer()
        };
        let id = 1 + random.below(programs);
        let was = std::mem::replace(&mut ready[id as usize], random.below(10) < READY);
        let timer = match (was, ready[id as usize]) {
            (false, true) => event(now, Event::Ready(GroupId(id))),
            (true, false) => event(now, Event::Idle(GroupId(id))),
            // A group that lost the device is off it.
            (true, true) => event(now, Event::Drained(GroupId(id))),
            (false, false) => event(now, Event::Timer),
        };
        let step = 50 + random.below(1_000);
        if let Some(at) = timer.filter(|at| *at <= now + step) {
            now = at.max(now);
            event(now, Event::Timer);
        } else {
            now += step;
        }
    }
    took.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| took[took.len() * percent / 100];
    Row { policy, programs, median_us: at(50), p99_us: at(99) }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let json = arguments.iter().any(|a| a == "--json");
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let policies = registry::listed().filter(|entry| wanted.is_empty() || wanted.iter().any(|w| *w == entry.name));
    let rows: Vec<Row> = policies.flat_map(|entry| PROGRAMS.map(|programs| measure(entry.name, programs))).collect();
    if json {
        let line = |row: &Row| {
            let Row { policy, programs, median_us, p99_us } = row;
            format!(r#"{{"policy":"{policy}","programs":{programs},"median_us":{median_us:.2},"p99_us":{p99_us:.2}}}"#)
        };
        println!("[{}]", rows.iter().map(line).collect::<Vec<_>>().join(",\n "));
        return;
    }
    println!("Time of one event, in µs: median and P99.\n");
    println!("{:8}{}", "", PROGRAMS.map(|n| format!("{:>22}", format!("{n} programs"))).concat());
    for of_policy in rows.chunks(PROGRAMS.len()) {
        let cells = of_policy.iter().map(|row| format!("{:>12.2}{:>10.2}", row.median_us, row.p99_us));
        println!("{:8}{}", of_policy[0].policy, cells.collect::<String>());
    }
}
