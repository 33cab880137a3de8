//! Every constant of the core: name, unit, reason, and the device where it was measured.
//!
//! A name ends in its unit: `_NS`, `_US`; counts have none.

// ---- Estimates -----------------------------------------------------------------------------------------------------------

/// Assumed device time of a command that was never measured, in ns. It lies between a short kernel (10 µs) and a long one (1 ms): a guess
/// that is wrong by a factor of ten costs one wait or one budget.
pub const UNKNOWN_NS: u64 = 100_000;
/// Outlier: a sample longer than the average by more than this factor, because the device was away for a while.
pub const OUTLIER_TIMES: u32 = 4;
/// Number of outliers in a row that are accepted as the new average. A plain average took five BERTs to 20 % of their work (H200,
/// prototypes).
pub const OUTLIERS_IN_A_ROW: u32 = 3;
/// Weight of a new sample in the average: one part in this many.
pub const AVERAGE_PARTS: u32 = 8;
/// Number of samples taken beside other programs after which a command counts as long: not all of them can have waited for another program.
pub const SHARED_SAMPLES: u32 = 4;
/// Divisor of the time that a command took beside other programs, so that it is a safe lower estimate: few programs share the device most
/// of the time.
pub const SHARED_BY: u64 = 4;
/// Number of kinds of commands that have an estimate.
pub const ESTIMATES: usize = 2048;
/// Number of slots of the table that are probed for a kind, from its own slot on.
pub const ESTIMATE_PROBES: usize = 8;
/// Samples are discarded if their timing error exceeds both this, in ns, and 1 part in [`EXACT_PART`] of the duration.
pub const EXACT_NS: u64 = 10_000;
/// Divisor of a sample's duration that gives the other limit of its timing error, see [`EXACT_NS`].
pub const EXACT_PART: u64 = 8;
/// Shortest time without a pause by which the pace of a queue is judged, in ns.
pub const PACE_NS: u64 = 2_000_000;
/// Expected device time over which it is judged whether a program's commands are short, in ns.
pub const LENGTHS_NS: u64 = 100_000_000;
/// A program's commands are short if long ones take no more than 1 part in this many of [`LENGTHS_NS`].
pub const LONG_PARTS: u64 = 4;
/// Assumed device time of an unmeasured command inside a graph, in ns. It is shorter than [`UNKNOWN_NS`], since recorded commands are
/// mostly short.
pub const UNKNOWN_INSIDE_NS: u64 = 50_000;

// ---- Completion fences ---------------------------------------------------------------------------------------------------

/// Largest number of commands between two fences of a budgeted queue.
pub const FENCE_COMMANDS: u64 = 32;
/// Largest expected device time between two fences, in ns: a tenth of the default budget, so that the use of the budget is known in time.
pub const FENCE_NS: u64 = 50_000;
/// Largest expected device time between two fences where a fence is a callback that costs as much as a launch (OpenCL), in ns.
pub const SPARSE_FENCE_NS: u64 = 200_000;
/// Largest expected device time between two fences, in ns, where device gates let more be in flight than the next fence holds up. With less
/// than this, a fence comes only where a gate does.
pub const GATED_FENCE_NS: u64 = 500_000;
/// Largest number of fences of a queue under way. They take room in the driver's own queue (1,024 entries a stream on CUDA), where a
/// program that waits for itself may have counted on all of it.
pub const FENCES: usize = 32;
/// Number of a thread's first commands on an unbudgeted queue that each get a fence, so that long kernels are found early.
pub const FIRST_FENCES: u64 = 64;
/// Number of fences under way from which on these first commands get none: the rest is for fences that cover many commands.
pub const FEW_FENCES: usize = 8;
/// Sampling rate: one command in 2^`SAMPLE_BITS.0` is fenced by itself, so that its time is measured anew; one in 2^`SAMPLE_BITS.1` once
/// the queue has [`SETTLED`], because the device pauses for each.
pub const SAMPLE_BITS: (u32, u32) = (6, 9);
/// Number of commands after which the times of a queue's kernels are known.
pub const SETTLED: u64 = 1 << 16;
/// Number of a thread's first launches on an unbudgeted queue that take the slow path.
pub const BEGINNING: u64 = 256;
/// After these, one launch in this many takes the slow path, so that the group is seen to progress.
pub const FOLLOW_EVERY: u64 = 32;
/// Once in this many launches, the next one takes the slow path too: two in a row tell how long the second one took.
pub const FOLLOW_PAIR_EVERY: u64 = 128;

