//! Each rule of the models in virtual time, and what goes wrong when it is switched off: `docs/internals/rules.md` lists them.
//!
//! The world is one device, one queue and one program that launches flat out. Everything is computed, nothing waits.

use std::collections::{BTreeMap, VecDeque};

use xsched_flow::activity::{Activity, Looks, Step, View, next_grace_ns};
use xsched_flow::admission::{self, AtGate, Budget, InFlight, Pause, Place, Placed};
use xsched_flow::estimate::{Cell, Fence, Lesson, Pace, Seen, learn, learn_pace};
use xsched_flow::timeline::{Evidence, Presumed, presumes};
use xsched_flow::tuning::*;
use xsched_flow::watchdog::{Bypass, bypasses, is_silent, override_commands, patience_ns, releases};
use xsched_proto::segment::{gate, state};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    None,
    Budget,
    Lead,
    Consumed,
    Awake,
    TimeFences,
    Gates,
    Outliers,
    Pace,
}

/// What the device was given.
struct Command {
    end_ns: u64,
    fence: Option<Fence>,
}

/// One device, one queue, one program with kernels of one kind.
struct World {
    off: Rule,
    budget_us: u32,
    has_gates: bool,
    host_ns: u64,
    now: u64,
    free_at: u64,
    busy_ns: u64,
    device: VecDeque<Command>,
    seq: u64,
    issued_ns: u64,
    fenced: (u64, u64),
    gated_ns: u64,
    /// When the last command before the last gate ends.
    ungated_end: u64,
    done: (u64, u64),
    seen: (u64, u64),
    looked_at: u64,
    pace: Pace,
    cells: BTreeMap<u64, Cell>,
    launches: u64,
    /// The most that the device was ever given ahead, in ns.
    most_ahead_ns: u64,
}

impl World {
    fn new(off: Rule) -> World {
        World {
            off,
            budget_us: 500,
            has_gates: false,
            host_ns: 3 * US,
            now: MS,
            free_at: 0,
            busy_ns: 0,
            device: VecDeque::new(),
            seq: 0,
            issued_ns: 0,
            fenced: (0, 0),
            gated_ns: 0,
            ungated_end: 0,
            done: (0, 0),
            seen: (0, 0),
            looked_at: 0,
            pace: Pace::default(),
            cells: BTreeMap::new(),
            launches: 0,
            most_ahead_ns: 0,
        }
    }

    fn knows(mut self, key: u64, ns: u64) -> World {
        self.cells.insert(key, Cell::default().sample(ns, true));
        self
    }

    fn expected(&self, key: u64) -> Option<u64> {
        self.cells.get(&key)?.expected_ns()
    }

    fn apply(&mut self, lesson: Lesson) {
        let (Lesson::Sample { key, .. } | Lesson::Lower { key, .. }) = lesson;
        let cell = self.cells.entry(key).or_default();
        *cell = match lesson {
            // Without the rule each sample counts, as in a plain average.
            Lesson::Sample { ns, .. } if self.off == Rule::Outliers && ns > 4 * cell.expected_ns().unwrap_or(ns) => {
                let average = cell.expected_ns().map_or(ns, |old| (7 * old + ns) / 8);
                Cell::default().sample(average, true)
            }
            Lesson::Sample { ns, exclusive, .. } => cell.sample(ns, exclusive),
            Lesson::Lower { ns, .. } => cell.lower(ns),
        };
    }

    /// A look at the completions.
    fn look(&mut self) {
        let late_ns = self.now - self.looked_at;
        self.looked_at = self.now;
        let mut reached = Vec::new();
        while self.device.front().is_some_and(|command| command.end_ns <= self.now) {
            reached.extend(self.device.pop_front().and_then(|command| command.fence));
        }
        let Some(last) = reached.last().copied() else { return };
        let next = self.device.iter().find_map(|command| command.fence);
        let seen = Seen {
            now_ns: self.now,
            late_ns,
            before_ns: self.seen.0,
            before_late_ns: self.seen.1,
            epoch: 1,
            done: self.done.0,
            done_ns: self.done.1,
            exclusive: true,
            budgeted: true,
        };
        self.seen = (self.now, late_ns);
        let known = |key| self.expected(key);
        let mut lessons = Vec::new();
        learn(&seen, &reached, known, |lesson| lessons.push(lesson));
        if self.off != Rule::Pace {
            self.pace =
                learn_pace(self.pace, &seen, &reached, next.as_ref(), true, known, |lesson| lessons.push(lesson));
        }
        lessons.into_iter().for_each(|lesson| self.apply(lesson));
        self.done = (last.seq, last.issued_ns);
    }

