//! Constants of policies and arbiter: name, unit, reason. A name ends in its unit; parts and counts have none.

use xsched_proto::hint::Slo;

use crate::Micros;

// ---- Policies ------------------------------------------------------------------------------------------------------------

/// Longest turn, in timeslices: a contender of a thousand times the weight of another must not have a thousand of them at a stretch.
pub(crate) const TURN_MAX: f64 = 4.0;
/// Weight of a party whose utilization is 0: it has the rest that the others leave, and is not forgotten.
pub(crate) const PART_LEAST: f64 = 0.01;
/// Shortest turn, in µs: shorter ones would mostly be spent on switching.
pub(crate) const TURN_MIN_US: Micros = 500;
/// Rest of a turn, in µs, with which it is over: the rest is added to the next one.
pub(crate) const LEFT_US: f64 = 50.0;
/// Factor by which a turn that makes up for a short one may exceed [`TURN_MAX`].
pub(crate) const TURN_SLACK: f64 = 1.25;
/// Longest pause, in µs, after which a contender still has its claim: programs that synchronise after each step go idle for a moment many
/// times in a turn.
pub(crate) const SHORT_IDLE_US: Micros = 3_000;
/// Pause of a more urgent group, in µs, that may be within one request. A command that cannot be interrupted would hold up the rest of
/// the request, so none begins before the pause has been that long.
pub(crate) const REST_US: Micros = 2_000;
/// Part of its time that a group is idle, at least, to go before its equals that never pause, in percent: the data loading of a
/// trainer takes a few.
pub(crate) const PAUSE_PERCENT: Micros = 20;
/// Length of the period over which pauses are measured, in µs, with the period before: the burst of a group that pauses may be that long.
pub(crate) const PAUSE_PERIOD_US: Micros = 1_000_000;
/// Longest pause, in µs: after it the group counts as having left, and the others need not be ready to make way for it. Its next burst goes
/// first all the same, and waits for the work that they have in flight.
pub(crate) const PAUSE_LONGEST_US: Micros = 10_000_000;
/// Device time beyond its part after which a group that pauses goes first no more, in µs: some requests of a busy service …
pub(crate) const LEAD_MOST_US: f64 = 50_000.0;
/// … until this part of it is left.
pub(crate) const LEAD_REST: f64 = 0.5;
/// Device time that a group saves up while it leaves the device to its equals, in µs: beside one other, a burst of half a second
/// goes first to its end.
pub(crate) const CREDIT_US: f64 = 200_000.0;
/// Shortest interval, in µs, at which leads are compared with their limits as they come near to them.
pub(crate) const LEAD_LOOK_US: Micros = 2_000;
/// Number of turns that a program saves up under `spup` while it waits for those of others: the excess is lost.
pub(crate) const SLOTS_KEPT: f64 = 4.0;
/// Number of turns with which a program begins again under `spup` that had used up its credit alone. With half a turn, a program with a
/// quarter of an H200 did 18 % of the work that it does with all of it.
pub(crate) const SLOTS_ALONE: f64 = 2.0;
/// Ratio of the weights of neighbouring nice values, as Linux has it (`kernel/sched/core.c`, `sched_prio_to_weight`) …
pub(crate) const NICE_STEP: f64 = 1.25;
/// … and how many priorities one of its 40 steps is: 510 of them.
pub(crate) const PRIORITIES_PER_STEP: f64 = 12.75;
/// Time off the device that pays back a µs of use under `mlfq`: work that has the device a fifth of the time stays on top.
pub(crate) const SLEEP_PER_RUN: f64 = 4.0;
/// Target under `slo` of an urgent program that names none: five percent more than alone.
pub(crate) const SLO_DEFAULT: Slo = Slo::Slowdown(SLOWDOWN_DEFAULT_PERCENT);
/// Slowdown that an urgent group without a target accepts, in percent of the time alone, for the work of others in its gaps, or for their
/// company.
pub(crate) const SLOWDOWN_DEFAULT_PERCENT: u32 = 105;
/// Growth of the allowance under `slo` for each burst within its P99, as a part of the target: a miss takes back a fifth of the target, and
/// the allowance is found within some hundred requests.
pub(crate) const SLO_GROWTH: f64 = 0.002;
/// The greatest allowance, in targets: beyond one, others may stay for the whole burst, and a miss must still be felt soon.
pub(crate) const SLO_ALLOWANCE_MOST: f64 = 1.2;
/// Part of its commands that the device must hold up for a program to count as limited by the device: a training that fills it waits for
/// room before most commands, an eager BERT of batch 1 before one in ten thousand (H100).
pub(crate) const LIMITED_PART: f64 = 0.05;
/// Time over which that part is averaged, in µs.
pub(crate) const LIMITED_MEMORY_US: f64 = 300_000.0;
/// Delay, in µs, after which completions beside a more urgent program of the same server have all been reported once that has left the
/// device: clients poll every 2 ms, and the daemon counts every 4 ms.
pub(crate) const SETTLES_US: u64 = 4_000;
/// Lower limit of the allowance under `slo`, in targets below 0: after a miss closed gates do not yield for up to a hundred bursts.
pub(crate) const SLO_STRICT_MOST: f64 = 0.2;
/// Number of first bursts under a slowdown target without allowance, to learn the length of bursts alone …
pub(crate) const SLO_PROBES_FIRST: u64 = 10;
/// … and interval of later ones, in bursts, as that length changes.
pub(crate) const SLO_PROBE_EACH: u64 = 16;
/// Weight of a new burst in the mean of those without allowance.
pub(crate) const SLO_SMOOTHING: f64 = 0.1;
/// Part of a burst's distance to its aim that goes into the allowance: some fifty bursts find it.
pub(crate) const SLO_SLOWDOWN_GAIN: f64 = 0.05;
/// Shortest phase of the policy that tests others at random, in µs: a few launches …
pub(crate) const PHASE_MIN_US: Micros = 100;
/// … and its longest, in µs: some requests.
pub(crate) const PHASE_MAX_US: Micros = 20_000;

