//! The daemon's times and limits: name, unit, reason. A name ends in its unit; counts have none.

use xsched_policy::LOOK_US;
use xsched_proto::class::SHORT_SLICE_US;
use xsched_proto::wire::MAX_PACKET;

/// Which of two bounds is that of a user: the second is for root and the daemon's own user.
pub(crate) fn of_user(bounds: (usize, usize), own: bool) -> usize {
    if own { bounds.1 } else { bounds.0 }
}

// ---- Programs ------------------------------------------------------------------------------------------------------------

/// While some group waits, the progress of those that run is looked at this often, in ns.
pub(crate) const LOOK_NS: u64 = LOOK_US * 1000;
/// While a gate is closed, the heartbeat page is written this often, in ns: sixteen times within the lease of the programs
/// (`xsched_flow::tuning::LEASE_NS`), so that a busy machine may miss some.
pub(crate) const BEAT_NS: u64 = 50_000_000;
/// Wake-ups of another user's programs that are decided on together are read for so long, in ns: decisions for others wait as long, and as
/// long as the decision takes.
pub(crate) const FOREIGN_WAKES_NS: u64 = 20_000;
/// A client with so many bytes to read is not told the same again.
pub(crate) const UNREAD_BYTES: usize = 16 << 10;
/// So many queues of a client are looked at for what the device still executes of a suspended group: reading them takes some µs.
pub(crate) const LOOKED_AT_QUEUES: usize = 256;

// ---- Sockets -------------------------------------------------------------------------------------------------------------

/// The files of the daemon's sockets are looked for this often, in s. A program that finds none asks for it meanwhile.
pub(crate) const SITE_LOOK_S: i64 = 2;
/// A process of the daemon's own user that has connected to the meeting point may take so long to say why, in ms.
pub(crate) const SITE_QUESTION_MS: u64 = 500;

// ---- Trace ---------------------------------------------------------------------------------------------------------------

// ---- State of devices ----------------------------------------------------------------------------------------------------

/// Drivers are asked this often, in ns, while programs are attached: a driver averages over up to a second itself.
pub(crate) const DEVICE_LOOK_NS: u64 = 1_000_000_000;
/// What is older, in ns, is not known any more: several looks were missed.
pub(crate) const DEVICE_STALE_NS: u64 = 5_000_000_000;
/// Looks kept of each device: two minutes.
pub(crate) const DEVICE_HISTORY: usize = 120;
/// A driver stays open for so long after the last program, in ms: opening it may take longer than a short program runs.
pub(crate) const DEVICE_LINGER_MS: u64 = 2_000;
/// That heat slows a device down is told again after so long without, in ns.
pub(crate) const DEVICE_HOT_NS: u64 = 60_000_000_000;

/// A group's share is told of the last ten seconds, in ns.
pub(crate) const SHARE_WINDOW_NS: u64 = 10_000_000_000;
/// What is charged to each group is noted no more often than this, in ns.
pub(crate) const SHARE_NS: u64 = 1_000_000_000;
/// Sums of these that are no older serve for programs that end, in ns.
pub(crate) const SHARES_NS: u64 = 10_000_000;
/// Programs that have ended and are told of, of all users and of one; see [`of_user`].
pub(crate) const ENDED_MAX: usize = 1_024;
/// As above.
pub(crate) const USER_ENDED_MAX: (usize, usize) = (64, 256);
/// Each with its queues where it had so many at most: a number and its launches take some 60 bytes.
pub(crate) const ENDED_QUEUES_MAX: usize = 64;
/// They are told of for so long, in ns: an hour.
pub(crate) const ENDED_NS: u64 = 3_600_000_000_000;

// ---- Connections ---------------------------------------------------------------------------------------------------------

