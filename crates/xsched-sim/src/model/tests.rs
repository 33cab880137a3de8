use super::*;

const US: u64 = 1_000;

/// Records completions as (time in µs, command name); conditions hold once their name is in `open`.
#[derive(Default)]
struct Log {
    done: Vec<(u64, &'static str)>,
    called: Vec<(u32, u64)>,
    open: Vec<&'static str>,
}

impl Board<&'static str> for Log {
    fn complete(&mut self, at: u64, _: ContextId, _: u32, _: u64, name: &'static str) {
        assert_eq!(at % US, 0, "{name} at {at} ns");
        self.done.push((at / US, name));
    }
    fn holds(&mut self, name: &&'static str) -> bool {
        self.open.contains(name)
    }
    fn call(&mut self, _: ContextId, stream: u32, count: u64) {
        self.called.push((stream, count));
    }
}

struct Bench {
    model: Model<&'static str>,
    log: Log,
}

impl Bench {
    fn new() -> Self {
        Self { model: Model::new(Timing::default()), log: Log::default() }
    }
    fn context(&mut self) -> ContextId {
        self.model.add_context()
    }
    fn at(&mut self, us: u64) -> &mut Self {
        self.model.run_until(us * US, &mut self.log);
        self
    }
    fn put(&mut self, id: ContextId, stream: u32, work: Work, name: &'static str) -> &mut Self {
        self.model.submit(id, stream, work, name, &mut self.log);
        self
    }
    fn kernel(&mut self, id: ContextId, stream: u32, us: u64, name: &'static str) -> &mut Self {
        self.put(id, stream, Work::Run(us * US), name)
    }
    fn runnable(&mut self, id: ContextId, on: bool) -> &mut Self {
        self.model.set_runnable(id, on, &mut self.log);
        self
    }
    fn done(&mut self, us: u64) -> Vec<(u64, &'static str)> {
        self.at(us);
        std::mem::take(&mut self.log.done)
    }
}

#[test]
fn alone_a_context_runs_without_a_gap() {
    let mut b = Bench::new();
    let a = b.context();
    b.at(10).kernel(a, 0, 3000, "a1").kernel(a, 0, 3000, "a2").put(a, 0, Work::Instant, "mark");
    assert_eq!(b.model.next_event(), Some(3010 * US));
    assert_eq!(b.done(100_000), [(3010, "a1"), (6010, "a2"), (6010, "mark")]);
    assert_eq!((b.model.switches(), b.model.used_ns(a)), (0, 6000 * US));
    assert_eq!(b.model.next_event(), None);
}

#[test]
fn a_late_driver_changes_nothing() {
    let play = |steps: &[u64]| {
        let mut b = Bench::new();
        let (a, c) = (b.context(), b.context());
        b.kernel(a, 0, 7000, "a").kernel(c, 0, 5000, "c").kernel(c, 1, 100, "d");
        for &us in steps {
            b.at(us);
        }
        b.log.done
    };
    assert_eq!(play(&[1_000_000]), play(&(0..2000).map(|i| i * 10).collect::<Vec<_>>()));
}

#[test]
fn two_contexts_take_turns_in_slices_with_a_switch_between() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.kernel(a, 0, 5000, "a").kernel(c, 0, 3000, "c");
    // a 0-2000, switch, c 2050-4050, switch, a 4100-6100, switch, c 6150-7150 (ends early), switch, a 7200-8200.
    assert_eq!(b.done(100_000), [(7150, "c"), (8200, "a")]);
    assert_eq!(b.model.switches(), 4);
    assert_eq!((b.model.used_ns(a), b.model.used_ns(c)), (5000 * US, 3000 * US));
}

#[test]
fn three_contexts_go_round_in_order() {
    let mut b = Bench::new();
    let (a, c, d) = (b.context(), b.context(), b.context());
    b.kernel(a, 0, 100, "a").kernel(d, 0, 100, "d").kernel(c, 0, 100, "c").kernel(a, 0, 100, "a2");
    // a keeps its slice for a2; then the others get theirs in the order of their ids.
    assert_eq!(b.done(10_000), [(100, "a"), (200, "a2"), (350, "c"), (500, "d")]);
}

#[test]
fn a_slice_is_cut_within_a_run_of_short_kernels_too() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    for _ in 0..3 {
        b.kernel(a, 0, 900, "a");
    }
    b.kernel(c, 0, 10, "c");
    // The third kernel runs 1800-2000, and the remaining 700 from 2110 on.
    assert_eq!(b.done(10_000), [(900, "a"), (1800, "a"), (2060, "c"), (2810, "a")]);
}

