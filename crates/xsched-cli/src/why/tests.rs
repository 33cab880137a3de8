//! Tests: one for each cause, from what `ps` and `trace` answer.

use xsched_proto::account::MemoryUse;
use xsched_proto::wire::{ClassFrom, MemoryInfo, Platform, TracedProgram, Unscheduled};

use super::*;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Program with one group, `g<pid>` on sim:0.
fn program(pid: u32, name: &str, class: Class) -> ProgramInfo {
    let group = GroupInfo {
        priority: class.nominal(),
        level: 2,
        state: GroupState::Running,
        launches: 1_000,
        ..GroupInfo::new(pid.into(), "sim:0", Platform::Sim)
    };
    ProgramInfo {
        attached_s: 1,
        class_from: ClassFrom::Option,
        groups: vec![group],
        ..ProgramInfo::new(pid, 60_001, &format!("/bin/{name}"), class)
    }
}

fn traced(program: &ProgramInfo) -> TracedGroup {
    let of = TracedProgram {
        pid: program.pid,
        uid: program.uid,
        exe: program.exe.clone(),
        name: program.name.clone(),
        class: program.class,
        platform: Platform::Sim,
    };
    TracedGroup {
        id: program.pid.into(),
        device: "sim:0".into(),
        program: Some(of),
        ended: false,
        ready: true,
        granted: true,
        why: Why::Policy,
        policy: 0,
        level: 2,
    }
}

/// Minute in which a group ran and waited for so many seconds.
fn times(ran_s: u64, waited_s: u64) -> Times {
    Times { window_us: 60 * S, ran_us: ran_s * S, waited_us: waited_s * S, ..Times::default() }
}

fn wait_for(holder: u64, ran_s: u64, waited_s: u64) -> Times {
    Times { holder: Some(holder), why: Some(Why::Policy), ..times(ran_s, waited_s) }
}

/// Programs 1 (train, low) and 2 (serve, high), and what each of them did in a minute.
struct World {
    programs: Vec<ProgramInfo>,
    groups: Vec<TracedGroup>,
    times: BTreeMap<u64, Times>,
    policy: &'static str,
}

impl World {
    fn new(train: Times, serve: Times) -> World {
        let programs = vec![program(1, "train", Class::Low), program(2, "serve", Class::High)];
        let groups = programs.iter().map(traced).collect();
        World { programs, groups, times: [(1, train), (2, serve)].into(), policy: "hpf" }
    }

    /// Changes a program and its group.
    fn with(mut self, pid: u32, change: impl FnOnce(&mut ProgramInfo)) -> World {
        change(self.programs.iter_mut().find(|program| program.pid == pid).unwrap());
        self
    }

    #[track_caller]
    fn is(&self, pid: u32, cause: Cause, text: &str, advice: &str) {
        let program = self.programs.iter().find(|program| program.pid == pid).unwrap();
        let known = Known { programs: &self.programs, groups: &self.groups, times: &self.times };
        let answer = known.why(program, program.groups.first(), self.policy);
        assert_eq!((answer.cause, &*answer.text, &*answer.advice), (cause, text, advice));
        // Each half is a line of a terminal of 80 columns, or hardly more.
        assert!(!answer.text.contains('\n') && answer.text.chars().count() <= 100, "{}", answer.text);
    }
}

#[test]
fn a_more_urgent_program_is_named_with_what_gives_the_other_more() {
    let world = World::new(wait_for(2, 20, 37), times(37, 0));
    let text = "waits 62 % of the time: serve (high) has the device, and goes first";
    let advice = "usual for low; for more: `xsched hint 1 -p high`, or `xsched policy set fair`";
    world.is(1, Cause::Urgent, text, advice);
    let limited = world.with(1, |train| train.limited = true);
    let advice =
        "usual for low; for more: its class is limited, by `[limits]` or a rule's ceiling, or `xsched policy set fair`";
    limited.is(1, Cause::Urgent, text, advice);
}

#[test]
fn equals_take_turns_and_a_program_of_another_user_has_no_name() {
    let mut world = World::new(wait_for(2, 30, 30), times(30, 0));
    world.programs[1] = program(2, "serve", Class::Low);
    world.groups[1] = traced(&world.programs[1]);
    world.policy = "up timeslice=1ms";
    let advice = "usual among equals; to go first: `xsched hint 1 -p normal`";
    world.is(1, Cause::Turns, "waits 50 % of the time: it takes turns with serve (low) (policy up)", advice);
    world.programs.pop();
    world.groups[1].program = None;
    let text = "waits 50 % of the time: another user's program has the device (policy up)";
    world.is(1, Cause::Turns, text, advice);
}