// ---- Arbiter -------------------------------------------------------------------------------------------------------------

/// Interval at which the progress of scrutinised groups is polled, in µs, and time without progress after which a group is reported as
/// stalled. Longer than most commands take.
pub const LOOK_US: Micros = 20_000;
/// Time, in µs, after which a group that has the device, wants it, and shows no progress lets those that wait run for a while.
pub(crate) const STARVATION_US: Micros = 1_000_000;
/// Longest wait unless configured, in µs: then a group gets one turn, whatever the policy says, so that a program that never leaves the
/// device cannot keep it for ever. A turn every ten seconds is 0.05 % of a device.
pub const GUARD_US: Micros = 10_000_000;
/// Time, in µs, after which a stalled group whose gate was closed counts as ready again.
pub(crate) const DOUBT_US: Micros = 100_000;
/// Time after its gate closed, in µs, for which a group of a job on several devices is charged. With work on the device after that, it
/// waits there for the rest of its job, whose gates are closed, too: charged further, it might never have its turn again.
pub(crate) const WAITS_US: Micros = 20_000;
/// Time, in µs, for which work in flight that advances in short slices of the hardware may come to its end while a more urgent group has
/// the device. The gates of an H200's pool leave 400 µs in flight, which end within 4 ms. Not always: matrix products whose blocks form
/// clusters are restored for longer than a slice of 130 µs in one of some hundred interruptions, and get nowhere …
pub(crate) const DRAIN_PATIENCE_US: Micros = 4_000;
/// … until the others pause, for so long in µs at most. The work that these have in flight comes first: a token of a language model takes
/// 1.4 ms. The work of the suspended group then ends within half a millisecond …
pub(crate) const DRAIN_US: Micros = 3_000;
/// … but for a kernel of some milliseconds beside a burst of launches, of which so many moments have to be given at most …
pub(crate) const DRAINS: u8 = 3;
/// … or one that uses memory of the host: in slices of 120 µs it would delay each token by half a millisecond for as long as a request lasts.
/// Optimisers' kernels of some 300 MB take 7 ms at 47 GB/s …
pub(crate) const DRAIN_FIRST_US: Micros = 12_000;
/// … and programs wait for it whose requests take at least this long, in µs: a shorter one would double …
pub(crate) const DRAIN_FIRST_REQUEST_US: Micros = 20_000;
/// … as long as commands end meanwhile. After so many waits in vain, one after the other, …
pub(crate) const DRAIN_FIRST_IN_VAIN: u8 = 3;
/// … nobody waits the next times, so many, and then once more to see whether they still take longer, …
pub(crate) const DRAIN_FIRST_LEFT_OUT: u8 = 12;
/// … and the end is noticed within this time, in µs.
pub(crate) const DRAIN_POLL_US: Micros = 100;
/// Greatest credit and greatest debt of a class, in quanta: some quanta of others may lie between two of its own.
pub(crate) const CLAIM_QUANTA: f64 = 4.0;