    fn in_flight(&self) -> InFlight {
        InFlight { commands: self.fenced.0 - self.done.0, ns: self.fenced.1 - self.done.1 }
    }

    /// When the next fence should be reached, and what the device has done towards it.
    fn next_fence(&self) -> Option<(u64, u64)> {
        let fence = self.device.iter().find_map(|command| command.fence)?;
        let (began, took) = (self.seen.0.max(fence.at_ns), fence.issued_ns - self.done.1);
        Some((began + took, (self.now - began).min(took)))
    }

    fn fits(&self, estimate_ns: u64) -> bool {
        let budget = Budget::new(self.budget_us, 0, self.has_gates && self.off != Rule::Gates);
        let consumed = || match self.off {
            Rule::Consumed => 0,
            _ => self.next_fence().map_or(0, |(_, consumed)| consumed),
        };
        let in_flight = self.in_flight();
        if self.off == Rule::Lead {
            return in_flight.commands == 0 || in_flight.ns - consumed() + estimate_ns <= budget.ns;
        }
        self.off == Rule::Budget || admission::fits(&budget, &in_flight, estimate_ns, consumed)
    }

    /// Launches a kernel that takes `ns`; `away_ns` longer if the device turns to another context meanwhile.
    fn launch(&mut self, key: u64, ns: u64, away_ns: u64) {
        let estimate = self.expected(key);
        let estimate_ns = estimate.unwrap_or(UNKNOWN_NS);
        self.look();
        while !self.fits(estimate_ns) {
            let due_ns = self.next_fence().map_or(i64::MIN / 2, |(due, _)| due.wrapping_sub(self.now) as i64);
            self.now += match admission::pause(due_ns) {
                // A thread that sleeps wakes up late: what it takes on a machine whose processors rest.
                Pause::Awake if self.off == Rule::Awake => 50 * US + 60 * US,
                Pause::Awake => US,
                Pause::Sleep(sleep) => sleep + if self.off == Rule::Awake { 60 * US } else { AWAKE_NS / 2 },
            };
            self.look();
        }
        self.now += self.host_ns;
        self.seq += 1;
        let ask = Place {
            seq: self.seq,
            estimate_ns: estimate,
            issued_ns: self.issued_ns,
            fenced: self.fenced.0,
            fenced_ns: self.fenced.1,
            gated_ns: self.gated_ns,
            before: self.launches,
            budget_us: self.budget_us,
            has_gates: self.has_gates,
            in_order: true,
            ..Place::default()
        };
        let mut placed = admission::place(&ask, || 0, || true);
        match self.off {
            Rule::TimeFences => placed.fence = self.seq - self.fenced.0 >= FENCE_COMMANDS,
            Rule::Gates => placed.device_gate = false,
            _ => {}
        }
        self.issued_ns += estimate_ns;
        if placed.device_gate {
            self.gated_ns = ask.issued_ns;
            self.ungated_end = self.free_at;
        }
        let begin = self.now.max(self.free_at);
        self.free_at = begin + ns + away_ns;
        self.busy_ns += ns;
        let fence = placed.fence.then(|| Fence {
            seq: self.seq,
            issued_ns: self.issued_ns,
            estimate_ns,
            commands: self.seq - self.fenced.0,
            key,
            at_ns: self.now,
            epoch: Some(1),
        });
        if placed.fence {
            self.fenced = (self.seq, self.issued_ns);
        }
        self.device.push_back(Command { end_ns: self.free_at, fence });
        self.launches += 1;
        self.most_ahead_ns = self.most_ahead_ns.max(self.free_at - self.now);
    }