#[test]
fn a_program_that_has_its_share_is_told_so_and_one_that_has_not_waits_for_another() {
    let share = |got: f64| {
        let mut world = World::new(wait_for(2, 18, 42), times(42, 0));
        world.programs[1] = program(2, "serve", Class::Low);
        world.groups[1] = traced(&world.programs[1]);
        world.policy = "fair";
        world.with(1, |train| {
            (train.groups[0].share_asked_percent, train.groups[0].share_got_percent) = (Some(30.0), Some(got));
        })
    };
    let text = "waits 70 % of the time: it has its part, 31 % of the 30 % that it asks for (policy fair)";
    let advice = "for more: `xsched hint 1 --weight N`, or --utilization, as its policy goes by";
    share(31.0).is(1, Cause::Share, text, advice);
    let text = "waits 70 % of the time: it takes turns with serve (low) (policy fair)";
    share(12.0).is(1, Cause::Turns, text, "usual among equals; to go first: `xsched hint 1 -p normal`");
}

#[test]
fn stages_of_the_decision_behind_the_policy_are_named() {
    let because = |why| World::new(Times { why: Some(why), ..wait_for(2, 20, 30) }, times(30, 0));
    let text = "waits 50 % of the time: serve (high) has one of the devices of its job";
    because(Why::Job).is(1, Cause::Job, text, "it gets all of them or none; give all ranks the higher class");
    let text = "waits 50 % of the time: vendor libraries of the same program go first";
    let advice = "so its domains are set; `XSCHED_DOMAINS=off` in front of it switches that off";
    because(Why::Domain).is(1, Cause::Domain, text, advice);
    for (why, reason) in [
        (Why::Guarantee, "a class has its guarantee or quantum"),
        (Why::Evenness, "its pool keeps its programs even"),
        (Why::Guard, "one that had waited too long had a turn"),
        (Why::Starvation, "one that had waited too long had a turn"),
        (Why::Drain, "one that had waited too long had a turn"),
        (Why::Stalled, "it showed no progress"),
    ] {
        let text = format!("waits 50 % of the time: serve (high) has the device, since {reason}");
        because(why).is(1, Cause::Stage, &text, "so the configuration wants it: `xsched config show`");
    }
}

#[test]
fn kernels_in_flight_of_a_less_urgent_program_are_told_with_what_shortens_them() {
    let left = Times { left_us: Some((8 * MS, 9 * MS)), leaving_us: 2 * S, ..wait_for(2, 20, 37) };
    let serve = |change: fn(&mut ProgramInfo)| World::new(left.clone(), times(40, 0)).with(1, change);
    let text = "starts behind kernels of train (low) in flight: 8 ms to leave, P99 9 ms";
    let by_level = "run that one without `--level` (it has level 2), in a pool, or with shorter kernels";
    serve(|train| train.groups[0].longest_us = 7 * MS).is(2, Cause::InFlight, text, by_level);
    serve(|train| train.groups[0].longest_us = MS).is(
        2,
        Cause::InFlight,
        text,
        "fewer of them in flight: `xsched hint 1 --threshold 2`",
    );
    let advice = "shorter kernels there, or `run --share pool` for it; level 3 is in force";
    serve(|train| train.groups[0].level = 3).is(2, Cause::InFlight, text, advice);
    // A few times in a minute are no reason.
    let seldom = World::new(Times { leaving_us: 40 * MS, ..left.clone() }, times(40, 0));
    let text = "has the device 67 % of the time, and whenever it wants it";
    let kernels = "its kernels are the limit: a profiler, a faster device";
    seldom.is(2, Cause::Served, text, kernels);
    // A more urgent program that took long to leave does not stand before it.
    let mut other = World::new(times(40, 0), Times { left_us: Some((8 * MS, 9 * MS)), leaving_us: S, ..times(10, 0) });
    other.times.insert(1, times(40, 2));
    other.is(1, Cause::Served, text, kernels);
}