/// Events taken from the kernel at a time: enough that what one user's connections have to say does not hide, for several calls, that
/// another's program wants its gate opened.
pub(crate) const EVENTS_MAX: usize = 1_024;
/// By so much less urgent is the thread that closes what strangers sent, as a nice value: at that of the loop, whoever sends sockets has
/// decisions for others wait for 3 to 5 ms on two processors, and for 1 to 3 so.
pub(crate) const CLOSER_NICE: i32 = 10;
/// Connections accepted at a time: each takes some 5 µs.
pub(crate) const ACCEPTED_MAX: usize = 4;
/// Work goes on for so long, in ns, before new events are looked for: a wake-up waits for no more of it, and one piece of each kind, besides the
/// wake-ups of others. One piece takes some 0.2 ms at most.
pub(crate) const SLICE_NS: u64 = 50_000;
/// So many times what it takes to heed the wake-ups of another user, to look at the counters of that user's programs, or to serve a
/// command, goes by until the next: each takes a quarter of the loop's time at most. An honest program costs some 10 µs each time that it comes or goes.
pub(crate) const RATION_TIMES: u64 = 4;
/// Beyond so much time in advance, in ns: a quarter of a millisecond of work at once is never put off.
pub(crate) const RATION_CREDIT_NS: u64 = 1_000_000;
/// Connections of one user, for others and for root and the daemon's own: more than programs that can have a group each.
pub(crate) const USER_CONNS_MAX: (usize, usize) = (1_024, usize::MAX);
/// Of all connections this part is root's, so that others cannot lock it out.
pub(crate) const ROOT_PART: usize = 8;
/// A connection that has not said what it is after so long, in ns, is closed.
pub(crate) const SILENT_NS: u64 = 5_000_000_000;
/// The highest weight that a program without privilege may ask for: ten times that of others.
pub(crate) const USER_WEIGHT_MAX: u32 = 1_000;
/// The longest turn that a program without privilege may ask for, in µs: twenty times the usual.
pub(crate) const USER_TIMESLICE_MAX_US: u64 = 100_000;
/// Groups of one user on one device, for others and for root and the daemon's own: a decision takes as long as there are groups on the
/// device, some 50 ns each. A user of a device has some dozens of programs at most.
pub(crate) const USER_DEVICE_GROUPS_MAX: (usize, usize) = (128, 1_024);
/// Bytes kept for all connections of all users together, but for those of root and of the daemon's own user.
pub(crate) const OUT_MAX_BYTES: usize = 64 << 20;
/// Devices that one user's programs name, for others and for root and the daemon's own, while there are books of them: eight GPUs in
/// seven instances each, and the processor. Each has books, a line of its own for monitors, and a place in `ps`.
pub(crate) const USER_DEVICES_MAX: (usize, usize) = (64, 1_024);
/// Books of one user, one for each of its programs on each device, likewise: a book stays open until what is in it is recorded,
/// [`USAGE_NS`] at most. Thirty programs a second leave a thousand.
pub(crate) const USER_BOOKS_MAX: (usize, usize) = (2_048, 65_536);
/// Books that are looked at in one piece of work: some 50 µs.
pub(crate) const BOOKS_PIECE: usize = 64;
/// Groups of one user on all devices, likewise: eight GPUs with as many programs as one can hold.
pub(crate) const USER_GROUPS_MAX: (usize, usize) = (512, 4_096);
/// Programs, groups and queues that are looked at for `ps` in one piece of work: some 25 µs.
pub(crate) const SIGHT_PIECE: usize = 64;
/// After a look for `ps` the next one begins no sooner than so many times what that took of the loop's time: two hundredths of it at most.
pub(crate) const SIGHT_REST: u64 = 49;
/// The same in ns, at most.
pub(crate) const SIGHT_REST_MAX_NS: u64 = 100_000_000;
/// Messages sent to those that ask, before new questions are looked for.
pub(crate) const TOLD_AT_A_TIME: usize = 64;
/// Queues told in one message, which has room for three times as many: those in as many places.
pub(crate) const PS_QUEUES: u16 = 1_024;
/// Queues of one user, likewise: a program has some dozens, one with ten thousand is known, and each costs the daemon some 50 bytes.
pub(crate) const USER_QUEUES_MAX: (usize, usize) = (131_072, 1_048_576);
/// Descriptors that the daemon keeps for one user, likewise: as many as its connections may need.
pub(crate) const USER_FDS_MAX: (usize, usize) = (8_192, usize::MAX);
/// What programs of one user share with the daemon, likewise, in MiB: as much as its connections may need. What no queue uses is no
/// memory.
pub(crate) const USER_MAPPED_MAX_MIB: (usize, usize) = (8_192, usize::MAX);
/// Jobs of one user that have groups on several devices, likewise: where all of them have to give way, each costs a decision on all its
/// devices, some 20 µs on sixteen.
pub(crate) const USER_JOBS_MAX: (usize, usize) = (16, 128);
/// Bytes kept for a command that does not read its answer yet. An answer is made as it is read; what a program says for another is not.
pub(crate) const COMMAND_OUT_MAX_BYTES: usize = 1 << 20;
/// Answers under way for one user that keep memory until they are read, but for root and the daemon's own user: half a MiB each where there
/// is much to tell. Further commands wait.
pub(crate) const USER_ANSWERS_MAX: usize = 4;
/// The same for all users together.
pub(crate) const ANSWERS_MAX: usize = 256;
/// Room of the socket of a connection, in bytes, where the other side does not read: a command takes whole messages, …
pub(crate) const SOCKET_MAX_BYTES: usize = MAX_PACKET + (4 << 10);
/// … what a program is told is short. It has twice the room after which it is not told the same again.
pub(crate) const PROGRAM_SOCKET_MAX_BYTES: usize = 2 * UNREAD_BYTES;
/// Bytes kept for a program that does not read yet, a thousand messages: it may be busy with as many of its own.
pub(crate) const CLIENT_OUT_MAX_BYTES: usize = 64 << 10;
/// Bytes kept for all connections of one user, for others and for root and the daemon's own: a stopped program needs none as long as
/// its socket has room.
pub(crate) const USER_OUT_MAX_BYTES: (usize, usize) = (4 << 20, 64 << 20);
/// Once so many programs have left, the allocator is told to give back what is free: by itself it keeps what others lie behind.
pub(crate) const TRIM_PROGRAMS: usize = 128;
/// So long after the last one has left, in ns, where none is attached …
pub(crate) const TRIM_NS: u64 = 1_000_000_000;
/// … and where some are, if none waits at its gate: it takes some 10 ms for each 100 MiB.
pub(crate) const TRIM_QUIET_NS: u64 = 10_000_000_000;
/// A connection for which something is kept and that reads nothing for so long, in ns, is closed. Its socket is full by then: it has not
/// read some hundred messages.
pub(crate) const UNREAD_NS: u64 = 2_000_000_000;
/// What a kept message takes besides its own bytes.
pub(crate) const KEPT_BYTES: usize = 56;
/// Descriptors that are neither connections nor closed for them: sockets, timers, files that are open for a moment.
pub(crate) const OWN_FDS: usize = 48;
/// Lines that wait to be written to the log; more are counted.
pub(crate) const LINES_MAX: usize = 1_024;
/// Lines of the log that one user may cause within [`USER_LINES_NS`].
pub(crate) const USER_LINES_MAX: u32 = 40;
/// See [`USER_LINES_MAX`], in ns.
pub(crate) const USER_LINES_NS: u64 = 10_000_000_000;
/// A log file that has as many bytes is put aside, and the one put aside before is removed.
pub(crate) const LOG_FILE_MAX_BYTES: u64 = 1 << 20;
/// At its end the daemon waits so long, in ms, for what is still to be written.
pub(crate) const WRITER_END_MS: u64 = 1_000;
/// What is kept over a restart is written so long after it has changed, in ns, with what else has changed until then.
pub(crate) const REMEMBER_NS: u64 = 20_000_000;
/// Programs that have left and may come back, of which something is kept; the first ones are forgotten.
pub(crate) const ABSENT_MAX: usize = 1_000;
/// Largest file of what was set at run time that is read, in bytes: a thousand programs.
pub(crate) const STATE_MAX_BYTES: u64 = 1 << 20;
/// The operator is told when the daemon could not decide for so long, in ns. Programs go on without it after twice that.
pub(crate) const STALL_NS: u64 = 500_000_000;
/// The loop runs before all ordinary threads of the machine while it sleeps at least once in so long, in ns: what it does at a time
/// takes well below that, and no program notices to be kept off a processor for so long now and then …
pub(crate) const BUSY_MOST_NS: u64 = 100_000_000;
/// … and it slept where it waited for so long, in ns.
pub(crate) const SLEPT_NS: u64 = 50_000;
/// Complaints are written to the log no more often than this, in ns: what strangers do must not fill it.
pub(crate) const LOG_NS: u64 = 1_000_000_000;
/// A client answers a question within this time, in ns.
pub(crate) const ANSWER_NS: u64 = 1_000_000_000;
/// Levels of cgroups that count for a program, and processes above it: each is a file that is read when it attaches.
pub(crate) const CGROUPS_MAX: usize = 16;
/// As above, of the processes that it was started by.
pub(crate) const ANCESTORS_MAX: usize = 32;
/// A release of a stranger's descriptor that takes longer than this, in ns, is nudged, and again each time.
pub(crate) const NUDGE_NS: u64 = 5_000_000;
/// A thread that one release keeps for so long, in ns, is given up.
pub(crate) const LOST_NS: u64 = 1_000_000_000;
/// Threads given up at the same time.
pub(crate) const LOST_MAX: usize = 4;
/// Descriptors that wait to be closed, before no more are received and no more connections accepted.
pub(crate) const QUEUED_MAX: usize = 256;

