//! Programs of one server: gates that yield, pages, the rule by comparison, and accounts.

use super::*;

/// A group, its priority and its page.
type Member = (GroupId, i32, Option<(u8, u32)>);

/// Groups of one server; urgent ones have pages, and tell there how they keep up.
fn in_company(world: &mut World, groups: &[Member]) {
    for &(id, priority, page) in groups {
        world.add(spec(id, priority, 5_000));
        world.words[&id].publishes.store(page.is_some().into(), SeqCst);
        world.keeper.set_company(id, Some(Company { server: 7, page }));
    }
    world.carry_out();
}

#[test]
fn a_gate_that_would_close_yields_to_those_that_tell_how_they_keep_up() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    in_company(&mut world, &[(LOW, -128, None), (HIGH, 128, Some((3, 9)))]);
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    assert_eq!(world.gate(LOW), Gate::YIELDS | Gate::CONTENDED);
    assert_eq!(world.words[&LOW].yields_to.load(SeqCst), 1 << 3);
    assert_eq!(world.words[&LOW].yields_epoch.load(SeqCst), 9);
    world.state(LOW, state::DRAINED);
    assert_eq!(world.gate(HIGH), Gate::GRANTED | Gate::CONTENDED | Gate::TELLS, "its times are not its own");
    // The urgent group publishes nothing any more, so the gate holds.
    world.words[&HIGH].publishes.store(0, SeqCst);
    world.carry_out();
    assert_eq!(world.gate(LOW), Gate::CONTENDED);
    assert!(world.gate(HIGH).is_exclusive());
    world.words[&HIGH].publishes.store(1, SeqCst);
    world.carry_out();
    assert!(world.gate(LOW).yields());
    world.state(HIGH, state::IDLE);
    assert_eq!(world.gate(LOW), Gate::GRANTED | Gate::CONTENDED | Gate::EXCLUSIVE);
}

#[test]
fn no_gate_yields_to_one_outside_or_while_an_operator_holds_it() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    let outside = GroupId(3);
    in_company(&mut world, &[(LOW, -128, None), (HIGH, 128, Some((0, 1)))]);
    world.add(spec(outside, 128, 5_000));
    for id in [LOW, HIGH, outside] {
        world.state(id, state::READY);
    }
    assert_eq!(world.gate(LOW), Gate::CONTENDED);
    world.state(outside, state::IDLE);
    assert!(world.gate(LOW).yields());
    world.keeper.event(world.now, Event::Hold(ProgramId(LOW.0)));
    world.carry_out();
    assert_eq!(world.gate(LOW), Gate::CONTENDED);
}

#[test]
fn one_that_yields_makes_room_for_all_of_more_priority() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    let (middle, top) = (GroupId(3), GroupId(4));
    in_company(&mut world, &[(LOW, -128, None), (middle, 128, Some((1, 2))), (top, 200, Some((0, 1)))]);
    for id in [LOW, middle, top] {
        world.state(id, state::READY);
    }
    let pages = |world: &World, id| (world.gate(id).yields(), world.words[&id].yields_to.load(SeqCst));
    assert_eq!((pages(&world, middle), pages(&world, LOW)), ((true, 0b01), (true, 0b11)));
    assert_eq!(world.words[&LOW].yields_epoch.load(SeqCst), 2, "the newest of both");
    world.state(top, state::IDLE);
    assert_eq!(pages(&world, LOW), (true, 0b10));
    // One between them that tells nothing goes first.
    let normal = GroupId(5);
    in_company(&mut world, &[(normal, 0, None)]);
    world.state(normal, state::READY);
    assert!(world.gate(normal).yields() && !world.gate(LOW).yields());
}

#[test]
fn a_group_that_others_are_kept_off_for_is_named_until_it_has_a_page() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    in_company(&mut world, &[(LOW, -128, None), (HIGH, 128, None)]);
    world.state(HIGH, state::READY);
    assert_eq!(world.keeper.pageless().count(), 0, "nobody waits");
    world.state(LOW, state::READY);
    assert_eq!(world.keeper.pageless().collect::<Vec<_>>(), [HIGH]);
    world.words[&HIGH].publishes.store(1, SeqCst);
    world.keeper.set_company(HIGH, Some(Company { server: 7, page: Some((0, 1)) }));
    world.carry_out();
    assert!(world.gate(LOW).yields() && world.keeper.pageless().count() == 0);
}

#[test]
fn a_group_that_nobody_makes_room_for_any_more_tells_nothing() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    in_company(&mut world, &[(LOW, -128, None), (HIGH, 128, Some((0, 1)))]);
    assert!(!world.gate(HIGH).tells(), "nobody has made room for it yet");
    world.state(LOW, state::READY);
    world.state(HIGH, state::READY);
    assert!(world.gate(HIGH).tells());
    world.state(HIGH, state::IDLE);
    world.sleep(9_000_000);
    world.state(LOW, state::IDLE);
    assert!(world.gate(HIGH).tells(), "it may begin its next burst with the command that matters");
    world.sleep(2_000_000);
    world.state(LOW, state::READY);
    assert!(!world.gate(HIGH).tells());
}