#[test]
fn an_operator_is_named_first() {
    let world = |change: fn(&mut ProgramInfo)| World::new(wait_for(2, 0, 60), times(60, 0)).with(1, change);
    let by_hand = world(|train| train.groups[0].state = GroupState::Suspended);
    by_hand.is(1, Cause::Suspended, "is kept off the device by `xsched suspend`", "`xsched resume 1`");
    let frozen = world(|train| {
        train.groups[0].state = GroupState::Suspended;
        train.memory =
            vec![MemoryInfo { held: MemoryUse { frozen: true, ..MemoryUse::default() }, ..MemoryInfo::default() }];
    });
    frozen.is(1, Cause::Frozen, "has its memory on the host, by `xsched freeze`", "`xsched thaw 1`");
    let never = world(|train| {
        train.priority = PRIORITY_NEVER;
        train.groups[0].state = GroupState::Suspended;
    });
    never.is(1, Cause::Never, "never runs: its priority is -256", "`xsched hint 1 -p low`");
    let detached = world(|train| train.groups[0].state = GroupState::Detached);
    let text = "has opened its own gate: it runs whatever the daemon decides";
    detached.is(1, Cause::Detached, text, "start it again; `xsched doctor 1` says more");
    let none = world(|train| train.groups.clear());
    let advice = "wait for its first device call; `xsched doctor 1` if it has made one";
    none.is(1, Cause::NoDevice, "has used no device yet", advice);
}

#[test]
fn a_program_without_progress_and_launches_past_the_scheduler_are_told() {
    let stalled = World::new(Times { stalled_us: 30 * S, ..times(10, 0) }, times(40, 0));
    let text = "has the device without progress for 50 % of the time: others get it meanwhile";
    stalled.is(1, Cause::Stalled, text, "see what its kernels wait for; `xsched doctor 1` says more");
    for (unscheduled, why, advice) in [
        (
            Unscheduled { attach: 20, passthrough: 480, error: 0 },
            "by a pass-through rule",
            "take it from the rule where it is to be scheduled",
        ),
        (Unscheduled { attach: 0, passthrough: 0, error: 500 }, "after an error", "see its stderr, and report it"),
        (
            Unscheduled { attach: 500, passthrough: 0, error: 0 },
            "before the daemon had answered",
            "usual at the start; later: is the daemon gone or busy?",
        ),
    ] {
        let world = World::new(times(50, 0), times(40, 0)).with(1, |train| train.groups[0].unscheduled = unscheduled);
        world.is(1, Cause::Unscheduled, &format!("is not scheduled for 50 % of its launches: {why}"), advice);
    }
}

#[test]
fn a_program_that_xsched_does_not_slow_is_told_what_does() {
    let host = "xsched does not slow it: profile its own host code, or make its batches larger";
    let text = "asks nothing of the device for 80 % of the time";
    World::new(times(12, 0), times(0, 0)).is(1, Cause::Host, text, host);
    // A wait of less than 5 % is no reason.
    World::new(wait_for(2, 12, 2), times(40, 0)).is(1, Cause::Host, text, host);
    let kernels = "its kernels are the limit: a profiler, a faster device";
    let text = "is alone on the device, and has it 95 % of the time: xsched does not slow it";
    World::new(times(57, 0), times(0, 0)).is(1, Cause::Alone, text, kernels);
    let text = "has the device 67 % of the time, and whenever it wants it";
    World::new(times(10, 30), times(40, 0)).is(2, Cause::Served, text, kernels);
    let beside = World::new(times(57, 0), times(57, 0)).with(2, |serve| serve.groups[0].priority = -128);
    let text = "shares the device with serve (high) at the same time: equal priority";
    beside.is(1, Cause::Beside, text, "give them different classes, or `xsched policy set pup`: turns");
}

#[test]
fn times_are_those_within_the_window() {
    let span = |doing, from_us, to_us, why, holders: &[u64]| Span {
        doing,
        from_us,
        to_us,
        why,
        policy: 0,
        level: 2,
        preempted: false,
        threads: 0,
        holders: holders.to_vec(),
    };
    let spans = [
        span(Doing::Runs, 0, 20, Why::Policy, &[]),
        span(Doing::Leaves, 20, 25, Why::Policy, &[]),
        span(Doing::Waits, 25, 60, Why::Policy, &[7]),
        span(Doing::Stalled, 60, 65, Why::Policy, &[]),
        span(Doing::Waits, 65, 70, Why::Guard, &[8]),
        span(Doing::Suspended, 70, 200, Why::Suspended, &[]),
    ];
    let times = Times::of(spans.iter(), vec![9, 5, 1], 10, 110);
    let expected = Times {
        window_us: 100,
        ran_us: 15,
        waited_us: 40,
        stalled_us: 5,
        holder: Some(7),
        why: Some(Why::Policy),
        left_us: Some((5, 9)),
        leaving_us: 15,
    };
    assert_eq!(times, expected);
    assert_eq!(Times::of([].iter(), Vec::new(), 0, 0).percent(0), 0.0);
}
