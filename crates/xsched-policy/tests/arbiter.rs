//! Parts of the arbiter that hold under every policy.

mod world;

use world::{World, spec};
use xsched_policy::{Choice, Drains, Event, GUARD_US, GroupId, GroupSpec, PoolId, ProgramId};
use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::device::DeviceState;
use xsched_proto::hint::Hints;

fn g(id: u64, priority: i32) -> GroupSpec {
    GroupSpec { priority, ..spec(id, "d0") }
}

#[test]
fn a_group_alone_is_open_and_nothing_else_and_a_second_changes_that_at_once() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 0);
    let one = &w.sims[&1];
    assert!(
        one.open && one.bound == 0 && !one.contended && !one.exclusive,
        "a gate word without further bits: the fast path"
    );
    w.add(g(2, 128), 0);
    let (one, two) = (&w.sims[&1], &w.sims[&2]);
    assert!(one.open && one.bound == 1 && one.contended && one.exclusive, "watched before the other launches anything");
    assert!(two.open && two.bound == 0 && two.contended && two.exclusive);
    w.ready(1);
    assert!(w.sims[&1].exclusive && !w.sims[&2].exclusive, "only the one whose time would be disturbed");
    w.remove(2);
    let one = &w.sims[&1];
    assert!(one.open && one.bound == 0 && !one.contended && !one.exclusive);
}

#[test]
fn a_group_alone_is_watched_where_the_policy_may_close_its_gate() {
    for entry in xsched_policy::registry::listed() {
        let mut w = World::new(entry.name);
        w.add(g(1, 0), 0);
        assert_eq!(w.sims[&1].contended, !entry.conserves_work, "{}", entry.name);
    }
}

#[test]
fn hpf_preempts_on_ready_and_gives_back_on_idle_or_death() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 300);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.ready(2);
    assert_eq!(w.open(), [2]);
    w.idle(2);
    assert_eq!(w.open(), [1, 2]);
    w.ready(2);
    w.remove(2);
    assert_eq!(w.open(), [1]);
    assert_eq!(w.arbiter.status(w.now, GroupId(1)).unwrap().suspensions, 2);
}

#[test]
fn device_time_is_charged_to_whoever_is_busy_in_equal_parts_and_draining_counts() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 300);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.run(11_000);
    w.ready(2);
    w.run(21_000);
    // 10 ms alone, then 300 µs of draining shared by two, then 2 alone.
    let used = |id| w.arbiter.status(w.now, GroupId(id)).unwrap().used_us;
    assert_eq!(used(1), 10_150.0);
    assert_eq!(used(2), 9_850.0);
    assert_eq!((w.used(1), w.used(2)), (used(1), used(2)));
}

#[test]
fn an_operator_holds_a_program_and_its_rivals_run() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 0);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.ready(2);
    w.send(Event::Hold(ProgramId(2)));
    assert_eq!(w.open(), [1]);
    w.send(Event::Release(ProgramId(2)));
    assert_eq!(w.open(), [2]);
    w.send(Event::Hold(ProgramId(2)));
    w.add(GroupSpec { program: ProgramId(2), ..spec(3, "d1") }, 0);
    assert_eq!(w.open(), [1], "what a held program adds is held too");
}

#[test]
fn a_group_of_no_priority_does_not_run_whatever_it_is_lent_until_it_has_one() {
    let mut w = World::new("hpf");
    w.add(GroupSpec { program: ProgramId(7), ..g(1, PRIORITY_NEVER) }, 0);
    w.add(GroupSpec { program: ProgramId(7), ..g(2, 100) }, 0);
    w.ready(1);
    w.send(Event::Inherit { group: GroupId(1), priority: Some(100) });
    // Longer than any wants the device in vain.
    w.run(w.now + 3 * GUARD_US);
    let status = |w: &World| w.arbiter.status(w.now, GroupId(1)).unwrap();
    assert!(status(&w).held && !status(&w).granted && status(&w).used_us == 0.0);
    w.send(Event::Hint { group: GroupId(1), priority: Some(-255), hints: Hints::default() });
    assert!(!status(&w).held && status(&w).granted);
    w.send(Event::Hint { group: GroupId(1), priority: Some(PRIORITY_NEVER), hints: Hints::default() });
    assert!(status(&w).held && !status(&w).granted);
}