// ---- Admission -----------------------------------------------------------------------------------------------------------

/// Submission lead, in ns: once no more than this much work is left in flight, the next command is admitted even over budget, so that the
/// device never runs dry.
pub const LEAD_NS: u64 = 50_000;
/// Length from which on a command gets a device gate of its own, in ns. A gate costs about 1.5 µs on an H200.
pub const LONG_COMMAND_NS: u64 = 150_000;
/// Factor by which the budget grows where the device has gates: all commands but the running one can still be held.
pub const GATED_BUDGETS: u64 = 8;
/// Device time between two gates inside a graph that is made ready while no budget is in force, in ns: the default budget. A graph is made
/// ready once, and a rival may come later. In a pool on an H200, a language model that decodes batches in graphs reaches 90 % of its work
/// without a served model beside it, and so does a training job, with gates each 300 µs; with these gates they reach 92 and 95 %. The
/// served model's gaps between tokens have a P99 of 1.51 ms with gates each 300 µs, of 1.49 and 1.47 ms with these (alone 1.47 ms), and of
/// 1.88 ms where graphs have no gates.
pub const INSIDE_NS: u64 = 500_000;
/// Largest number of commands that are pre-queued behind a closed gate: the driver's own queues must not fill up (CUDA's take 1,024 entries
/// a stream, fences and gates included).
pub const PREQUEUED_COMMANDS: u64 = 512;
/// Interval at which a thread that waits for the budget polls the memory that completions are written to, in ns.
pub const BUDGET_POLL_NS: u64 = 50_000;
/// Half of the interval around the time at which a completion is due, in ns, during which the thread polls without sleeping: a device that
/// waits for a thread to wake up stands idle meanwhile. About as long as a wake-up takes.
pub const AWAKE_NS: u64 = 30_000;
/// Longest sleep of a thread that waits for the budget, in ns. It checks its gate after each sleep.
pub const BUDGET_SLEEP_NS: u64 = 1_000_000;

/// Timer slack of a thread that waits for the budget, in ns. With the kernel's default a sleep takes 50 µs longer than requested.
pub const TIMER_SLACK_NS: u64 = 1_000;

// ---- Yielding ------------------------------------------------------------------------------------------------------------

/// Expected time in flight from which on a queue of an urgent program is behind, in ns: groups that yield to it are then held. With half of
/// it five BERTs beside one do 86 % of what they do under MPS, with this 91 %, and the one waits no longer (H100). Below it, the pace of
/// the urgent program's host hides the time that others on the device add to its kernels.
pub const BEHIND_NS: u64 = 200_000;
/// Shortest and longest dwell time, in ns: how long all queues must have kept up before held groups go on. The longest is twice the pause
/// of a host between two commands of a burst.
pub const DWELL_NS: (u64, u64) = (20_000, 1_000_000);
/// Interval at which a held thread polls whether a device has caught up, in ns: nothing wakes the thread up then.
pub const BEHIND_LOOK_NS: u64 = 30_000;
/// Length from which on a hold with nothing in flight is reported to the daemon, in ns; the daemon then stops charging the device to the
/// group. Most holds last a tenth of a millisecond.
pub const HELD_LONG_NS: u64 = 2_000_000;

// ---- Activity ------------------------------------------------------------------------------------------------------------

/// Longest gap that every program keeps the device through, in ns, and that ends no request. [`crate::gaps`] decides on longer ones.
pub const SHORT_GAP_NS: u64 = 500_000;
/// Shortest and longest grace time, in ns: the longest is twice [`SHORT_GAP_NS`], as a grace time is twice the gap that it follows.
pub const GRACE_NS: (u64, u64) = (20_000, 1_000_000);
/// Grace time of a new group, in ns.
pub const FIRST_GRACE_NS: u64 = 200_000;
/// Divisor by which the grace time shrinks per gap; it grows at once. A group that flaps costs more than one that stays
/// ready a little too long.
pub const GRACE_PARTS: u64 = 16;
/// Time within which a group whose gate closes has drained, in ns; after it the device no longer counts as the group's own.
pub const DRAINS_NS: u64 = 10_000_000;
/// Delay after which unfenced commands, some 50 to 200 µs of expected time, are presumed complete, in ns.
pub const UNFENCED_NS: u64 = 1_000_000;
/// Interval at which a group without rivals is polled, in ns. Deciding after each of its waits cost a program 0.06 to 0.14 ms per
/// wait (H200).
pub const RARE_LOOK_NS: u64 = 100_000_000;
/// Shortest time between a rare poll and the poll before it, in ns, where that one came a little early.
pub const RARE_LOOK_LEAST_NS: u64 = 1_000_000;
/// Interval at which completions that the device only writes into memory are polled, in ns.
pub const LOOK_NS: u64 = 2_000_000;
/// The interval while the daemon waits for a group to drain, in ns.
pub const DRAIN_LOOK_NS: u64 = 50_000;
/// Interval at which queues that the program fills by itself (HSA) are polled, in ns: with rivals on the device, and without.
pub const FILLED_LOOK_NS: (u64, u64) = (1_000_000, 20_000_000);