    /// Launches for so long. Returns how much of the time the device was at work.
    fn run(&mut self, for_ns: u64, ns: u64) -> f64 {
        let (began, busy) = (self.now, self.busy_ns);
        while self.now < began + for_ns {
            self.launch(7, ns, 0);
        }
        (self.busy_ns - busy) as f64 / (self.now.max(self.free_at) - began) as f64
    }

    /// How long the device stays occupied when the gate closes now, in ns. Gates on the device hold what is behind them: all but
    /// what runs, if that is behind a gate itself.
    fn drain_ns(&self) -> u64 {
        self.free_at.saturating_sub(self.now)
    }

    /// The same where gates on the device hold what is behind them: each command behind a gate of its own is held once the one
    /// that runs is over.
    fn drain_gated_ns(&self, ns: u64) -> u64 {
        if self.gated_ns == 0 { self.drain_ns() } else { self.drain_ns().min(ns + 500 * US) }
    }
}

/// With and without a rule: the first holds, the second does not.
fn earns(rule: Rule, shows: impl Fn(Rule) -> bool) {
    assert!(shows(Rule::None), "with {rule:?}");
    assert!(!shows(rule), "the scenario does not need {rule:?}");
}

#[test]
fn budget_a_gate_that_closes_finds_little_in_flight() {
    earns(Rule::Budget, |off| {
        let mut world = World::new(off).knows(7, 20 * US);
        world.run(50 * MS, 20 * US);
        world.most_ahead_ns <= MS
    });
}

#[test]
fn lead_the_device_finds_its_next_command_when_it_ends_one() {
    earns(Rule::Lead, |off| {
        // A host that takes 50 µs for a launch, as Python may.
        let mut world = World { host_ns: 50 * US, ..World::new(off).knows(7, 600 * US) };
        world.run(100 * MS, 600 * US) > 0.95
    });
}

#[test]
fn consumed_what_the_running_command_has_used_up_is_not_in_flight() {
    earns(Rule::Consumed, |off| {
        let mut world = World { host_ns: 50 * US, ..World::new(off).knows(7, 600 * US) };
        world.run(100 * MS, 600 * US) > 0.95
    });
}

#[test]
fn awake_a_thread_about_to_launch_does_not_sleep() {
    earns(Rule::Awake, |off| {
        let mut world = World::new(off).knows(7, 450 * US);
        world.run(100 * MS, 450 * US) > 0.97
    });
}

#[test]
fn fences_by_time_a_budget_of_long_commands_is_known_to_be_used_up() {
    earns(Rule::TimeFences, |off| {
        let mut world = World::new(off).knows(7, 300 * US);
        world.run(100 * MS, 300 * US);
        world.most_ahead_ns <= MS
    });
}

#[test]
fn gates_let_more_be_in_flight_than_a_slow_host_could_keep_up_with() {
    earns(Rule::Gates, |off| {
        let mut world = World { has_gates: true, ..World::new(off).knows(7, 100 * US) };
        world.run(20 * MS, 100 * US);
        // The host is away for 1.5 ms now and then.
        let (began, busy) = (world.now, world.busy_ns);
        for _ in 0..50 {
            world.run(3 * MS, 100 * US);
            world.now += 3 * MS / 2;
        }
        (world.busy_ns - busy) as f64 / (world.now - began) as f64 > 0.9 && world.drain_gated_ns(100 * US) <= MS
    });
}

#[test]
fn outliers_time_away_from_the_device_does_not_shrink_what_is_in_flight() {
    earns(Rule::Outliers, |off| {
        let mut world = World { host_ns: 20 * US, ..World::new(off).knows(7, 100 * US) };
        (0..2_000).all(|number| {
            // Each 20th kernel the device turns to other contexts for 4 ms.
            world.launch(7, 100 * US, if number % 20 == 0 { 4 * MS } else { 0 });
            world.expected(7).unwrap() < 200 * US
        })
    });
}

#[test]
fn pace_kernels_taken_for_too_short_are_found_out() {
    earns(Rule::Pace, |off| {
        // 40 µs are known of a kernel that takes 160: by one sample beside a clock that ran faster.
        let mut world = World::new(off).knows(7, 40 * US);
        world.run(300 * MS, 160 * US);
        world.expected(7).unwrap() > 120 * US && world.drain_ns() <= MS
    });
}

// ---- Rules of one function ------------------------------------------------------------------------------------------------