// ---- An operator's own scheduler -----------------------------------------------------------------------------------------

/// An answer that takes longer than this is none, in ns.
pub(crate) const DEADLINE_NS: u64 = 100_000_000;
/// A library that takes longer than this to load has failed, in s.
pub(crate) const LOAD_S: i64 = 5;
/// It is asked again no sooner and no later than this, in µs, whatever it says.
pub(crate) const AGAIN_US: (u64, u64) = (1_000, 3_600_000_000);
/// Nice values are looked at this often, in ns, while a policy goes by them: `renice` is told to nothing but the kernel.
pub(crate) const NICE_NS: u64 = 100_000_000;

// ---- Pools ---------------------------------------------------------------------------------------------------------------

/// Time slice of a pool's channel group, in µs, as of a best-effort program that is the only one: once an urgent program is
/// ready, what was in flight in the pool is cut after so long. Without an urgent one it cuts nothing. On an H200 an urgent
/// launch waits up to 720 µs for a slice of 500.
pub(crate) const POOL_TIMESLICE_US: u64 = SHORT_SLICE_US;
/// Time slice of an inner pool's channel group, in µs: that of a program by itself. It takes turns only with contexts outside, whose gates
/// are closed while an urgent program inside works.
pub(crate) const POOL_INNER_TIMESLICE_US: u64 = 2_000;
/// Minutes of work on a GPU without a fault after which a program is proven.
pub(crate) const POOL_PROVEN_MINUTES: u32 = 10;
/// In-flight budget of a pooled program, in µs: what is in flight when an urgent program comes is cut into slices of the pool,
/// each of which costs that one two switches of contexts, 0.4 ms on an H200. The programs need no switch among each other: with
/// 300 they do as much as with 1000, kernels of 10 µs 10 % more than with 100. From an urgent launch to its kernel it takes as
/// long with each of these.
pub(crate) const POOL_BUDGET_US: u32 = 400;
/// Processes in a pool: an MPS server has room for 48 contexts on a device (CUDA 13.0), and each process makes one.
pub(crate) const POOL_MEMBERS_MAX: usize = 48;
/// A pool that does not serve after this time, in ns, is given up. A server starts in 0.3 s on an H200, later where the driver
/// is not loaded.
pub(crate) const POOL_START_NS: u64 = 15_000_000_000;
/// How often a pool that starts, or that may end, is looked at, in ns.
pub(crate) const POOL_LOOK_NS: u64 = 10_000_000;
/// A pool without programs ends after this time, in ns: the next one of a script finds it.
pub(crate) const POOL_LINGER_NS: u64 = 2_000_000_000;
/// A fault may come for so long, in ns, after a program of the pool ended in the midst of its work (143 to 261 ms on an H100); no other one
/// joins it meanwhile.
pub(crate) const POOL_DOUBT_NS: u64 = 400_000_000;
/// A fault so soon after a program of the pool ended in the midst of its work, in ns, counts against none: one that is killed in a
/// long kernel breaks the pool, and the log names one that lives.
pub(crate) const POOL_BLAME_NS: u64 = 3_000_000_000;
/// A user whose pool could not be had, or has refused two programs within this time, gets none for as long, in ns: each attempt keeps
/// a program waiting, or ends it.
pub(crate) const POOL_RETRY_NS: u64 = 600_000_000_000;
/// Bytes of an MPS daemon's log that are kept on disk; it writes ten lines for each client.
pub(crate) const POOL_LOG_MAX_BYTES: u64 = 1 << 20;
/// A program with kernels longer than this, in µs, has a context of its own from its next start: shares come in turns of whole
/// kernels beside it, and killed in the midst of one it would take the pool along.
pub(crate) const POOL_LONG_US: u64 = 10_000;
/// A program whose faults ended so many pools gets a context of its own.
pub(crate) const FAULTS_MAX: u32 = 2;
/// Programs of a user that are remembered not to suit others; more are not worth a list.
pub(crate) const PROGRAMS_MAX: usize = 100;
/// Longest name of one in the list, in bytes.
pub(crate) const PROGRAM_MAX_BYTES: usize = 1_024;
/// Reasons that users were told, before all are forgotten: a line each, so that they are told once.
pub(crate) const POOL_TOLD_MAX: usize = 1_000;

