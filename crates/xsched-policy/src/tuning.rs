//! Every constant of policies and arbiter: name, unit, reason. A name ends in its unit; parts and counts have none.

use xsched_proto::hint::Slo;

use crate::Micros;

// ---- Policies ------------------------------------------------------------------------------------------------------------

/// Longest turn, in timeslices: a contender of a thousand times the weight of another must not keep it waiting for a thousand of
/// them.
pub(crate) const TURN_MAX: f64 = 4.0;
/// The weight of a party whose utilization is 0: it has what the others leave, and is not forgotten.
pub(crate) const PART_LEAST: f64 = 0.01;
/// Shortest turn, in µs: shorter ones would mostly be spent on switching.
pub(crate) const TURN_MIN_US: Micros = 500;
/// A turn is over with so much left of it, in µs: the rest is added to the next one.
pub(crate) const LEFT_US: f64 = 50.0;
/// How much longer than [`TURN_MAX`] a turn may be that makes up for a short one.
pub(crate) const TURN_SLACK: f64 = 1.25;
/// A contender that was idle for no longer than this, in µs, still has its claim: programs that synchronise after each step go idle
/// for a moment many times in a turn.
pub(crate) const SHORT_IDLE_US: Micros = 3_000;
/// A pause of a more urgent group that is shorter than this, in µs, may be within one request. What then follows would be held up,
/// each time, by a command that takes far longer.
pub(crate) const REST_US: Micros = 2_000;
/// Part of its time that a group is idle, at least, to go before its equals that never pause, in percent: the data loading of a
/// trainer takes a few.
pub(crate) const PAUSE_PERCENT: Micros = 20;
/// Length of the period of which that is looked at, in µs, with the one before: a burst may be as long and be one of a group that
/// pauses.
pub(crate) const PAUSE_PERIOD_US: Micros = 1_000_000;
/// A group that wants nothing for so long, in µs, has left: the others need not make way for it at any time. Its next burst goes
/// first all the same, and waits for what they have in flight.
pub(crate) const PAUSE_LONGEST_US: Micros = 10_000_000;
/// Device time beyond its part after which a group that pauses goes first no more, in µs: some requests of a busy service …
pub(crate) const LEAD_MOST_US: f64 = 50_000.0;
/// … until this part of it is left.
pub(crate) const LEAD_REST: f64 = 0.5;
/// Device time that a group saves up while it leaves the device to its equals, in µs: beside one other, a burst of half a second
/// goes first to its end.
pub(crate) const CREDIT_US: f64 = 200_000.0;
/// Leads are looked at this often at most, in µs, as they come near to their limits.
pub(crate) const LEAD_LOOK_US: Micros = 2_000;
/// How many of its turns a program saves up under `spup` while it waits for those of others: what it leaves for longer is lost.
pub(crate) const SLOTS_KEPT: f64 = 4.0;
/// With how many of its turns a program begins again under `spup` that had used up its credit alone. With half a turn, a program
/// with a quarter of an H200 did 18 % of what it does with all of it.
pub(crate) const SLOTS_ALONE: f64 = 2.0;
/// Ratio of the weights of neighbouring nice values, as Linux has it (`kernel/sched/core.c`, `sched_prio_to_weight`) …
pub(crate) const NICE_STEP: f64 = 1.25;
/// … and how many priorities one of its 40 steps is: 510 of them.
pub(crate) const PRIORITIES_PER_STEP: f64 = 12.75;
/// Time off the device that pays back a µs of use under `mlfq`: work that has the device a fifth of the time stays on top.
pub(crate) const SLEEP_PER_RUN: f64 = 4.0;
/// What an urgent program aims at under `slo` that names no target: five percent more than alone.
pub(crate) const SLO_DEFAULT: Slo = Slo::Slowdown(105);
/// What a burst within its P99 adds to the allowance under `slo`, as a part of the target: a miss takes back a fifth of it, and the
/// allowance is found within some hundred requests.
pub(crate) const SLO_GROWTH: f64 = 0.002;
/// The greatest allowance, in targets: beyond one, others may stay for the whole burst, and a miss must still be felt soon.
pub(crate) const SLO_ALLOWANCE_MOST: f64 = 1.2;
/// The device is what holds a program up if it does so for this part of its commands: a training that fills it waits for room before
/// most, an eager BERT of batch 1 before one in ten thousand (H100).
pub(crate) const LIMITED_PART: f64 = 0.05;
/// Time over which that part is taken, in µs.
pub(crate) const LIMITED_MEMORY_US: f64 = 300_000.0;
/// After a more urgent program of their server has left the device, completions of others that went on beside it are still told for so
/// long, in µs: clients look each 2 ms, and the daemon counts each 4 ms.
pub(crate) const SETTLES_US: u64 = 4_000;
/// The least allowance, in targets below nothing: after a miss closed gates do not yield for up to a hundred bursts.
pub(crate) const SLO_STRICT_MOST: f64 = 0.2;
/// The first bursts under a slowdown target have no allowance, to learn how long bursts take alone …
pub(crate) const SLO_PROBES_FIRST: u64 = 10;
/// … and one of so many later ones, as that changes.
pub(crate) const SLO_PROBE_EACH: u64 = 16;
/// Weight of a new burst in the mean of those without allowance.
pub(crate) const SLO_SMOOTHING: f64 = 0.1;
/// How much of a burst's distance to its aim goes into the allowance: some fifty bursts find it.
pub(crate) const SLO_SLOWDOWN_GAIN: f64 = 0.05;
/// Shortest phase of the policy that tests others at random, in µs: a few launches …
pub(crate) const PHASE_MIN_US: Micros = 100;
/// … and its longest, in µs: some requests.
pub(crate) const PHASE_MAX_US: Micros = 20_000;