#[test]
fn a_hint_counts_at_once() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 0);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.ready(2);
    w.send(Event::Hint { group: GroupId(1), priority: Some(200), hints: Hints::default() });
    assert_eq!(w.open(), [1]);
}

#[test]
fn a_waiter_lends_its_priority_but_no_more_than_its_program_has() {
    let mut w = World::new("hpf");
    w.add(GroupSpec { program: ProgramId(7), ..g(1, 10) }, 0);
    w.add(GroupSpec { program: ProgramId(7), ..g(2, 100) }, 0);
    w.add(g(3, 50), 0);
    w.ready(1);
    w.ready(3);
    assert_eq!(w.open(), [2, 3]);
    w.send(Event::Inherit { group: GroupId(1), priority: Some(255) });
    assert_eq!(w.arbiter.status(w.now, GroupId(1)).unwrap().priority, 100, "capped");
    assert_eq!(w.open(), [1, 2]);
    w.send(Event::Inherit { group: GroupId(1), priority: None });
    assert_eq!(w.open(), [2, 3]);
    w.send(Event::Inherit { group: GroupId(1), priority: Some(100) });
    w.remove(2);
    assert_eq!(w.arbiter.status(w.now, GroupId(1)).unwrap().priority, 10, "the lender's rank is gone");
    assert_eq!(w.open(), [3]);
}

#[test]
fn who_makes_no_progress_for_a_second_lets_others_run_a_quantum() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 0);
    w.add(g(2, 128), 0);
    w.ready(2);
    // In no hurry while no group waits. (Timer events only: `World::run` would report progress.)
    w.now += 5_000_000;
    w.send(Event::Timer);
    w.ready(1);
    assert_eq!(w.open(), [2], "the second starts when somebody begins to wait");
    let due = w.arbiter.next_timer().unwrap();
    assert_eq!(due, w.now + 1_000_000);
    w.now = due;
    w.send(Event::Timer);
    assert_eq!(w.open(), [1, 2]);
    w.now = w.arbiter.next_timer().unwrap();
    assert_eq!(w.now, due + 5_000);
    w.send(Event::Timer);
    assert_eq!(w.open(), [2], "one quantum, then another second of patience");
    w.send(Event::Progress(GroupId(2)));
    w.now += 999_999;
    w.send(Event::Timer);
    assert_eq!(w.open(), [2]);
}

#[test]
fn a_stale_group_counts_as_idle_until_it_shows_progress() {
    let mut w = World::new("hpf");
    w.add(g(1, 0), 0);
    w.add(g(2, 128), 0);
    w.ready(1);
    w.ready(2);
    assert!(w.arbiter.status(w.now, GroupId(2)).unwrap().scrutinised);
    w.send(Event::Stalled(GroupId(2)));
    assert_eq!(w.open(), [2], "the other one's last commands are on the device still, maybe in its way");
    w.send(Event::Drained(GroupId(1)));
    w.send(Event::Stalled(GroupId(2)));
    assert_eq!(w.open(), [1, 2]);
    assert!(w.arbiter.any_scrutinised(), "its progress is still of interest");
    assert!(w.sims[&2].stalled, "its next launch must announce itself");
    w.send(Event::Progress(GroupId(2)));
    assert_eq!(w.open(), [2]);
    assert!(!w.sims[&2].stalled);
    w.send(Event::Drained(GroupId(1)));
    w.send(Event::Stalled(GroupId(2)));
    w.ready(2);
    assert_eq!(w.open(), [2]);
    w.send(Event::Drained(GroupId(1)));
    w.send(Event::Stalled(GroupId(2)));
    w.idle(1);
    w.ready(1);
    assert_eq!(w.open(), [2], "forgotten once nobody waits");
}