#[test]
fn a_newcomer_waits_for_the_end_of_the_present_slice() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.kernel(a, 0, 50_000, "a").at(5000).kernel(c, 0, 10, "c");
    assert_eq!(b.done(6100), [(6060, "c")]);
    // Also if slices ended inside short kernels: those follow each other without a gap.
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    for _ in 0..20 {
        b.kernel(a, 0, 900, "a");
    }
    b.at(5000).kernel(c, 0, 10, "c");
    assert!(b.done(7000).contains(&(6060, "c")));
}

#[test]
fn a_context_with_nothing_to_run_gives_the_device_up_at_once() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.kernel(a, 0, 100, "a").put(a, 0, Work::Poll, "gate").kernel(a, 0, 100, "a2").kernel(c, 0, 100, "c");
    assert_eq!(b.done(10_000), [(100, "a"), (250, "c")]);
    assert!(b.model.polls());
    assert_eq!(b.model.next_event(), None);
    b.log.open.push("gate");
    b.model.poll(&mut b.log);
    // The device still holds c's state.
    assert_eq!(b.done(20_000), [(10_000, "gate"), (10_150, "a2")]);
    assert!(!b.model.polls());
}

#[test]
fn the_last_one_on_an_idle_device_pays_no_switch() {
    let mut b = Bench::new();
    let a = b.context();
    b.kernel(a, 0, 10, "a").at(500).kernel(a, 0, 10, "a2");
    assert_eq!(b.done(1000), [(10, "a"), (510, "a2")]);
}

#[test]
fn a_time_slice_of_its_own_decides_the_share() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.model.set_timeslice(c, 500 * US);
    b.kernel(a, 0, 100_000, "a").kernel(c, 0, 100_000, "c").at(26_000);
    // Ten rounds of 2000 + 50 + 500 + 50.
    assert_eq!((b.model.used_ns(a), b.model.used_ns(c)), (20_000 * US, 5_000 * US));
    b.model.set_timeslice(c, 2000 * US);
    b.at(26_000 + 41_000);
    assert_eq!((b.model.used_ns(a), b.model.used_ns(c)), (40_000 * US, 25_000 * US));
}

#[test]
fn an_evicted_kernel_goes_on_where_it_was() {
    let mut b = Bench::new();
    let a = b.context();
    b.kernel(a, 0, 1000, "a").put(a, 1, Work::Poll, "gate");
    b.at(300).runnable(a, false).runnable(a, false);
    assert!(!b.model.polls(), "the streams of an evicted context stand still");
    assert_eq!(b.model.used_ns(a), 300 * US);
    assert_eq!(b.done(5000), []);
    b.runnable(a, true);
    assert_eq!(b.done(10_000), [(5700, "a")]);
    // Restored before the switch is over: continues when that is.
    b.kernel(a, 0, 1000, "a2").at(10_100).runnable(a, false).at(10_110).runnable(a, true);
    assert_eq!(b.done(20_000), [(11_050, "a2")]);
}

#[test]
fn eviction_lets_the_next_one_in_within_one_switch() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.kernel(a, 0, 1000, "a").kernel(c, 0, 1000, "c").at(300).runnable(a, false);
    assert_eq!(b.done(5000), [(1350, "c")]);
    b.runnable(a, true);
    assert_eq!(b.done(10_000), [(5750, "a")]);
}

#[test]
fn nothing_of_an_evicted_context_completes() {
    let mut b = Bench::new();
    let a = b.context();
    b.runnable(a, false).put(a, 0, Work::Instant, "mark").kernel(a, 0, 10, "a").put(a, 1, Work::Call, "call");
    assert_eq!(b.done(100), []);
    b.runnable(a, true);
    assert_eq!(b.done(200), [(100, "mark"), (110, "a")]);
    assert_eq!(b.log.called, [(1, 1)]);
}

#[test]
fn a_stream_waits_for_another() {
    let mut b = Bench::new();
    let a = b.context();
    b.put(a, 1, Work::After { stream: 0, count: 2 }, "wait").kernel(a, 1, 10, "late");
    b.put(a, 2, Work::After { stream: 1, count: 2 }, "wait2").put(a, 2, Work::Instant, "last");
    b.kernel(a, 0, 100, "k1").put(a, 0, Work::Instant, "event");
    let expected = [(100, "k1"), (100, "event"), (100, "wait"), (110, "late"), (110, "wait2"), (110, "last")];
    assert_eq!(b.done(1000), expected);
    b.put(a, 3, Work::After { stream: 0, count: 1 }, "past");
    assert_eq!(b.done(1000), [(1000, "past")]);
}

#[test]
fn kernels_of_two_streams_run_in_the_order_in_which_they_became_first() {
    let mut b = Bench::new();
    let a = b.context();
    b.kernel(a, 5, 10, "x1").kernel(a, 5, 10, "x2").kernel(a, 1, 10, "y1").kernel(a, 1, 10, "y2");
    assert_eq!(b.done(100), [(10, "x1"), (20, "y1"), (30, "x2"), (40, "y2")]);
}