/// A kernel on one stream spins until another one has run, which the same thread launches `commands` later. Returns after how
/// long, in ns, it gets there; `None` = never.
fn until_provided(commands: u64, overrides: bool, doubles: bool) -> Option<u64> {
    let (mut now, mut launched, mut row, mut credit) = (0, 10, 0, 0);
    while launched < commands {
        if !overrides {
            return None;
        }
        if credit > 0 {
            credit -= 1;
        } else {
            now += patience_ns(500 * US, 500 * US);
            credit = if doubles { override_commands(row) } else { 0 };
            row += 1;
        }
        launched += 1;
    }
    Some(now)
}

#[test]
fn override_a_program_that_waits_for_itself_gets_on() {
    assert!(until_provided(11, true, true).is_some_and(|ns| ns < 10 * MS));
    assert_eq!(until_provided(11, false, true), None);
}

#[test]
fn overrides_in_a_row_thousands_of_commands_do_not_take_thousands_of_waits() {
    assert!(until_provided(5_000, true, true).unwrap() < 200 * MS);
    assert!(until_provided(5_000, true, false).unwrap() > 20_000 * MS);
}

#[test]
fn patience_follows_what_is_in_flight_so_that_long_commands_are_not_taken_for_a_deadlock() {
    assert!(patience_ns(500 * US, 100 * MS) >= 100 * MS);
    assert!(patience_ns(500 * US, 3_600_000 * MS) <= OVERRIDE_LONG_NS, "but it ends");
}

/// A program with gaps of `gap_ns` between its requests. Returns how often of 1,000 it is announced, with grace times as they
/// are or of `fixed` ns.
fn announcements(gap_ns: u64, fixed: Option<u64>) -> u32 {
    let mut grace = FIRST_GRACE_NS;
    let mut announced = 0;
    for _ in 0..1_000 {
        let grace_ns = fixed.unwrap_or(grace);
        let view = View { complete: true, grace_since_ns: 1, grace_ns, now_ns: 1 + gap_ns, ..View::default() };
        announced += u32::from(Activity::of(&view).grace_left_ns() == Some(0));
        grace = next_grace_ns(grace, gap_ns);
    }
    announced
}

#[test]
fn grace_a_decode_loop_does_not_flap_and_a_slow_server_does_not_keep_the_device() {
    let decode = 300 * US;
    assert!(announcements(decode, None) <= 1);
    assert_eq!(announcements(decode, Some(GRACE_NS.0)), 1_000, "with the shortest one it would each time");
    let slow = (0..1_000).fold(FIRST_GRACE_NS, |grace, _| next_grace_ns(grace, 20 * MS));
    assert!(slow < 2 * GRACE_NS.0, "a server of 50 requests per s gives the device back at once");
}

#[test]
fn drained_a_group_whose_thread_waits_at_the_gate_is_told_as_drained() {
    let step = |word, complete, waiters| {
        Activity::of(&View { word, complete, waiters, told: state::READY, ..View::default() }).step()
    };
    assert_eq!(step(gate::CONTENDED, true, 1), Step::TellDrained);
    assert_eq!(step(gate::CONTENDED, true, 0), Step::BeginGrace);
    assert_eq!(step(gate::CONTENDED | gate::GRANTED, true, 1), Step::BeginGrace);
    assert_eq!(step(gate::CONTENDED, false, 1), Step::Nothing);
}

#[test]
fn unfenced_commands_of_a_draining_group_do_not_keep_the_device() {
    let draining = |after| {
        let word = gate::CONTENDED;
        let told = state::READY;
        Activity::of(&View { word, told, waits_since_ns: MS, now_ns: MS + after, ..View::default() })
    };
    assert!(!draining(UNFENCED_NS - 1).is_late(), "they may still run");
    assert!(draining(UNFENCED_NS).is_late(), "without this the rival would wait for the next rare look, 100 ms");
    let ask = Presumed { fenced: false, held: false, in_order: true, counted_done: true, silent: false };
    assert!(presumes(&ask, Evidence::Overdue));
    assert!(!presumes(&Presumed { fenced: true, ..ask }, Evidence::Overdue), "a fence will tell");
    assert!(!presumes(&Presumed { held: true, ..ask }, Evidence::Overdue), "held commands cannot complete");
    assert!(!presumes(&Presumed { counted_done: false, ..ask }, Evidence::Overdue), "there may be much more");
}