// ---- Trust ---------------------------------------------------------------------------------------------------------------

/// Work of a program that may prove itself is looked at this often, in ns: a minute, which counts if the device worked for it.
pub(crate) const TRUST_LOOK_NS: u64 = 60_000_000_000;
/// Minutes of several processes of one program count as one if they are not so far apart, in ns: a little less than the time between two
/// looks at the same process.
pub(crate) const PROVEN_MINUTE_NS: u64 = 55_000_000_000;
/// Programs that are looked at in one piece of work: some µs each, and the rest is done by a thread.
pub(crate) const TRUST_PIECE: usize = 16;
/// A process that joins a pool waits so long, in ns, for what is known of it: reading a thousand files' numbers takes some 10 ms. Then it
/// counts as not proven.
pub(crate) const TRUST_WAIT_NS: u64 = 1_000_000_000;
/// Tasks that wait for the thread. More are not done: those programs count as not proven, and their minutes not at all.
pub(crate) const TRUST_QUEUE: usize = 1_024;
/// The kernel's list of what a process maps is read up to so many bytes: 60,000 mappings. A PyTorch program has some 3,000.
pub(crate) const TRUST_MAPS_MAX_BYTES: u64 = 4 << 20;
/// Files that a program may be made of: PyTorch with its libraries has some 400.
pub(crate) const TRUST_FILES_MAX: usize = 1_024;
/// Their paths together, in bytes.
pub(crate) const TRUST_PATHS_MAX_BYTES: usize = 256 << 10;
/// First bytes of a command line that are looked through for a script.
pub(crate) const TRUST_COMMAND_MAX_BYTES: u64 = 16 << 10;
/// Time between two writes of learned things, in ns; after a fault they are written at once.
pub(crate) const PROVEN_WRITE_NS: u64 = 10_000_000_000;
/// Programs of a user that are remembered …
pub(crate) const PROVEN_PROGRAMS_MAX: usize = 32;
/// … and how much they take, in bytes: 32 PyTorch programs.
pub(crate) const PROVEN_USER_MAX_BYTES: usize = 2 << 20;
/// Programs of all users together: a decision which one goes looks at each.
pub(crate) const PROVEN_ALL_MAX: usize = 4_096;
/// Bytes of all users together.
pub(crate) const PROVEN_ALL_MAX_BYTES: usize = 16 << 20;
/// In a pool the device is a program's bottleneck beyond this part of its bursts, in percent: others stretch its kernels there.
pub(crate) const PROVEN_INSIDE_PERCENT: u32 = 75;

