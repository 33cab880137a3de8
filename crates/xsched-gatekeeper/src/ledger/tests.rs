use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const DEVICE: &str = "sim:0";
const MS: u64 = 1_000_000;

fn account(ledger: &Ledger, program: u64) -> Usage {
    ledger.accounts().find(|a| a.program == ProgramId(program)).map_or_else(Usage::default, |a| a.usage)
}

/// A ledger with so many programs of one group each on a device, all of which are followed.
fn followed(programs: u64) -> Ledger {
    let mut ledger = Ledger::default();
    for n in 0..programs {
        ledger.add(0, GroupId(n), ProgramId(n), DEVICE);
        ledger.follow(0, GroupId(n), true);
    }
    ledger
}

#[test]
fn time_that_programs_have_together_is_divided_and_its_rest_goes_round() {
    let mut ledger = followed(3);
    for n in 0..3 {
        ledger.set(10 * n, GroupId(n), true);
    }
    for n in 0..3 {
        ledger.set(120, GroupId(n), false);
    }
    ledger.finish(1_000);
    // 10 alone, 10 by two, 100 by three, of which one has one ns more.
    assert_eq!([0, 1, 2].map(|n| account(&ledger, n).gpu_ns), [10 + 5 + 34, 5 + 33, 33]);
    assert_eq!([0, 1, 2].map(|n| account(&ledger, n).resident_ns), [120, 110, 100]);
    assert_eq!(ledger.busy(DEVICE), Usage { gpu_ns: 120, resident_ns: 120, ..Usage::default() });
}

#[test]
fn groups_of_one_program_are_charged_once() {
    let mut ledger = followed(1);
    ledger.add(0, GroupId(7), ProgramId(0), DEVICE);
    ledger.set(0, GroupId(0), true);
    ledger.set(50, GroupId(7), true);
    ledger.set(100, GroupId(0), false);
    ledger.set(150, GroupId(7), false);
    ledger.finish(1_000);
    assert_eq!(account(&ledger, 0), Usage { gpu_ns: 150, resident_ns: 150, ..Usage::default() });
    // Time that they have together is divided.
    let part = |ledger: &Ledger, group| ledger.group_ns(DEVICE, ProgramId(0), GroupId(group));
    assert_eq!([0, 7].map(|group| part(&ledger, group)), [Some(75), Some(75)]);
    // Groups that are gone are known for some time.
    for group in 100..100 + GONE_MAX as u64 {
        ledger.add(1_000, GroupId(group), ProgramId(0), DEVICE);
        ledger.remove(1_000, GroupId(group));
    }
    ledger.remove(1_000, GroupId(7));
    assert_eq!((part(&ledger, 7), part(&ledger, 100), part(&ledger, 101)), (Some(75), None, Some(0)));
}

#[test]
fn what_is_told_late_counts_from_its_own_time() {
    let mut ledger = followed(2);
    ledger.set(1_000, GroupId(0), true);
    ledger.set(2_000, GroupId(1), true);
    ledger.settle(50 * MS);
    assert_eq!(ledger.busy(DEVICE).gpu_ns, 0, "something earlier may still come");
    ledger.set(1_500, GroupId(0), false);
    ledger.set(2_600, GroupId(1), false);
    ledger.settle(3_000 + LATE_NS);
    assert_eq!([0, 1].map(|n| account(&ledger, n).gpu_ns), [500, 600]);
    // Too late: what is charged stays so.
    ledger.set(3_000, GroupId(0), true);
    ledger.settle(4_000 + LATE_NS);
    ledger.set(3_500, GroupId(0), false);
    ledger.finish(5_000 + LATE_NS);
    assert_eq!(account(&ledger, 0).gpu_ns, 500 + 1_000);
}

#[test]
fn what_is_not_followed_waits_for_the_driver_and_is_at_most_that_without() {
    let mut ledger = Ledger::default();
    ledger.add(0, GroupId(1), ProgramId(1), DEVICE);
    ledger.set(0, GroupId(1), true);
    ledger.measured(1_000 + LATE_NS, DEVICE, Some(20));
    let told = Usage { gpu_ns: 200, by_driver_ns: 200, at_most_ns: 0, resident_ns: 1_000 };
    assert_eq!((account(&ledger, 1), ledger.busy(DEVICE)), (told, told));
    assert_eq!(ledger.unmeasured().collect::<Vec<_>>(), [DEVICE]);
    ledger.measured(1_500 + LATE_NS, DEVICE, None);
    let told = Usage { gpu_ns: 700, by_driver_ns: 200, at_most_ns: 500, resident_ns: 1_500 };
    assert_eq!((account(&ledger, 1), ledger.busy(DEVICE)), (told, told));
    // From here on each completion is known.
    ledger.follow(2_000 + LATE_NS, GroupId(1), true);
    ledger.set(2_600 + LATE_NS, GroupId(1), false);
    ledger.measured(3_000 + 2 * LATE_NS, DEVICE, Some(0));
    assert_eq!(account(&ledger, 1).gpu_ns, 700 + 600);
    assert_eq!(ledger.unmeasured().count(), 0);
}