/// Under CUDA MPS nothing takes a long kernel off the device. A group that waited behind one for 20 ms was taken for idle, and the
/// next one began before its commands did.
#[test]
fn who_waits_behind_a_command_that_nothing_takes_off_the_device_is_not_stale() {
    let mut w = World::new("hpf");
    w.add(GroupSpec { spatial: Some(PoolId(1)), ..g(1, 0) }, 0);
    w.add(GroupSpec { spatial: Some(PoolId(1)), ..g(2, 128) }, 0);
    w.ready(1);
    w.send(Event::TooLong(GroupId(1)));
    w.ready(2);
    assert_eq!(w.open(), [2]);
    w.send(Event::Drained(GroupId(1)));
    w.now += 500_000;
    w.send(Event::Stalled(GroupId(2)));
    assert_eq!(w.open(), [2], "what it gave ahead may have begun though it counts as drained");
    w.now += 500_000;
    w.send(Event::Timer);
    assert_eq!(w.open(), [1, 2], "a second without progress is another matter");
}

#[test]
fn whom_a_stale_group_of_the_same_process_may_wait_for_goes_before_others() {
    let mut w = World::new("hpf");
    let urgent = || GroupSpec { program: ProgramId(1), ..g(2, 20) };
    w.add(g(1, 0), 0);
    w.add(urgent(), 0);
    w.add(g(3, 10), 0);
    w.add(g(4, 30), 0);
    [1, 2, 3].into_iter().for_each(|id| w.ready(id));
    assert_eq!(w.open(), [2, 4]);
    w.send(Event::Stalled(GroupId(2)));
    assert_eq!(w.open(), [1, 2, 4], "before the rival of middle priority");
    w.ready(4);
    assert_eq!(w.open(), [4], "but not before those more urgent than both");
    w.idle(4);
    w.send(Event::Progress(GroupId(2)));
    assert_eq!(w.open(), [2, 4]);
}

#[test]
fn a_closed_group_that_waits_for_the_rest_of_its_job_is_not_charged_for_ever() {
    for job in [None, Some("ranks".to_owned())] {
        let mut w = World::new("hpf");
        w.add(GroupSpec { job: job.clone(), ..g(1, 0) }, u64::MAX / 2);
        w.add(GroupSpec { job: job.clone(), ..spec(2, "d1") }, 0);
        w.add(g(3, 10), 0);
        [1, 2, 3].into_iter().for_each(|id| w.ready(id));
        assert_eq!(w.open().contains(&2), job.is_none(), "all or none");
        let used = |w: &World| w.arbiter.status(w.now, GroupId(1)).unwrap().used_us;
        w.now += 10_000;
        assert_eq!(used(&w), 5_000.0, "half of the device, as long as its last commands may run");
        w.now += 10_000;
        w.ready(3);
        w.now += 100_000;
        assert_eq!(used(&w), if job.is_some() { 10_000.0 } else { 60_000.0 });
    }
}

#[test]
fn a_stale_group_that_lost_its_turn_is_believed_again_when_it_waits_or_after_a_while() {
    for waits in [false, true] {
        let mut w = World::new("up");
        w.add(g(1, 0), 0);
        w.add(g(2, 0), 0);
        w.ready(1);
        w.ready(2);
        assert_eq!(w.open(), [1]);
        w.send(Event::Stalled(GroupId(1)));
        assert_eq!(w.open(), [2]);
        w.now += 1_000;
        if waits {
            w.send(Event::Drained(GroupId(1)));
        }
        let mut turns = 0;
        while w.open() != [1] {
            w.now = w.arbiter.next_timer().unwrap();
            w.send(Event::Progress(GroupId(2)));
            w.send(Event::Timer);
            turns += 1;
            assert!(turns < 30);
        }
        assert_eq!(w.now < 10_000, waits, "{}", w.now);
    }
}

#[test]
fn a_job_runs_on_all_its_devices_or_on_none() {
    let member = |id, device: &str, priority| GroupSpec { priority, job: Some("j".into()), ..spec(id, device) };
    let mut w = World::new("hpf");
    w.add(member(1, "d0", 0), 0);
    w.add(member(2, "d1", 0), 0);
    w.add(GroupSpec { priority: -128, ..spec(3, "d0") }, 0);
    w.add(GroupSpec { priority: 128, ..spec(4, "d1") }, 0);
    for id in 1..=3 {
        w.ready(id);
    }
    assert_eq!(w.open(), [1, 2, 4], "the low one waits for the job");
    w.ready(4);
    assert_eq!(w.open(), [3, 4], "kept from d1, the job leaves d0 too, and d0 goes to the low one");
    w.idle(4);
    assert_eq!(w.open(), [1, 2, 4]);
    w.idle(2);
    w.ready(4);
    assert_eq!(w.open(), [1, 4], "a member that wants nothing does not keep the others");
}