// ---- Accounting ----------------------------------------------------------------------------------------------------------

/// What was on a device without being followed is measured this often, in ns, where its driver may tell: as often as that is asked.
pub(crate) const MEASURE_NS: u64 = DEVICE_LOOK_NS;
/// Records of usage are written this often, in ns, while programs use devices: a daemon that is killed loses no more than that.
pub(crate) const USAGE_NS: u64 = 30_000_000_000;
/// What is to be written or asked waits for its thread, so many pieces at most.
pub(crate) const USAGE_QUEUE: usize = 64;
/// A file of records that has as many bytes is put aside, with one record for each hour of a program: 4,000 records before that.
pub(crate) const USAGE_FILE_MAX_BYTES: u64 = 1 << 20;
/// All that are put aside of one user have so many bytes at most, and are so many; the oldest goes. Ten programs that are always busy
/// leave 5 MB a year.
pub(crate) const USAGE_ASIDE_MAX_BYTES: u64 = 8 << 20;
/// Files of all users together have so many bytes at most: beyond, the user with most loses the oldest.
pub(crate) const USAGE_ALL_MAX_BYTES: u64 = 128 << 20;
/// Users with files of their own; records of further ones go to one file.
pub(crate) const USAGE_USERS_MAX: usize = 1_000;
/// See [`USAGE_ASIDE_MAX_BYTES`].
pub(crate) const USAGE_ASIDE_MAX: usize = 200;
/// Longest line of such a file that is read, in bytes.
pub(crate) const USAGE_LINE_MAX_BYTES: u64 = 4_096;
/// Longest name of a program, job or container in a record, in bytes.
pub(crate) const USAGE_NAME_MAX_BYTES: usize = 128;
/// Rows that are told of usage; the rest is added up.
pub(crate) const USAGE_ROWS_MAX: usize = 1_000;