// ---- Arbiter -------------------------------------------------------------------------------------------------------------

/// Groups whose progress is of interest are looked at this often, in µs; one without progress for so long is told as stalled. Longer
/// than most commands take.
pub const LOOK_US: Micros = 20_000;
/// A group that has the device, wants it, and shows no progress for so long, in µs, lets those that wait run for a while.
pub(crate) const STARVATION_US: Micros = 1_000_000;
/// Unless configured, a group that wants the device and has not had it for so long, in µs, gets one turn, whatever the policy says: a
/// program that never leaves the device cannot keep it for ever. A turn each ten seconds is 0.05 % of a device.
pub const GUARD_US: Micros = 10_000_000;
/// A group that was closed while it counted as idle though it said it was ready is believed again after so long, in µs.
pub(crate) const DOUBT_US: Micros = 100_000;
/// A group of a job on several devices that is closed and has still something on the device after so long, in µs, waits there for
/// the rest of its job, which is closed, too: it is charged no more, or it might never be its turn again.
pub(crate) const WAITS_US: Micros = 20_000;
/// What a group has in flight that gets on in short slices of the hardware has so long to come to its end, in µs, while a more urgent one
/// has the device. The gates of an H200's pool leave 400 µs in flight, which end within 4 ms. Not always: matrix products whose blocks
/// form clusters are restored for longer than a slice of 130 µs in one of some hundred interruptions, and get nowhere …
pub(crate) const DRAIN_PATIENCE_US: Micros = 4_000;
/// … until the others stay away for a moment, of so long in µs at most. What they have in flight themselves comes first: a token of a
/// language model takes 1.4 ms. What is in flight then ends within half a millisecond …
pub(crate) const DRAIN_US: Micros = 3_000;
/// … and is seen to have ended within this time, in µs.
pub(crate) const DRAIN_LOOK_US: Micros = 100;
/// A claim is kept for so many quanta, and so far may one get ahead of it: some quanta of others may lie between two of its own.
pub(crate) const CLAIM_QUANTA: f64 = 4.0;

// ---- Shares in a pool ----------------------------------------------------------------------------------------------------