// ---- Gaps ----------------------------------------------------------------------------------------------------------------

/// Assumed cost of the leaving of others at the end of a gap, in ns, until it is learned: what is in flight of them, and a switch of
/// contexts that cuts a kernel. An H100 takes 0.27 to 0.30 ms.
pub const RETURN_NS: u64 = 250_000;
/// Time that passes in a gap before others work, in ns: the report that the group is idle, the answer, their first launch, and a switch.
pub const COMING_NS: u64 = 100_000;
/// Least work of others, in ns, for which an urgent program loses 1 ns. At 1, gaps of 0.6 ms would be given away, in which others get half
/// of the gap done.
pub const WORTH: f64 = 2.0;
/// Part of the slowdown budget that is spent: what is learned lags behind, and the P99 of tokens has a budget, too.
pub const SPENT: f64 = 0.85;
/// Number of gaps by which a group is known well enough to hold the device.
pub const FIRST_GAPS: u32 = 8;
/// Number of gaps between two plans.
pub const PLAN_GAPS: u32 = 8;
/// Number of gaps that the distribution of gaps covers: older ones are forgotten.
pub const GAPS_KEPT: u32 = 128;
/// Number of gaps between the begins of two probes; a quarter of it while a group has had few gaps.
pub const PROBE_EACH: u32 = 128;
/// Number of gaps that a probe keeps.
pub const PROBE_GAPS: u32 = 8;
/// Number of gaps kept in a row after which a group counts as alone: work of others that was cut goes on in them.
pub const KEPT_ALONE: u32 = 5;
/// Weight of a new sample in the time alone: one part in this many.
pub const ALONE_PARTS: u32 = 4;
/// Weight of a new sample in the learned return: one part in this many.
pub const RETURN_PARTS: u32 = 32;
/// Factor by which the learned return may differ from [`RETURN_NS`], either way.
pub const RETURN_MOST: u64 = 4;
/// Number of gaps kept in a row after which most of the learned return is forgotten. Where it has grown too great for any gap to be given
/// away, nothing else would show that it has shrunk.
pub const RETURN_FADES: u32 = 2_048;

// ---- Watchdog ------------------------------------------------------------------------------------------------------------