#[test]
fn two_groups_of_a_job_on_one_device_may_take_turns() {
    let mut w = World::new("up");
    for (id, device) in [(1, "d0"), (2, "d0"), (3, "d1")] {
        w.add(GroupSpec { job: Some("j".into()), ..spec(id, device) }, 0);
        w.ready(id);
    }
    w.run(1_000_000);
    assert!((w.used(1) - w.used(2)).abs() < 10_000.0);
    assert!(w.used(3) > 990_000.0);
}

#[test]
fn fair_turns_of_a_job_on_several_devices_come_together() {
    for policy in ["up", "pup"] {
        let mut w = World::new(policy);
        for (id, device, job) in [
            (1, "d0", "j"),
            (2, "d1", "j"),
            (3, "d2", "j"),
            (4, "d0", "k"),
            (5, "d1", "k"),
            (6, "d1", ""),
            (7, "d2", ""),
        ] {
            let job = Some(job.to_owned()).filter(|j| !j.is_empty());
            w.add(GroupSpec { job, program: ProgramId(id), ..spec(id, device) }, 100);
            w.ready(id);
            w.run(w.now + 1_700);
            w.assert_jobs();
        }
        let start: Vec<_> = (1..=7).map(|id| w.used(id)).collect();
        let end = w.now + 4_000_000;
        while w.now < end {
            w.run(w.now + 977);
            w.assert_jobs();
            w.assert_work_conserving();
        }
        let used: Vec<_> = (1..=7).map(|id| w.used(id) - start[id as usize - 1]).collect();
        assert!(used.iter().all(|&u| u > 500_000.0), "{policy}: {used:?}");
    }
}

#[test]
fn a_devices_state_is_told_to_its_policy_and_to_one_that_follows() {
    let mut w = World::new("external");
    w.add(g(1, 0), 0);
    let state = |age_ms| DeviceState { age_ms, active_percent: Some(97), ..DeviceState::default() };
    let told = |w: &mut World| w.arbiter.questions().pop().map(|(device, question)| (device, question.state));
    assert_eq!(told(&mut w), Some(("d0".into(), None)));
    w.arbiter.observe(w.now, "d0", Some(&state(5)));
    w.arbiter.observe(w.now, "d1", Some(&state(7)));
    w.ready(1);
    assert_eq!(told(&mut w), Some(("d0".into(), Some(state(5)))));
    for policy in ["hpf", "external"] {
        w.arbiter.set_policy(w.now, None, Choice::named(policy).unwrap(), &mut Vec::new());
    }
    assert_eq!(told(&mut w), Some(("d0".into(), Some(state(5)))));
}

/// Times at which the gates changed of a group of `low`, and of one of `high` that came at 10 ms, with the gates open then. The device
/// executes something of the first one until `executes_until`. It may share a pool with another, whose commands are short or long.
fn gates_beside_a_drain(executes_until: u64, pool_with_short: Option<bool>) -> Vec<(u64, Vec<u64>)> {
    gates_beside(Drains::InSlices, 0, executes_until, pool_with_short)
}

/// As [`gates_beside_a_drain`], for work that ends in this way, beside a group whose last request took so long.
fn gates_beside(
    how: Drains,
    request_us: u64,
    executes_until: u64,
    pool_with_short: Option<bool>,
) -> Vec<(u64, Vec<u64>)> {
    let mut w = World::new("hpf");
    let pool = pool_with_short.map(|_| PoolId(7));
    let low = |id| GroupSpec { pool, ..g(id, -128) };
    w.add(low(1), 0);
    w.add(g(2, 128), 0);
    if let Some(short) = pool_with_short {
        w.add(low(3), 0);
        w.send(Event::Drains(GroupId(3), if short { Drains::InSlices } else { Drains::ByItself }));
        w.ready(3);
    }
    if request_us > 0 {
        w.ready(2);
        w.run(request_us);
        w.send(Event::Idle(GroupId(2)));
    }
    let start = w.now;
    w.sims.get_mut(&1).unwrap().executes_until = start + executes_until;
    w.send(Event::Drains(GroupId(1), how));
    w.ready(1);
    w.run(start + 10_000);
    w.ready(2);
    // As where gates on the device are taken to hold it at once.
    [1, 3].into_iter().for_each(|id| w.send(Event::Drained(GroupId(id))));
    let mut seen = Vec::new();
    for now in (10_000..60_000).step_by(50) {
        w.run(start + now);
        if seen.last().is_none_or(|(_, open)| *open != w.open()) {
            seen.push((now, w.open()));
        }
    }
    seen
}

