//! Every constant of the core: name, unit, reason, where it was measured. "Notebook" is `docs/notebook/h200.md`.
//!
//! A name ends in its unit: `_NS`, `_US`; counts have none.

// ---- Estimates -----------------------------------------------------------------------------------------------------------

/// Assumed device time of a command that was never seen complete, in ns. Between a short kernel (10 µs) and a long one
/// (1 ms): a first guess that is wrong by ten costs one wait or one budget.
pub const UNKNOWN_NS: u64 = 100_000;
/// A sample over so many times the average is an accident: the device was away …
pub const OUTLIER_TIMES: u32 = 4;
/// … unless it comes so many times in a row. A naive average took five BERTs to 20 % of their work (H200, prototypes).
pub const OUTLIERS_IN_A_ROW: u32 = 3;
/// Weight of a new sample in the average: 1 part of so many.
pub const AVERAGE_PARTS: u32 = 8;
/// So many samples taken beside others say that a command is long: it cannot have waited for another program's each time.
pub const SHARED_SAMPLES: u32 = 4;
/// What a command beside others took is divided by this to be sure of it: few programs share the device most of the time.
pub const SHARED_BY: u64 = 4;
/// Kinds of commands that estimates are kept of.
pub const ESTIMATES: usize = 2048;
/// Places that are looked at for a kind, from its own on.
pub const ESTIMATE_PROBES: usize = 8;
/// Samples whose timing error exceeds both this, in ns …
pub const EXACT_NS: u64 = 10_000;
/// … and this part of the duration are discarded.
pub const EXACT_PART: u64 = 8;
/// The pace of a queue is judged by at least so long without a pause, in ns.
pub const PACE_NS: u64 = 2_000_000;
/// Expected device time by which it is judged whether a program's commands are short, in ns …
pub const LENGTHS_NS: u64 = 100_000_000;
/// … which they are where long ones take no more than 1 part of so many.
pub const LONG_PARTS: u64 = 4;
/// The same as [`UNKNOWN_NS`] inside a graph, in ns: what is recorded into graphs is mostly short.
pub const UNKNOWN_INSIDE_NS: u64 = 50_000;

// ---- Completion fences ---------------------------------------------------------------------------------------------------

/// A budgeted queue gets a fence at least every so many commands …
pub const FENCE_COMMANDS: u64 = 32;
/// … or so much expected device time, in ns: a tenth of the default budget, so that its use is known in time.
pub const FENCE_NS: u64 = 50_000;
/// The same, in ns, where a fence is a callback that costs as much as a launch (OpenCL).
pub const SPARSE_FENCE_NS: u64 = 200_000;
/// The same, in ns at most, where device gates let more be in flight than the next fence holds up: with less than this a fence comes
/// only where a gate does.
pub const GATED_FENCE_NS: u64 = 500_000;
/// Fences of a queue under way at most. They take room in the driver's own queue (1,024 entries a stream on CUDA), where a
/// program that waits for itself may have counted on all of it.
pub const FENCES: usize = 32;
/// An unbudgeted queue gets a fence after each of a thread's first so many commands: long kernels are found early …
pub const FIRST_FENCES: u64 = 64;
/// … while fewer than so many are under way: the rest is for those that cover many commands.
pub const FEW_FENCES: usize = 8;
/// One command in 2^`SAMPLE_BITS.0` is fenced by itself, so that its time is measured anew; in 2^`SAMPLE_BITS.1` once the
/// queue has [`SETTLED`]: the device pauses for each.
pub const SAMPLE_BITS: (u32, u32) = (6, 9);
/// So many commands into a queue, what its kernels take is known.
pub const SETTLED: u64 = 1 << 16;
/// Of a thread's launches on an unbudgeted queue the first so many take the slow path …
pub const BEGINNING: u64 = 256;
/// … then one in so many, by which the group is seen to progress …
pub const FOLLOW_EVERY: u64 = 32;
/// … and, once in so many, the next one too: two in a row tell how long the second one took.
pub const FOLLOW_PAIR_EVERY: u64 = 128;

// ---- Admission -----------------------------------------------------------------------------------------------------------