/// Bursts of the urgent group, each so long. Returns those beside which the gate of the other one yielded.
fn bursts(world: &mut World, n: u64, us: impl Fn(bool) -> Micros) -> u64 {
    let mut beside = 0;
    for _ in 0..n {
        world.state(HIGH, state::READY);
        let yields = world.gate(LOW).yields();
        beside += u64::from(yields);
        let us = us(yields);
        world.sleep(us);
        let words = &world.words[&HIGH];
        words.completed.fetch_add(10, SeqCst);
        words.burst_us.store(us, SeqCst);
        words.bursts.fetch_add(1, SeqCst);
        world.state(HIGH, state::IDLE);
        world.sleep(5_000);
    }
    beside
}

#[test]
fn gates_close_beside_a_program_that_gets_on_worse_while_they_yield() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    in_company(&mut world, &[(LOW, -128, None), (HIGH, 128, Some((0, 1)))]);
    world.state(LOW, state::READY);
    let beside = bursts(&mut world, 100, |_| 2_000);
    assert!((85..=97).contains(&beside), "all but probes: {beside}");
    assert_eq!(world.keeper.rule(world.now, HIGH), Some((InForce::Yields, 0)));
    // As many again, so that what was fine before counts for little.
    bursts(&mut world, 400, |yields| if yields { 4_000 } else { 2_000 });
    let Some((_, flips)) = world.keeper.rule(world.now, HIGH) else { panic!("it has a page") };
    assert!(flips > 0);
    let beside = bursts(&mut world, 200, |yields| if yields { 4_000 } else { 2_000 });
    assert!(beside < 100, "closed for most of the time: {beside}");
    let opened = world.keeper.opened(world.now, LOW).expect("it has company");
    assert!(opened.times > 100 && opened.us > 100_000, "{opened:?}");
}

#[test]
fn a_group_is_charged_for_what_it_does_while_its_gate_yields_and_gets_no_turn_by_the_guard() {
    let mut world = World::new("hpf", BUDGET_DEFAULT_US);
    in_company(&mut world, &[(LOW, -128, None), (HIGH, 128, Some((0, 1)))]);
    world.state(HIGH, state::READY);
    world.state(LOW, state::READY);
    let before = world.used_us(LOW);
    world.changes.clear();
    for _ in 0..300 {
        world.words[&LOW].completed.fetch_add(1, SeqCst);
        world.sleep(100_000);
        world.words[&HIGH].completed.fetch_add(1, SeqCst);
        world.keeper.event(world.now, Event::Progress(HIGH));
        world.carry_out();
    }
    assert_eq!(world.changes, [], "nobody has to wait");
    let used = world.used_us(LOW) - before;
    assert!((14e6..16e6).contains(&used), "half of 30 s: {used}");
    // Held for long: it is charged no more, and waits as any other.
    world.state(LOW, state::DRAINED);
    let before = world.used_us(LOW);
    for _ in 0..300 {
        world.sleep(100_000);
        world.keeper.event(world.now, Event::Progress(HIGH));
        world.carry_out();
    }
    assert!(world.changes.contains(&Change::Opened(LOW)), "the guard gives it a turn");
    assert!(world.used_us(LOW) - before < 1e6);
}

#[test]
fn whatever_happens_only_gates_yield_that_would_be_closed() {
    let kinds = [None, Some((0, 1)), Some((1, 2)), Some((31, 3)), None, None];
    for seed in 1..200u64 {
        let mut random = seed;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let groups: Vec<_> =
            (0..6).map(|n| (GroupId(n + 1), [-128, 0, 128][draw(3) as usize], kinds[draw(6) as usize])).collect();
        let (mut yielding, mut plain) = (World::new("hpf", BUDGET_DEFAULT_US), World::new("hpf", BUDGET_DEFAULT_US));
        in_company(&mut yielding, &groups);
        groups.iter().for_each(|(id, priority, _)| plain.add(spec(*id, *priority, 5_000)));
        for _ in 0..60 {
            let (id, ..) = groups[draw(6) as usize];
            let event = draw(8);
            let hints = draw(2);
            for world in [&mut yielding, &mut plain] {
                match event {
                    0 => world.words[&id].publishes.store(hints as u32, SeqCst),
                    1 => world.keeper.event(world.now, Event::Hold(ProgramId(id.0))),
                    2 => world.keeper.event(world.now, Event::Release(ProgramId(id.0))),
                    3 | 4 => world.state(id, state::IDLE),
                    _ => world.state(id, state::READY),
                }
                world.carry_out();
                world.sleep(draw_us(seed));
            }
            for (id, ..) in &groups {
                let (gate, rule) = (yielding.gate(*id), plain.gate(*id));
                assert_eq!(gate.is_granted(), rule.is_granted(), "seed {seed}");
                assert!(!(gate.yields() && rule.is_granted()), "seed {seed}");
                if gate.yields() {
                    let pages = yielding.words[id].yields_to.load(SeqCst);
                    assert_ne!(pages, 0);
                    let has = |(_, _, page): &&Member| page.is_some_and(|(page, _)| pages & 1 << page != 0);
                    let told = groups.iter().filter(has).filter(|(id, ..)| yielding.is_open(*id));
                    assert!(told.count() > 0, "seed {seed}: of those with a page, some have the device");
                }
            }
        }
    }
}

fn draw_us(seed: u64) -> Micros {
    seed % 700
}