// ---- Evenness in a pool --------------------------------------------------------------------------------------------------

/// Lead over the slowest group of a pool, in µs of progress, beyond which a group is held: more than counts may be late by, and less than
/// people notice.
pub(crate) const LEAD_SLACK_US: f64 = 10_000.0;
/// Interval of counts of completed commands, in µs, while several groups of a pool want the device. A client polls its completions every
/// 2 ms, so that a shorter interval gains nothing; a group that is ahead goes on for that long unnoticed.
pub(crate) const COUNT_US: Micros = 4_000;
/// Time, in µs, for which groups of a pool still count as company after several of them wanted the device: a pause is no end.
pub(crate) const COMPANY_US: Micros = 1_000_000;
/// Time without completion, in µs, after which a group that has the device counts as stuck …
pub(crate) const STUCK_US: Micros = 200_000;
/// … unless that is shorter than so many of its commands. Others are not held for a stuck group: it waits for something else, perhaps for
/// one of them.
pub(crate) const STUCK_COMMANDS: f64 = 8.0;
/// Least length of a sample of a rate, in µs: a few steps of most networks, whose first layers take a hundred times as long as the last. A
/// calibration run lasts that long, from one completion to another …
pub(crate) const SAMPLE_US: Micros = 200_000;
/// … and is given up after this time, in µs, which includes work that the others still have on the device.
pub(crate) const RUN_MOST_US: Micros = 2_000_000;
/// Time, in µs, for which all groups of a pool must have wanted the device before a run, but for pauses between two steps: a program that
/// serves requests is not held for a run.
pub(crate) const STEADY_US: Micros = 300_000;
/// Age of a window alone, in µs, from which on its counts are confirmed: should work of another group complete sooner, which was in the
/// driver already, the group was not alone.
pub(crate) const WINDOW_PROVEN_US: Micros = 300_000;
/// Time between calibration runs of a group, in µs: at first …
pub(crate) const RUN_INTERVAL_MIN_US: Micros = 250_000;
/// … and at most; each is twice the last one.
pub(crate) const RUN_INTERVAL_MAX_US: Micros = 8_000_000;
/// Pause after a run, as a multiple of its length: all runs together take 3 % of a device.
pub(crate) const RUN_PAUSE_TIMES: u64 = 32;
/// Number of first runs of a group that wait for no more than the length of the run before: until one succeeds nothing is held, however uneven the pool is.
pub(crate) const RUNS_FIRST: u32 = 3;
/// Factor by which a sample differs from the known rate that may begin another phase of the program: the next run comes soon …
pub(crate) const TREND_RATIO: f64 = 1.5;
/// … and number of such samples in a row that are another phase …
pub(crate) const TREND_SAMPLES: u32 = 4;
/// … and part of the rate that is forgotten then, in lengths of the memory. Fewer samples would take parts of a long step for phases.
pub(crate) const TREND_FORGETS: f64 = 1.5;
/// Time alone, in µs, after which a sample has a third of its weight: a second in which two programs alternate …
pub(crate) const RATE_MEMORY_US: f64 = 1_000_000.0;
/// … or so many samples, some half a minute of runs.
pub(crate) const RATE_MEMORY_SAMPLES: f64 = 16.0;
/// Part of its rate alone that a group must have beside others to count as hardly slowed down by them.
pub(crate) const HARDLY_SLOWED: f64 = 0.75;
/// Time beside others, in µs, after which a sample has a third of its weight.
pub(crate) const BESIDE_MEMORY_US: f64 = 1_000_000.0;
/// Number of groups on a device beyond which some are dormant …
pub(crate) const MANY_GROUPS: usize = 64;
/// … namely those that have wanted nothing for so long, in µs: 1,000 idle groups would make each decision take some 50 µs.
pub(crate) const DORMANT_US: Micros = 1_000_000;
/// Fixed cost of a decision on a device, in groups: it adds to the number of groups that the decision covers.
pub(crate) const DECISION_COST: usize = 8;
/// Cost of further decisions, in groups, after which jobs on whose devices the decisions do not agree give way together: some 0.4 ms. The
/// devices have other work meanwhile.
pub(crate) const RECONCILE_COST: usize = 4_096;
/// Time after a gate closed, in µs, after which running work is presumed complete, unless its longest command and a quarter is longer.
pub(crate) const SETTLE_US: Micros = 1_000;