/// What is left of the commands in flight may be this little, in ns, before the next one must be under way, whatever the
/// budget: the device finds its next command when it ends one.
pub const LEAD_NS: u64 = 50_000;
/// Where the device has gates, commands at least this long, in ns, each get one. A gate costs about 1.5 µs on an H200.
pub const LONG_COMMAND_NS: u64 = 150_000;
/// Where the device has gates, so many budgets may be in flight: all but the running command can still be held.
pub const GATED_BUDGETS: u64 = 8;
/// Between two gates inside a graph lies so much device time where no budget is in force when it is made ready, in ns: the default
/// budget. A graph is made ready once, and a rival may come later. In a pool on an H200, a language model that decodes batches in graphs,
/// and a training job, do 90 % of what they do without a served model beside them with gates each 300 µs, 92 and 95 % with these. The
/// served model's gaps between tokens have a P99 of 1.51, and 1.49 and 1.47 ms (alone 1.47); 1.88 ms where graphs have no gates.
pub const INSIDE_NS: u64 = 500_000;
/// So many commands are pre-queued behind a closed gate at most: the driver's own queues must not fill up (CUDA's take 1,024 a
/// stream, fences and gates included).
pub const PREQUEUED_COMMANDS: u64 = 512;
/// How often a thread that waits for the budget looks at the memory that tells of completions, in ns.
pub const BUDGET_POLL_NS: u64 = 50_000;
/// From so long before a completion is due until so long after, in ns, the thread looks without sleeping: a device that waits
/// for a thread to wake up stands idle meanwhile. About what a wake-up takes.
pub const AWAKE_NS: u64 = 30_000;
/// Longest sleep of a thread that waits for the budget, in ns: it looks at its gate then.
pub const BUDGET_SLEEP_NS: u64 = 1_000_000;

/// Timer slack of a thread that waits for the budget, in ns. With the default its sleeps are 50 µs longer than asked for.
pub const TIMER_SLACK_NS: u64 = 1_000;

// ---- Yielding ------------------------------------------------------------------------------------------------------------

/// An urgent program's queue with more expected time than this in flight, in ns, is behind: those that yield to it are held. With half of it five BERTs
/// beside one do 86 % of what they do under MPS, with this 91 %, and the one waits no longer (H100). Below it, the pace
/// of its host hides what others on the device add to its kernels.
pub const BEHIND_NS: u64 = 200_000;
/// Shortest and longest time for which all queues must have kept up before those that were held go on, in ns.
pub const DWELL_NS: (u64, u64) = (20_000, 2 * SHORT_GAP_NS);
/// Time between two looks of a held thread whether a device has caught up, in ns: nothing wakes it up then.
pub const BEHIND_LOOK_NS: u64 = 30_000;
/// A hold of this length, in ns, with nothing in flight is told to the daemon, which charges the device to the group no more. Most
/// holds last a tenth of a millisecond.
pub const HELD_LONG_NS: u64 = 2_000_000;

// ---- Activity ------------------------------------------------------------------------------------------------------------

/// Gaps up to this long are worth keeping the device for, in ns; in longer ones others get something done.
pub const SHORT_GAP_NS: u64 = 500_000;
/// Shortest and longest grace time, in ns.
pub const GRACE_NS: (u64, u64) = (20_000, 2 * SHORT_GAP_NS);
/// Grace time of a new group, in ns.
pub const FIRST_GRACE_NS: u64 = 200_000;
/// The grace time grows at once and shrinks by 1 part of so many per gap: a group that flaps costs more than one that stays
/// ready a little too long.
pub const GRACE_PARTS: u64 = 16;
/// A group whose gate closes drains within this time, in ns; after it the device no longer counts as its own.
pub const DRAINS_NS: u64 = 10_000_000;
/// Unfenced commands, some 50 to 200 µs of expected time, are presumed complete after this delay, in ns.
pub const UNFENCED_NS: u64 = 1_000_000;
/// A group without rivals is looked at this often, in ns. Deciding after each of its waits cost a program 0.06 to 0.14 ms per
/// wait (notebook).
pub const RARE_LOOK_NS: u64 = 100_000_000;
/// No sooner than this after another look, in ns, where that one came a little early.
pub const RARE_LOOK_LEAST_NS: u64 = 1_000_000;
/// Completions that only memory tells of are looked at this often, in ns, …
pub const LOOK_NS: u64 = 2_000_000;
/// … and this often while the daemon waits for a group to drain.
pub const DRAIN_LOOK_NS: u64 = 50_000;
/// How often to look into queues that the program fills by itself (HSA), in ns: with rivals on the device, and without.
pub const FILLED_LOOK_NS: (u64, u64) = (1_000_000, 20_000_000);