/// A group of a pool is held once it is so far ahead of the slowest one, in µs of progress: more than counts may be late by, and
/// less than anything that people wait for.
pub(crate) const SHARE_SLACK_US: f64 = 10_000.0;
/// Counts of completed commands are read this often, in µs, while several groups of a pool want the device. A client looks for
/// its completions each 2 ms, so that more often brings nothing; a leader goes on for so long unseen.
pub(crate) const SHARE_LOOK_US: Micros = 4_000;
/// So long after several groups of a pool wanted the device, in µs, they still count as company: a pause is no end.
pub(crate) const COMPANY_US: Micros = 1_000_000;
/// A group that has the device and completes nothing for so long, in µs, …
pub(crate) const SHARE_PATIENCE_US: Micros = 200_000;
/// … and for so many of its commands keeps the others back no more: it waits for something else, perhaps for one of them.
pub(crate) const SHARE_PATIENCE_COMMANDS: f64 = 8.0;
/// A spell alone that others are held for lasts so long, in µs, from a completion to a completion: a few steps of most networks,
/// whose first layers take a hundred times as long as the last …
pub(crate) const SPELL_US: Micros = 200_000;
/// … and is given up after this time, in µs, which includes what the others still have on the device.
pub(crate) const SPELL_MOST_US: Micros = 2_000_000;
/// Only where all of the pool have wanted the device for so long, in µs, but for pauses between two steps: a program that serves
/// requests is not held for that.
pub(crate) const STEADY_US: Micros = 300_000;
/// What is found in one is taken for true at its end, or after this time, in µs: should something of another one complete sooner
/// that was in the driver already, it was no spell alone.
pub(crate) const SPELL_PROVEN_US: Micros = 300_000;
/// Time between spells of a group that others are held for, in µs: at first …
pub(crate) const SPELL_SOON_US: Micros = 250_000;
/// … and at most; each is twice the last one.
pub(crate) const SPELL_RARE_US: Micros = 8_000_000;
/// After a spell there is none for so many times what it took: all of them take 3 % of a device.
pub(crate) const SPELL_PARTS: u64 = 32;
/// The first spells of a group do not wait for that: until they succeed nothing is held, however unfair the pool is.
pub(crate) const SPELLS_FIRST: u32 = 3;
/// A spell that differs from what is known by this factor may be another phase of the program: the next one comes soon …
pub(crate) const SPELL_NEWS: f64 = 1.5;
/// … and so many in a row are one …
pub(crate) const SPELLS_NEWS: u32 = 4;
/// … of which so much is forgotten, in lengths of the memory. Fewer would take the parts of a long step for phases.
pub(crate) const NEWS_FORGETS: f64 = 1.5;
/// Time alone after which what was learned counts a third, in µs: a second in which two programs alternate …
pub(crate) const RATE_MEMORY_US: f64 = 1_000_000.0;
/// … or so many spells, some half a minute where others are held for them.
pub(crate) const RATE_MEMORY_SPELLS: f64 = 16.0;
/// A group that has at least this part of its rate alone beside others is hardly slowed down by them.
pub(crate) const HARDLY_SLOWED: f64 = 0.75;
/// Time beside others after which what was learned of it counts a third, in µs.
pub(crate) const BESIDE_MEMORY_US: f64 = 1_000_000.0;
/// On a device with more groups than this …
pub(crate) const MANY_GROUPS: usize = 64;
/// … those that have wanted nothing for so long, in µs, are no part of decisions: 1,000 idle groups would make each take some 50 µs.
pub(crate) const DORMANT_US: Micros = 1_000_000;
/// A decision on a device takes as long as a look at so many of its groups, besides one at each.
pub(crate) const DECISION_LOOKS: usize = 8;
/// Groups looked at in further decisions until those of all devices of each job agree: some 0.4 ms. Jobs that do not agree by then give
/// way together, and the devices have other work meanwhile.
pub(crate) const RECONCILE_LOOKS: usize = 4_096;
/// What runs when a gate closes is taken to be over after so long, in µs, or after its longest command and a quarter.
pub(crate) const SETTLE_US: Micros = 1_000;