#[test]
fn silence_a_stream_used_once_does_not_stay_busy_for_ever() {
    let ask = Presumed { fenced: false, held: false, in_order: true, counted_done: false, silent: true };
    assert!(presumes(&ask, Evidence::Silence));
    assert!(!presumes(&Presumed { silent: false, ..ask }, Evidence::Silence));
}

#[test]
fn stopped_time_does_not_count_towards_silence() {
    let mut looks = Looks::default();
    let mut rare = Vec::new();
    for ms in 0..1_000 {
        // The group is interrupted nine tenths of the time.
        if looks.look(ms * MS, ms % 10 != 0) {
            looks.looked();
            rare.push(ms);
        }
    }
    assert!(rare.len() <= 1, "{rare:?}: with stopped time counted there would be nine");
}

#[test]
fn prequeue_commands_wait_on_the_device_up_to_what_the_driver_takes() {
    let ask = AtGate { word: gate::CONTENDED, can_prequeue: true, loads: false, has_gates: true, budgeted: true };
    assert!(admission::at_gate(&ask, || PREQUEUED_COMMANDS - 1));
    assert!(
        !admission::at_gate(&ask, || PREQUEUED_COMMANDS),
        "a full stream blocks in the driver, with its locks held"
    );
    for other in [
        AtGate { can_prequeue: false, ..ask },
        AtGate { loads: true, ..ask },
        AtGate { has_gates: false, ..ask },
        AtGate { budgeted: false, ..ask },
        AtGate { word: gate::CONTENDED | gate::DEVICE_GATES_BYPASSED, ..ask },
    ] {
        assert!(!admission::at_gate(&other, || 0), "{other:?}");
    }
}

/// What waits on the device for a stream that is held there keeps the device: 2 to 6 ms at each end of a rival's time slice
/// (measured on an H200). A rival that is never idle then never lets go.
fn held_for_ever(releases_held: bool) -> bool {
    let held_since = 0;
    (1..10_000u64).all(|ms| !(releases_held && releases(held_since, ms * MS)))
}

#[test]
fn release_what_is_held_for_long_goes_on() {
    assert!(!held_for_ever(true));
    assert!(held_for_ever(false));
}

#[test]
fn bypass_gates_stand_open_while_code_is_loaded_and_queues_wait_for_each_other() {
    let none = Bypass {
        word: gate::CONTENDED,
        gates_inside: false,
        fits_inside: true,
        released: false,
        loading: false,
        cross_stream: false,
    };
    assert!(!bypasses(&none));
    for one in [
        Bypass { loading: true, ..none },
        Bypass { cross_stream: true, ..none },
        Bypass { released: true, ..none },
        Bypass { gates_inside: true, fits_inside: false, ..none },
    ] {
        assert!(bypasses(&one), "{one:?}");
    }
    let open = Bypass { word: gate::CONTENDED | gate::GRANTED, released: true, ..none };
    assert!(!bypasses(&open), "the next grant ends a release");
}

#[test]
fn lease_a_silent_daemon_holds_nothing_and_one_that_need_not_beat_is_not_silent() {
    let second = 1_000 * MS;
    assert!(is_silent(second, second, second + LEASE_NS + 1));
    assert!(!is_silent(0, 100 * second, 100 * second + MS), "it beats only while a gate is closed");
}

#[test]
fn sampling_kernels_that_change_are_measured_anew_under_a_budget_that_never_fills() {
    let fenced = (1..10_000u64).filter(|seq| {
        let ask = Place {
            seq: *seq,
            fenced: seq - 1,
            estimate_ns: Some(US),
            budget_us: 500,
            in_order: true,
            ..Place::default()
        };
        let ask = Place { issued_ns: seq * US, fenced_ns: (seq - 1) * US, ..ask };
        admission::place(&ask, || 0, || true) == Placed { fence: true, device_gate: false }
    });
    let n = fenced.count();
    assert!((200..500).contains(&n), "{n} of 10,000: 1 in 64 and the one after it");
}