/// Liveness override: time without any completion after which one more command passes the budget, in ns. The longest of this,
/// [`OVERRIDE_BUDGETS`] and [`OVERRIDE_EXPECTED`] applies.
pub const OVERRIDE_NS: u64 = 5_000_000;
/// Number of budgets after whose time, without any completion, one more command passes, see [`OVERRIDE_NS`].
pub const OVERRIDE_BUDGETS: u64 = 4;
/// Multiple of the expected time in flight after which, without any completion, one more command passes, see [`OVERRIDE_NS`].
pub const OVERRIDE_EXPECTED: u64 = 2;
/// Largest part of the override's time that comes from [`OVERRIDE_EXPECTED`], in ns: for commands that are expected to be long.
pub const OVERRIDE_LONG_NS: u64 = 1_000_000_000;
/// Base-2 logarithm of the largest number of commands that an override lets through; each override in a row doubles it. A program that
/// provides what its commands wait for only after thousands of them must not wait thousands of times.
pub const OVERRIDES_IN_A_ROW: u32 = 12;
/// Time after which queues that waited for each other on the device are no longer expected to do so again, in ns.
pub const CROSS_STREAM_NS: u64 = 10_000_000_000;
/// Release timeout: commands that device gates have held for this long go on, in ns. It is longer than most busy spells of programs that
/// serve requests, since a release disturbs them. With 50 ms, a language model that had two requests to serve in a row waited 0.4 ms for
/// each token of the second (H200). Five programs came to a stop without it (H200).
pub const RELEASE_NS: u64 = 1_000_000_000;
/// Lower limit of the release timeout, in ns: longer than most requests take. Each release halves the timeout down to this; each grant that
/// arrives in time doubles it, up to [`RELEASE_NS`].
pub const RELEASE_AGAIN_NS: u64 = 50_000_000;
/// Silence of the daemon, in ns, after which a closed gate holds nothing any more; it beats each 50 ms.
pub const LEASE_NS: u64 = 800_000_000;
/// Interval at which the agent checks the daemon's heartbeat while a gate is closed, in ns.
pub const LEASE_LOOK_NS: u64 = 100_000_000;
/// Interval at which a thread at a closed gate checks the heartbeat itself, in ns, in case the agent is gone. It is long because a signal
/// that arrives during the check, outside of the wait, does not end the wait.
pub const GATE_LOOK_NS: u64 = 1_000_000_000;
/// Longest time for which the first launch of a group waits for the daemon's answer, in ns. Where twenty programs start at once the answer
/// takes more than 100 ms.
pub const ATTACH_NS: u64 = 500_000_000;
/// Longest time for which an allocation waits for the daemon's answer to a question for memory, in ns.
pub const MEMORY_ANSWER_NS: u64 = 500_000_000;
/// Longest time for which a question to the vendor's library waits for the driver's figure of this process, in ns.
pub const MEMORY_MEASURE_NS: u64 = 100_000_000;
/// Time for which that figure counts as new, in ns: contexts and modules take longer to load.
pub const MEMORY_NEW_NS: u64 = 20_000_000;
/// Time for which a figure is not asked for again that did not come, in ns.
pub const MEMORY_LATE_NS: u64 = 1_000_000_000;
/// Shortest time between two messages of a process on allocations that were refused, in ns.
pub const MEMORY_REFUSED_NS: u64 = 1_000_000_000;
/// Longest wait for room on a device that the daemon makes, in ns: turns of others may take minutes, and it gives up before.
pub const MEMORY_ROOM_NS: u64 = 1_800_000_000_000;
/// Time between two checks of whether to wait on for room, in ns.
pub const MEMORY_ROOM_LOOK_NS: u64 = 20_000_000;

// ---- Signals -------------------------------------------------------------------------------------------------------------

/// Waiting time since the last signal from which on a signal counts as a single one and ends the wait, in ns: longer than the ticks of
/// profilers and timers are apart. Also the first spacing of ticks that end a wait.
pub const SIGNAL_APART_NS: u64 = 50_000_000;
/// Longest spacing where an interpreter runs a program's handlers on the thread, in ns: handlers run this late at most.
pub const SIGNAL_LATE_NS: u64 = 100_000_000;
/// Longest spacing elsewhere, in ns: beside ticks, a flag that a handler has set is noticed this late at most. One command a second past a
/// closed gate is lost in the normal variation of an urgent program's requests.
pub const SIGNAL_LATEST_NS: u64 = 1_000_000_000;

// ---- Agent ---------------------------------------------------------------------------------------------------------------

/// Time after which a daemon that has not answered the greeting counts as absent, in ns: its one thread is never away for that long.
pub const GREETING_NS: u64 = 1_000_000_000;
/// First and longest wait between attempts to find a daemon again, in ns: short after a restart, and cheap where there is none.
pub const RETRY_NS: (u64, u64) = (100_000_000, 2_000_000_000);
/// Longest wait after a refusal for want of room, in ns, whatever the daemon wants.
pub const ASK_AGAIN_MAX_NS: u64 = 60_000_000_000;
/// First and longest wait after a refusal for another reason, in ns: that holds until an operator acts.
pub const REFUSED_NS: (u64, u64) = (2_000_000_000, 30_000_000_000);
/// Time after which a program that must be scheduled ends if it is not scheduled, in ns.
pub const REQUIRED_NS: u64 = 3_000_000_000;
/// Interval at which a launch of such a program checks whether it is scheduled, in ns.
pub const REQUIRED_LOOK_NS: u64 = 1_000_000;
/// Largest number of lines of a description in one packet, which has to fit into a socket's buffer.
pub const DESCRIPTION_LINES: usize = 150;
/// Stack of the agent thread, in bytes.
pub const AGENT_STACK_BYTES: usize = 256 << 10;