// ---- Metrics -------------------------------------------------------------------------------------------------------------

/// Series of programs at most unless configured: each has some fifteen samples.
pub(crate) const METRICS_PROGRAMS_MAX: usize = 1_000;
/// Histograms of one kind at most, by class and device: five classes on sixteen devices, and some that programs make up. Beyond, the
/// user with most loses the one that was used least lately.
pub(crate) const METRICS_HISTOGRAMS_MAX: usize = 400;
/// Histograms that the programs of one user were the first to use.
pub(crate) const METRICS_USER_HISTOGRAMS_MAX: usize = 80;
/// A series of which no program is left is told for so long, in ns: as long as Prometheus takes a sample for current.
pub(crate) const METRICS_KEPT_NS: u64 = 300_000_000_000;
/// Programs that are gone and that no monitor was told of, at most.
pub(crate) const METRICS_GONE_MAX: usize = 1_000;
/// Clients that are looked at in one piece of work: some 0.1 ms.
pub(crate) const METRICS_PIECE: usize = 100;
/// A decision that a program says to have waited for longer than this, in ns, counts as this.
pub(crate) const METRICS_DECISION_MAX_NS: u64 = 1_000_000_000;
/// Threads that answer monitors.
pub(crate) const METRICS_THREADS: usize = 4;
/// The head of a request comes within this time, in ms, and has so many bytes at most.
pub(crate) const METRICS_HEAD_MS: u64 = 1_000;
/// See [`METRICS_HEAD_MS`].
pub(crate) const METRICS_HEAD_MAX_BYTES: usize = 8 << 10;
/// A snapshot that takes longer than this, in ms, is none.
pub(crate) const METRICS_PATIENCE_MS: u64 = 2_000;
/// An answer that is not taken for so long, in ms, is given up.
pub(crate) const METRICS_WRITE_MS: u64 = 5_000;