#[test]
fn a_program_that_has_gone_is_closed_once_all_of_it_is_charged() {
    let mut ledger = followed(2);
    ledger.set(0, GroupId(0), true);
    ledger.remove(500, GroupId(0));
    let closed = |ledger: &Ledger| ledger.accounts().map(|a| a.closed).collect::<Vec<_>>();
    assert_eq!(closed(&ledger), [false, false]);
    ledger.settle(500 + LATE_NS);
    assert_eq!(closed(&ledger), [true, false]);
    assert_eq!(account(&ledger, 0).gpu_ns, 500);
    ledger.close(DEVICE, ProgramId(0));
    ledger.close(DEVICE, ProgramId(1));
    assert_eq!(ledger.accounts().count(), 1, "that one is still there");
    assert_eq!(ledger.busy(DEVICE).gpu_ns, 500, "what was busy was busy");
    ledger.remove(600, GroupId(1));
    ledger.close(DEVICE, ProgramId(1));
    assert_eq!(ledger.devices().count(), 0);
}

/// Report at a time: its program, its delay, and its content.
#[derive(Clone, Copy, Debug)]
enum Told {
    On(bool),
    Followed(bool),
    Measured(Option<u32>),
    Settle,
}

fn told() -> impl Strategy<Value = (u64, u64, u64, Told)> {
    let what = prop_oneof![
        8 => any::<bool>().prop_map(Told::On),
        1 => any::<bool>().prop_map(Told::Followed),
        1 => proptest::option::of(0..=100u32).prop_map(Told::Measured),
        1 => Just(Told::Settle),
    ];
    (0..5u64, 0..40 * MS, prop_oneof![Just(0), 0..120 * MS], what)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_charged_sums_to_the_busy_time(steps in proptest::collection::vec(told(), 1..80)) {
        let mut ledger = followed(0);
        for n in 0..5 {
            ledger.add(0, GroupId(n), ProgramId(n), DEVICE);
            ledger.follow(0, GroupId(n), true);
            // And one more of the same program.
            ledger.add(0, GroupId(10 + n), ProgramId(n), DEVICE);
        }
        let mut now = 0;
        for (n, (who, later, ago, what)) in steps.into_iter().enumerate() {
            now += later;
            let id = GroupId(if n % 3 == 0 { 10 + who } else { who });
            match what {
                Told::On(on) => ledger.set(now.saturating_sub(ago), id, on),
                Told::Followed(on) => ledger.follow(now, id, on),
                Told::Measured(percent) => ledger.measured(now, DEVICE, percent),
                Told::Settle => ledger.settle(now),
            }
            let accounts: Vec<Usage> = ledger.accounts().map(|a| a.usage).collect();
            let sum = |of: fn(&Usage) -> u64| accounts.iter().map(of).sum::<u64>();
            let busy = ledger.busy(DEVICE);
            prop_assert_eq!(sum(|u| u.gpu_ns), busy.gpu_ns);
            prop_assert_eq!(sum(|u| u.by_driver_ns), busy.by_driver_ns);
            prop_assert_eq!(sum(|u| u.at_most_ns), busy.at_most_ns);
            prop_assert!(busy.gpu_ns <= busy.resident_ns && busy.resident_ns <= now);
            for usage in &accounts {
                prop_assert!(usage.gpu_ns <= usage.resident_ns && usage.resident_ns <= busy.resident_ns);
                prop_assert!(usage.by_driver_ns + usage.at_most_ns <= usage.gpu_ns);
            }
            for account in ledger.accounts() {
                let of_group = |group| ledger.group_ns(DEVICE, account.program, GroupId(group)).expect("a part");
                let n = account.program.0;
                prop_assert_eq!(of_group(n) + of_group(10 + n), account.usage.gpu_ns);
            }
        }
        ledger.finish(now);
        prop_assert_eq!(ledger.accounts().map(|a| a.usage.gpu_ns).sum::<u64>(), ledger.busy(DEVICE).gpu_ns);
    }

    /// Against a sweep over every moment, for programs whose times are all told in time.
    #[test]
    fn each_program_has_its_part_of_every_moment(
        spans in proptest::collection::vec((0..6u64, 0..400u64, 1..200u64), 1..40),
    ) {
        let mut ledger = Ledger::default();
        let mut moments = vec![std::collections::BTreeSet::new(); 600];
        for (n, &(program, from, length)) in spans.iter().enumerate() {
            let id = GroupId(n as u64);
            ledger.add(0, id, ProgramId(program), DEVICE);
            ledger.follow(0, id, true);
            ledger.set(from, id, true);
            ledger.set(from + length, id, false);
            for at in from..from + length {
                moments[at as usize].insert(program);
            }
        }
        ledger.finish(1_000);
        let busy = moments.iter().filter(|on| !on.is_empty()).count() as u64;
        prop_assert_eq!(ledger.busy(DEVICE).gpu_ns, busy);
        for program in 0..6 {
            let there = moments.iter().filter(|on| on.contains(&program));
            let resident = there.clone().count() as u64;
            let exact: f64 = there.map(|on| 1.0 / on.len() as f64).sum();
            let usage = account(&ledger, program);
            prop_assert_eq!(usage.resident_ns, resident);
            // A ns of each span between two changes may fall to another.
            prop_assert!((usage.gpu_ns as f64 - exact).abs() <= 2.0 * spans.len() as f64, "{} {exact}", usage.gpu_ns);
        }
    }
}