#[test]
fn a_call_blocks_its_stream_until_it_returns() {
    let mut b = Bench::new();
    let a = b.context();
    b.kernel(a, 0, 10, "k").put(a, 0, Work::Call, "call").kernel(a, 0, 10, "k2");
    b.model.returned(a, 0, &mut b.log);
    assert_eq!(b.done(50), [(10, "k")]);
    assert_eq!(b.log.called, [(0, 2)]);
    b.model.returned(a, 0, &mut b.log);
    assert_eq!(b.done(100), [(50, "call"), (60, "k2")]);
}

#[test]
fn the_death_of_a_context_frees_the_device() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.kernel(a, 0, 50_000, "a").kernel(c, 0, 100, "c").at(300);
    b.model.remove_context(a);
    assert_eq!(b.done(60_000), [(450, "c")]);
    // With the device being switched to it, and with no other context.
    let d = b.context();
    b.kernel(d, 0, 100, "d").at(60_010);
    b.model.remove_context(d);
    assert_eq!(b.done(70_000), []);
    assert_eq!(b.model.next_event(), None);
    b.kernel(c, 0, 100, "c2").put(d, 0, Work::Instant, "to nobody");
    assert_eq!(b.done(80_000), [(70_150, "c2")]);
}

#[test]
fn two_equal_contexts_get_half_each() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    for _ in 0..1000 {
        b.kernel(a, 0, 200, "a").kernel(c, 0, 200, "c");
    }
    b.at(205_000);
    // 100 slices of 2050 µs.
    assert_eq!((b.model.used_ns(a), b.model.used_ns(c)), (100_000 * US, 100_000 * US));
    assert_eq!(b.model.pending(a, 0), 500);
}

#[test]
fn kernels_without_duration_complete_in_order() {
    let mut b = Bench::new();
    let (a, c) = (b.context(), b.context());
    b.kernel(a, 0, 0, "a1").kernel(a, 0, 0, "a2").kernel(c, 0, 0, "c");
    assert_eq!(b.done(100), [(0, "a1"), (0, "a2"), (50, "c")]);
}

/// Two members of one context, with these widths.
fn members(b: &mut Bench, widths: [u32; 2]) -> (ContextId, [u32; 2]) {
    let pool = b.context();
    (pool, widths.map(|width| stream_of(b.model.add_member(pool, width).unwrap(), 0)))
}

#[test]
fn kernels_of_members_with_room_run_side_by_side() {
    let mut b = Bench::new();
    let (pool, [x, y]) = members(&mut b, [WHOLE / 2, WHOLE / 2]);
    b.kernel(pool, x, 1000, "x1").kernel(pool, x, 1000, "x2").at(400).kernel(pool, y, 1000, "y");
    // Each runs as if it were alone.
    assert_eq!(b.done(10_000), [(1000, "x1"), (1400, "y"), (2000, "x2")]);
    assert_eq!((b.model.used_ns(pool), b.model.switches()), (2000 * US, 0));
    // Kernels that end together complete in the order of their arrival.
    b.kernel(pool, y, 100, "y").kernel(pool, x, 100, "x");
    assert_eq!(b.done(20_000), [(10_100, "y"), (10_100, "x")]);
}

#[test]
fn kernels_of_members_without_room_run_in_the_order_in_which_they_came() {
    let mut b = Bench::new();
    let (pool, [x, y]) = members(&mut b, [WHOLE, WHOLE]);
    b.kernel(pool, x, 100, "x1").kernel(pool, x, 100, "x2").kernel(pool, y, 100, "y1").kernel(pool, y, 100, "y2");
    assert_eq!(b.done(10_000), [(100, "x1"), (200, "y1"), (300, "x2"), (400, "y2")]);
}

#[test]
fn a_wide_kernel_is_not_overtaken_by_narrow_ones() {
    let mut b = Bench::new();
    let (pool, [x, y]) = members(&mut b, [WHOLE / 2, WHOLE / 2]);
    let wide = stream_of(b.model.add_member(pool, WHOLE).unwrap(), 0);
    b.kernel(pool, x, 1000, "x1").at(100).kernel(pool, wide, 100, "wide").kernel(pool, y, 100, "y");
    b.kernel(pool, x, 100, "x2");
    assert_eq!(b.done(10_000), [(1000, "x1"), (1100, "wide"), (1200, "y"), (1200, "x2")]);
}

#[test]
fn a_member_runs_one_kernel_at_a_time_and_its_next_does_not_hold_others_up() {
    let mut b = Bench::new();
    let (pool, [x, y]) = members(&mut b, [WHOLE / 2, WHOLE / 2]);
    b.kernel(pool, x, 100, "x1").kernel(pool, x + 1, 100, "x2").kernel(pool, y, 100, "y");
    assert_eq!(b.done(10_000), [(100, "x1"), (100, "y"), (200, "x2")]);
}

