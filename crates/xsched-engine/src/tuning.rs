//! Times and limits of the engine: name, unit, reason. A name ends in its unit; counts have none.

/// A time slice is not set again sooner than this after the last time, in ns: the driver may take milliseconds for it.
pub(crate) const REASSERT_NS: u64 = 2_000_000;
/// Queues and counters of a program that are read in one piece of work: some 8 µs, twice that where they were never touched.
pub const LOOK_PLACES: usize = 128;
/// Longest wait of a command for a program that moves memory, in ns: 80 GiB at 1 GiB/s, and some more.
pub const MOVE_NS: u64 = 120_000_000_000;
/// Time in which a program has to begin a move, in ns: it gives the order up by itself after 10 s, so that one without an answer then is
/// stopped, or does not serve its messages.
pub const MOVE_BEGINS_NS: u64 = 15_000_000_000;
/// Speed at which memory moves, in bytes per second, low: the length of turns follows from it.
pub const MOVE_BYTES_PER_S: u64 = 20 << 30;
/// Length of a turn of best-effort programs that do not fit together, in times that it takes to move their memory.
pub const TURN_MOVES: u64 = 10;
/// Shortest turn of a program whose weight gives it less than others, in times that it takes to move their memory.
pub const TURN_LEAST_MOVES: u64 = 2;
/// Longest turn that a weight lengthens, in ns: others wait for as long.
pub const TURN_LONGEST_NS: u64 = 300_000_000_000;
/// Shortest turn, in ns.
pub const TURN_MIN_NS: u64 = 1_000_000_000;
/// Parts of a program's memory of which it lends one at least to a more urgent program: each move has to wait for the program's commands.
pub const LEND_PARTS: u64 = 8;
/// Smallest part that is lent, in bytes.
pub const LEND_MIN_BYTES: u64 = 64 << 20;
/// Time in which a program has to take room that was made for it, in ns.
pub const PROMISE_NS: u64 = 500_000_000;
/// Time after which nobody counts on the memory of a program that was ordered to leave and has not, in ns.
pub const LEAVE_NS: u64 = 30_000_000_000;
/// Questions for room of one program that may wait.
pub const WANTS_MAX: usize = 16;
/// Questions of a user's programs that may wait, in times of the groups that the user may have on a device: a program has one or two.
pub const USER_WANTS_TIMES: usize = 2;
/// Questions about one device that may wait, of all users together: those of root and of the daemon's own user find a place beyond.
pub const DEVICE_WANTS_MAX: usize = 1_024;
/// Processes with memory on one device, of all users together, likewise: all of them are looked at for a question. A GPU has memory for
/// some 200 contexts.
pub const DEVICE_HOLDERS_MAX: usize = 512;
/// Processes with memory, counted on each of their devices, of all users together, likewise.
pub const HOLDERS_MAX: usize = 4_096;
/// Work on a process that holds memory, in steps: reading its words, adding it up. A step takes some 25 ns.
pub const STEPS_OF_HOLDER: usize = 8;
/// Work on a question for room, in steps, without the programs that are looked through for it: one step each.
pub(crate) const STEPS_OF_QUESTION: usize = 16;
/// Work on memory that is done with the input that causes it, in steps: 64 processes and a few questions.
pub(crate) const AT_ONCE_STEPS: usize = 1_024;
/// Work on questions about a device in one piece, in steps, besides the scans that begin it.
pub const QUESTIONS_STEPS: usize = 4_096;
/// Work on memory in one piece, in steps: a device that is begun within it is worked on to the end of its own piece.
pub const PIECE_STEPS: usize = 8_192;
/// Part of a table of all users that is kept for those that have little in it.
pub(crate) const KEPT_PART: usize = 4;
/// Part of such a table up to which a user finds a place among those that are kept.
pub(crate) const LITTLE_PART: usize = 64;
/// Shortest time between two lines of the log on a program's refused allocations, in ns: some programs try for ever.
pub const REFUSAL_LINES_NS: u64 = 10_000_000_000;
/// Longest wait of a program for room of which nobody knows that it will come, in ns. Otherwise it waits on: memory that leaves takes
/// [`MOVE_BEGINS_NS`] and its move at most, and an allocation that failed before another program's turn ends would end the program.
pub const WANT_NS: u64 = 120_000_000_000;
/// Wait for room after which a program is told what it waits for, in ns.
pub const WANT_TOLD_NS: u64 = 5_000_000_000;
/// Time for which memory stays that could not leave, in ns.
pub const KEEP_AFTER_REFUSAL_NS: u64 = 5_000_000_000;
/// Commands up to this length, in µs, end within the moments that more urgent groups leave them: `DRAINS` times `DRAIN_US` of the policies.
pub(crate) const ENDS_SOON_US: u64 = 8_000;
/// Commands longer than this, in µs, are too long for others to run beside them: a rival's requests take as long.
pub const LONG_US: u64 = 2_000;
/// Bursts after which it counts as known what bounds a program: one of a start, with its compilations, says little.
pub const HOST_BOUND_BURSTS: u64 = 50;
/// The host is a program's bottleneck while the device works no longer than this in its bursts, in percent: others may double the time of
/// its kernels then, and the host still is.
pub const HOST_BOUND_PERCENT: u32 = 50;
/// Memory of the trace in bytes, 24 for each step: some 175,000. Two programs that take turns by requests leave some 2,000 a second, so
/// that it is more than a minute.
pub const TRACE_BYTES: usize = 4 << 20;
/// Groups that are gone and that the trace still tells of.
pub const TRACED_ENDED_MAX: usize = 1_024;
/// Records read for one message, and so within one piece of work: some 20 µs.
pub(crate) const TRACED_RECORDS: u64 = 1_024;
/// Names of groups in one message, in bytes.
pub(crate) const TRACED_BYTES: usize = 16 << 10;
/// Bursts that are kept for commands that record: some 5 MiB, a second of very busy programs.
pub(crate) const BURSTS_MAX: usize = 65_536;
/// Bursts in one message.
pub(crate) const BURSTS_TOLD: usize = 512;
/// Bursts that are looked through for one message: some 20 µs.
pub(crate) const BURSTS_READ: usize = 4_096;
/// Programs that a command changes at a time: each takes some 4 µs.
pub const CHANGED_AT_ONCE: usize = 4;
/// Groups of the programs that a command changes at a time, but for those of the last one, which has 64 at most: each takes some µs.
pub(crate) const CHANGED_GROUPS: usize = 64;
/// Programs that are compared with the targets of a command at a time: with 64 targets some 50 µs.
pub const COMPARED_AT_ONCE: usize = 64;
/// Programs that are checked at a time whether a command may change them so: some 50 µs where each has 64 groups.
pub const CHECKED_AT_ONCE: usize = 32;
/// Lines that a command is told of levels that devices lack.
pub(crate) const LACKING_LINES: usize = 64;
/// Groups on one device, of all users together: a decision there takes some 50 µs. A GPU has memory for some 200 contexts.
pub const DEVICE_GROUPS_MAX: usize = 1_024;
/// Groups on all devices, of all users together: those of root and of the daemon's own user find a place beyond.
pub const GROUPS_MAX: usize = 8_192;
/// Queues of all users together, likewise.
pub const QUEUES_MAX: usize = 1_048_576;
/// Longest device key or job name, in bytes.
pub const NAME_MAX_BYTES: usize = 256;
/// Devices that all users together name, likewise, but for root and the daemon's own user, who find a place beyond: a machine has some
/// sixty, and a decision about jobs may concern all of them.
pub const DEVICES_MAX: usize = 1_024;
/// Users whose active window is known, beyond which only those with programs are kept.
pub(crate) const ACTIVE_WINDOWS_MAX: usize = 1_024;
/// Books of all users together, likewise: one for each group, and as many that are still to be recorded.
pub const BOOKS_MAX: usize = 16_384;