// ---- Watchdog ------------------------------------------------------------------------------------------------------------

/// Where nothing completes, the budget lets one more command through after this time, in ns …
pub const OVERRIDE_NS: u64 = 5_000_000;
/// … or so many budgets …
pub const OVERRIDE_BUDGETS: u64 = 4;
/// … or so many times what is expected to be in flight …
pub const OVERRIDE_EXPECTED: u64 = 2;
/// … but not longer than this for commands that are expected to be long, in ns.
pub const OVERRIDE_LONG_NS: u64 = 1_000_000_000;
/// Each override in a row lets twice as many commands through, up to 2^this: a program that provides what its commands wait for
/// only after thousands of them must not wait thousands of times.
pub const OVERRIDES_IN_A_ROW: u32 = 12;
/// Queues that waited for each other on the device do so again, but not those that have not for so long, in ns.
pub const CROSS_STREAM_NS: u64 = 10_000_000_000;
/// What gates on the device have held for so long, in ns, goes on: longer than most busy spells of programs that serve requests,
/// which it disturbs. With 50 ms, a language model that had two requests to serve in a row waited 0.4 ms for each token of the
/// second (H200, notebook). Five programs came to a stop without it (notebook).
pub const RELEASE_NS: u64 = 1_000_000_000;
/// Each time that this has to be halves it, down to this, in ns: longer than most requests take. Each turn of the group that comes
/// sooner doubles it.
pub const RELEASE_AGAIN_NS: u64 = 50_000_000;
/// A daemon silent for so long while a gate is closed holds nothing any more, in ns; it beats each 50 ms.
pub const LEASE_NS: u64 = 800_000_000;
/// The agent looks at the daemon's heartbeat this often while a gate is closed, in ns.
pub const LEASE_LOOK_NS: u64 = 100_000_000;
/// A thread at a closed gate looks at the heartbeat this often, in ns, in case the agent is gone. Rarely: a signal that arrives
/// during the look, outside of the wait, does not end the wait.
pub const GATE_LOOK_NS: u64 = 1_000_000_000;
/// How long the first launch of a group waits for the daemon's answer, in ns. Where twenty programs start at once it takes more
/// than 100 ms.
pub const ATTACH_NS: u64 = 500_000_000;

// ---- Signals -------------------------------------------------------------------------------------------------------------

/// A signal counts by itself, and ends the wait that it interrupts, if the thread waited for so long since the last one, in ns:
/// longer than the ticks of profilers and timers are apart. Also the first spacing of ticks that end a wait.
pub const SIGNAL_APART_NS: u64 = 50_000_000;
/// Longest spacing where an interpreter runs a program's handlers on the thread, in ns: so late they run at most.
pub const SIGNAL_LATE_NS: u64 = 100_000_000;
/// Longest spacing elsewhere, in ns: so late, beside ticks, a flag is looked at that a handler has set. One command a second past a
/// closed gate is lost in what an urgent program's requests vary by.
pub const SIGNAL_LATEST_NS: u64 = 1_000_000_000;

// ---- Agent ---------------------------------------------------------------------------------------------------------------

/// A daemon that does not answer the greeting for so long is none, in ns: its one thread is never away for that long.
pub const GREETING_NS: u64 = 1_000_000_000;
/// First and longest wait between attempts to find a daemon again, in ns: soon after a restart, and cheap where there is none.
pub const RETRY_NS: (u64, u64) = (100_000_000, 2_000_000_000);
/// A program that must be scheduled ends if it is not within so long, in ns.
pub const REQUIRED_NS: u64 = 3_000_000_000;
/// How often a launch of such a program looks whether it is, in ns.
pub const REQUIRED_LOOK_NS: u64 = 1_000_000;
/// Lines of a description in one packet, which a socket's buffer must take.
pub const DESCRIPTION_LINES: usize = 150;
/// Stack of the agent thread, in bytes.
pub const AGENT_STACK_BYTES: usize = 256 << 10;