#[test]
fn members_are_one_context_in_its_turns_and_slices() {
    let mut b = Bench::new();
    let (pool, [x, y]) = members(&mut b, [WHOLE / 2, WHOLE / 2]);
    let a = b.context();
    b.model.set_timeslice(pool, 500 * US);
    b.kernel(pool, x, 900, "x").kernel(pool, y, 600, "y").kernel(a, 0, 3000, "a");
    // Both 0-500, a 550-2550, both 2600-2700, x until 3000, a 3050-4050.
    assert_eq!(b.done(10_000), [(2700, "y"), (3000, "x"), (4050, "a")]);
    // A kernel that joins in the middle of a slice does not renew it: x and y 10050-10550, a 10600-12600, then the
    // rest.
    b.kernel(pool, x, 800, "x").kernel(a, 0, 2000, "a").at(10_250).kernel(pool, y, 400, "y");
    assert_eq!(b.done(20_000), [(12_600, "a"), (12_750, "y"), (12_950, "x")]);
}

#[test]
fn the_end_of_a_member_leaves_the_others_running() {
    let mut b = Bench::new();
    let (pool, [x, y]) = members(&mut b, [WHOLE, WHOLE]);
    b.kernel(pool, x, 5000, "x1").kernel(pool, x, 5000, "x2").kernel(pool, y, 100, "y").at(300);
    b.model.remove_member(pool, member_of(x));
    assert_eq!(b.done(10_000), [(400, "y")]);
    // Beside a member that goes on, and as the last member.
    let x = stream_of(b.model.add_member(pool, WHOLE / 2).unwrap(), 0);
    let z = stream_of(b.model.add_member(pool, WHOLE / 2).unwrap(), 0);
    assert_eq!(member_of(x), 1, "its number is free again");
    b.kernel(pool, x, 1000, "x").kernel(pool, z, 1000, "z").at(10_500);
    b.model.remove_member(pool, member_of(x));
    assert_eq!(b.done(20_000), [(11_000, "z")]);
    b.kernel(pool, z, 1000, "z").at(20_500);
    b.model.remove_member(pool, member_of(z));
    assert_eq!((b.done(30_000), b.model.next_event()), (vec![], None));
}

#[test]
fn a_late_driver_changes_nothing_for_members() {
    let play = |steps: &[u64]| {
        let mut b = Bench::new();
        let (pool, [x, y]) = members(&mut b, [WHOLE / 2, WHOLE / 3]);
        let a = b.context();
        for _ in 0..3 {
            b.kernel(pool, x, 1700, "x").kernel(pool, y, 1100, "y").kernel(a, 0, 900, "a");
        }
        for &us in steps {
            b.at(us);
        }
        b.log.done
    };
    assert_eq!(play(&[1_000_000]), play(&(0..2000).map(|i| i * 10).collect::<Vec<_>>()));
}

/// A model whose members share its throughput, with two members: one of normal priority, one below.
fn sharing(widths: [u32; 2]) -> (Bench, ContextId, [u32; 2]) {
    let model = Model::new(Timing { shares: true, ..Timing::default() });
    let mut b = Bench { model, log: Log::default() };
    let pool = b.context();
    let streams = [(widths[0], false), (widths[1], true)]
        .map(|(width, below)| stream_of(b.model.add_member_with(pool, width, below).unwrap(), 0));
    (b, pool, streams)
}

#[test]
fn members_that_share_throughput_slow_each_other_down_where_they_are_too_wide() {
    let (mut b, pool, [x, y]) = sharing([WHOLE, WHOLE]);
    // Both run for 300 us: x is done with its 200, y with 100 of its 300.
    b.kernel(pool, x, 200, "x").kernel(pool, y, 300, "y");
    assert_eq!(b.done(10_000), [(300, "x"), (500, "y")]);
}

#[test]
fn they_do_not_where_there_is_room() {
    let (mut b, pool, [x, y]) = sharing([WHOLE / 2, WHOLE / 2]);
    b.kernel(pool, x, 200, "x").kernel(pool, y, 300, "y");
    assert_eq!(b.done(10_000), [(200, "x"), (300, "y")]);
}

#[test]
fn nothing_waits_for_room_and_a_newcomer_slows_down_what_runs() {
    let (mut b, pool, [x, y]) = sharing([WHOLE, WHOLE]);
    b.kernel(pool, y, 300, "y").at(150).kernel(pool, x, 100, "x");
    // y has 150 left; beside x, which takes 150, it gets 50 of them done.
    assert_eq!(b.done(10_000), [(300, "x"), (400, "y")]);
}