#[test]
fn what_a_suspended_group_has_in_flight_for_long_gets_the_device_for_a_moment() {
    let seen = gates_beside_a_drain(14_250, None);
    assert_eq!(seen, [(10_000, vec![2]), (14_000, vec![]), (14_300, vec![2])], "until it has ended");
}

#[test]
fn work_that_gets_nowhere_in_slices_ends_before_others_begin_and_they_wait_once() {
    let seen = gates_beside(Drains::First, 30_000, 16_000, None);
    assert_eq!(seen, [(10_000, vec![2]), (10_100, vec![]), (16_000, vec![2])], "until it has ended");
    let seen = gates_beside(Drains::First, 30_000, 60_000, None);
    assert_eq!(seen, [(10_000, vec![2]), (10_100, vec![]), (22_100, vec![2])], "12 ms, and not again");
    assert_eq!(gates_beside(Drains::First, 5_000, 60_000, None), three_moments(), "a short request would double");
    assert_eq!(gates_beside(Drains::ByItself, 30_000, 60_000, None), [(10_000, vec![2])]);
}

#[test]
fn a_wait_for_work_that_takes_longer_is_tried_now_and_then() {
    let mut w = World::new("hpf");
    w.add(g(1, -128), 0);
    w.add(g(2, 128), 0);
    w.send(Event::Drains(GroupId(1), Drains::First));
    w.ready(1);
    let mut waits = |executes_us: u64, times: usize| -> Vec<bool> {
        let mut request = |_| {
            w.run(w.now + 5_000);
            let begin = w.now;
            w.sims.get_mut(&1).unwrap().executes_until = begin + executes_us;
            w.ready(2);
            w.send(Event::Drained(GroupId(1)));
            let mut has_waited = false;
            while w.now < begin + 50_000 {
                w.run(w.now + 50);
                has_waited |= w.open().is_empty() && w.now < begin + 3_000;
            }
            w.send(Event::Idle(GroupId(2)));
            has_waited
        };
        (0..times).map(&mut request).collect()
    };
    assert_eq!(waits(4_000, 3), [false, true, true], "the length of the first request is not known before");
    assert_eq!(waits(60_000, 3), [true; 3], "in vain");
    for _ in 0..2 {
        let found = waits(60_000, 13);
        assert_eq!(found, [vec![false; 12], vec![true]].concat());
    }
    waits(60_000, 12);
    assert_eq!(waits(4_000, 3), [true; 3], "it has ended meanwhile");
    assert_eq!(waits(60_000, 4), [true, true, true, false]);
}

/// Gates beside work that none of the moments suffices for.
fn three_moments() -> Vec<(u64, Vec<u64>)> {
    [10_000, 14_000, 17_000, 21_000, 24_000, 28_000, 31_000]
        .into_iter()
        .zip([vec![2], vec![]].into_iter().cycle())
        .collect()
}

#[test]
fn others_stay_away_for_what_is_in_flight_three_times_and_not_for_long() {
    assert_eq!(gates_beside_a_drain(60_000, None), three_moments());
    let seen = gates_beside_a_drain(22_000, None);
    assert_eq!(seen[3..], [(21_000, vec![]), (22_000, vec![2])], "the second moment suffices");
    assert_eq!(gates_beside_a_drain(13_000, None), [(10_000, vec![2])], "it has ended by itself");
}

#[test]
fn nobody_stays_away_for_what_cannot_end_soon_beside_a_long_command_of_its_pool() {
    let seen = gates_beside_a_drain(60_000, Some(true));
    assert_eq!(seen, three_moments());
    assert_eq!(gates_beside_a_drain(60_000, Some(false)), [(10_000, vec![2])]);
}
