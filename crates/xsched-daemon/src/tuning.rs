//! The daemon's times and limits: name, unit, reason. A name ends in its unit; counts have none.

use xsched_policy::LOOK_US;
use xsched_proto::class::SHORT_SLICE_US;
use xsched_proto::wire::MAX_PACKET;

/// Chooses a user's limit from two: the second is for root and the daemon's own user.
pub(crate) fn of_user(bounds: (usize, usize), own: bool) -> usize {
    if own { bounds.1 } else { bounds.0 }
}

/// Name of the policy whose questions go to a scheduler that was loaded.
pub(crate) const HOST_POLICY: &str = "external";

// ---- Programs ------------------------------------------------------------------------------------------------------------

/// Interval at which the progress of running groups is polled while some group waits, in ns.
pub(crate) const LOOK_NS: u64 = LOOK_US * 1000;
/// Interval at which the heartbeat page is written while a gate is closed, in ns: sixteen times within the lease of the programs
/// (`xsched_flow::tuning::LEASE_NS`), so that a busy machine may miss some.
pub(crate) const BEAT_NS: u64 = 50_000_000;
/// Time for which wake-ups of another user's programs are read that are decided on together, in ns: decisions for others wait as long, plus
/// the time that the decision takes.
pub(crate) const FOREIGN_WAKES_NS: u64 = 20_000;
/// Number of unread bytes of a client from which on a message that it will get again is not sent.
pub(crate) const UNREAD_BYTES: usize = 16 << 10;
/// Number of a client's queues that are checked for commands of a suspended group that the device still executes: reading them takes some
/// µs.
pub(crate) const LOOKED_AT_QUEUES: usize = 256;

// ---- Sockets -------------------------------------------------------------------------------------------------------------

/// Interval at which the daemon checks that the files of its sockets exist, in s. A program that finds none asks for it meanwhile.
pub(crate) const SITE_LOOK_S: i64 = 2;
/// Longest time that a process of the daemon's own user may take to send its question after connecting to the meeting point, in ms.
pub(crate) const SITE_QUESTION_MS: u64 = 500;

// ---- Trace ---------------------------------------------------------------------------------------------------------------

// ---- State of devices ----------------------------------------------------------------------------------------------------

/// Interval at which drivers are asked while programs are attached, in ns: a driver averages over up to a second itself.
pub(crate) const DEVICE_LOOK_NS: u64 = 1_000_000_000;
/// Shortest pause between two answers of a driver, in ns, where programs ask for what they hold.
pub(crate) const DEVICE_PAUSE_NS: u64 = 10_000_000;
/// Age from which on a device's state counts as unknown, in ns: several polls were missed.
pub(crate) const DEVICE_STALE_NS: u64 = 5_000_000_000;
/// Number of polls that are kept of each device: two minutes.
pub(crate) const DEVICE_HISTORY: usize = 120;
/// Time for which a driver stays open after the last program, in ms: opening it may take longer than a short program runs.
pub(crate) const DEVICE_LINGER_MS: u64 = 2_000;
/// Time without heat after which a slow-down of a device by heat is reported again, in ns.
pub(crate) const DEVICE_HOT_NS: u64 = 60_000_000_000;

/// Window over which a group's share is reported, in ns: ten seconds.
pub(crate) const SHARE_WINDOW_NS: u64 = 10_000_000_000;
/// Shortest time between two samples of the charge to each group, in ns.
pub(crate) const SHARE_NS: u64 = 1_000_000_000;
/// Age up to which sums over groups are used for programs that end, in ns.
pub(crate) const SHARES_NS: u64 = 10_000_000;
/// Largest number of ended programs that are reported, of all users and of one user; see [`of_user`].
pub(crate) const ENDED_MAX: usize = 1_024;
/// Largest number of ended programs of one user; see [`of_user`].
pub(crate) const USER_ENDED_MAX: (usize, usize) = (64, 256);
/// Largest number of queues with which an ended program is kept: a number and its launches take some 60 bytes each.
pub(crate) const ENDED_QUEUES_MAX: usize = 64;
/// Time for which an ended program is reported, in ns: an hour.
pub(crate) const ENDED_NS: u64 = 3_600_000_000_000;

// ---- Connections ---------------------------------------------------------------------------------------------------------

/// Largest number of events taken from the kernel at a time: enough that messages on one user's connections do not hide, for several calls,
/// a wake-up of another user's program that wants its gate opened.
pub(crate) const EVENTS_MAX: usize = 1_024;
/// Nice value by which the thread that closes strangers' descriptors is less urgent than the loop: at the loop's own value, a process that
/// sends sockets makes decisions for others wait for 3 to 5 ms on two processors, and for 1 to 3 ms with this.
pub(crate) const CLOSER_NICE: i32 = 10;
/// Largest number of connections accepted at a time: each takes some 5 µs.
pub(crate) const ACCEPTED_MAX: usize = 4;
/// Time for which work goes on before new events are polled, in ns: a wake-up waits for no more than that, one piece of each kind, and the
/// wake-ups of others. One piece takes some 0.2 ms at most.
pub(crate) const SLICE_NS: u64 = 50_000;
/// Multiple of the time for heeding another user's wake-ups, for polling the counters of that user's programs, or for serving a command,
/// that has to pass before the next such work: each kind takes a quarter of the loop's time at most. An honest program costs some 10 µs
/// each time that it comes or goes.
pub(crate) const RATION_TIMES: u64 = 4;
/// Time by which such work may be ahead of its ration, in ns: a quarter of a millisecond of work at once is never put off.
pub(crate) const RATION_CREDIT_NS: u64 = 1_000_000;
/// Largest number of connections of one user, for others and for root and the daemon's own user: more than the programs that can have a
/// group each.
pub(crate) const USER_CONNS_MAX: (usize, usize) = (1_024, usize::MAX);
/// Number of a user's connections beyond those of programs: commands, such as `ps`, are answered to a user whose programs have taken all
/// connections.
pub(crate) const COMMANDS_ROOM: usize = 8;
/// Largest number of refused processes that are reported, of all users.
pub(crate) const REFUSED_MAX: usize = 256;
/// Shortest and longest time after which a program that was refused for want of room asks again, in ns. The longest is below
/// [`REFUSED_KEPT_NS`].
pub(crate) const ASK_AGAIN_NS: (u64, u64) = (1_500_000_000, 60_000_000_000);
/// Time between two such attempts of programs of one user, in ns: 200 attempts in a second cost the loop a few % of its time.
pub(crate) const ASK_SPACING_NS: u64 = 5_000_000;
/// Largest number of users that have such times of their own.
pub(crate) const ASK_USERS_MAX: usize = 1_024;
/// Time for which a refusal is reported after its last repetition, in ns: a refused process asks again within a minute.
pub(crate) const REFUSED_KEPT_NS: u64 = 150_000_000_000;
/// Divisor of all connections that gives root's part, so that others cannot lock root out.
pub(crate) const ROOT_PART: usize = 8;
/// Time after which a connection that has not sent its first message is closed, in ns.
pub(crate) const SILENT_NS: u64 = 5_000_000_000;
/// Highest weight that a program without privilege may ask for: ten times the default.
pub(crate) const USER_WEIGHT_MAX: u32 = 1_000;
/// Longest turn that a program without privilege may ask for, in µs: twenty times the default.
pub(crate) const USER_TIMESLICE_MAX_US: u64 = 100_000;
/// Largest number of groups of one user on one device, for others and for root and the daemon's own user: a decision takes some 50 ns for
/// each group on the device. A user of a device has some dozens of programs at most.
pub(crate) const USER_DEVICE_GROUPS_MAX: (usize, usize) = (128, 1_024);
/// Largest number of bytes kept for all connections of all users together, except root's and the daemon's own user's.
pub(crate) const OUT_MAX_BYTES: usize = 64 << 20;
/// Largest number of devices that one user's programs name while there are accounts of them, for others and for root and the daemon's own
/// user: eight GPUs in seven instances each, and the processor. Each has accounts, a line of its own for monitors, and a place in `ps`.
pub(crate) const USER_DEVICES_MAX: (usize, usize) = (64, 1_024);
/// Largest number of accounts of one user, one for each program on each device, for others and for root and the daemon's own user: an
/// account stays open until its usage is recorded, [`USAGE_NS`] at most. Thirty programs a second leave a thousand.
pub(crate) const USER_BOOKS_MAX: (usize, usize) = (2_048, 65_536);
/// Number of accounts that are processed in one piece of work: some 50 µs.
pub(crate) const BOOKS_PIECE: usize = 64;
/// Largest number of groups of one user on all devices, for others and for root and the daemon's own user: eight GPUs with as many programs
/// as one can hold.
pub(crate) const USER_GROUPS_MAX: (usize, usize) = (512, 4_096);
/// Number of programs, groups and queues that are collected for `ps` in one piece of work: some 25 µs.
pub(crate) const SIGHT_PIECE: usize = 64;
/// Pause after a snapshot for `ps` of a user before that user's next one, as a multiple of the loop's time that it took: snapshots of a user
/// take one fiftieth of the time at most.
pub(crate) const SIGHT_REST: u64 = 49;
/// Such a multiple for the next snapshot of any user who has had much of this time lately: snapshots of all users take a quarter of the time
/// at most.
pub(crate) const SIGHT_ALL_TIMES: u64 = 4;
/// Divisor of the time that a thread takes to make the messages of a snapshot; the result counts as the loop's time: a user has a quarter of
/// the thread's time at most, so that another one finds it free.
pub(crate) const SIGHT_THREAD_PART: u64 = (SIGHT_REST + 1) / 4;
/// Longest such pause, in ns.
pub(crate) const SIGHT_REST_MAX_NS: u64 = 100_000_000;
/// Number of messages sent to requesting commands before new requests are polled.
pub(crate) const TOLD_AT_A_TIME: usize = 64;
/// Number of queue slots whose queues go into one message, which has room for three times as many.
pub(crate) const PS_QUEUES: u16 = 1_024;
/// Largest number of queues of one user, for others and for root and the daemon's own user: a program has some dozens, one with ten
/// thousand is known, and each costs the daemon some 50 bytes.
pub(crate) const USER_QUEUES_MAX: (usize, usize) = (131_072, 1_048_576);
/// Largest number of descriptors that the daemon keeps for one user, for others and for root and the daemon's own user: as many as the
/// user's connections may need.
pub(crate) const USER_FDS_MAX: (usize, usize) = (8_192, usize::MAX);
/// Memory that programs of one user share with the daemon, likewise, in MiB: as much as the user's connections may need. Pages that no
/// queue uses take no memory.
pub(crate) const USER_MAPPED_MAX_MIB: (usize, usize) = (8_192, usize::MAX);
/// Largest number of jobs of one user that have groups on several devices, for others and for root and the daemon's own user: where all of
/// them have to give way, each costs a decision on all its devices, some 20 µs on sixteen.
pub(crate) const USER_JOBS_MAX: (usize, usize) = (16, 128);
/// Largest number of bytes kept for a command that does not read its answer yet. An answer is made as it is read; a program's description
/// for another command is not.
pub(crate) const COMMAND_OUT_MAX_BYTES: usize = 1 << 20;
/// Largest number of answers under way for one user that keep memory until they are read, except for root and the daemon's own user: up to
/// half a MiB each. Further commands wait.
pub(crate) const USER_ANSWERS_MAX: usize = 4;
/// Largest number of long answers at the same time for all users together.
pub(crate) const ANSWERS_MAX: usize = 256;
/// Room of the socket of a command's connection where the other side does not read, in bytes: a command receives packets of full size.
pub(crate) const SOCKET_MAX_BYTES: usize = MAX_PACKET + (4 << 10);
/// Room of the socket of a program's connection, in bytes. Messages to programs are short; this is twice the room after which a message
/// that will be sent again is left out.
pub(crate) const PROGRAM_SOCKET_MAX_BYTES: usize = 2 * UNREAD_BYTES;
/// Largest number of bytes kept for a program that does not read yet, a thousand messages: it may be busy with as many of its own.
pub(crate) const CLIENT_OUT_MAX_BYTES: usize = 64 << 10;
/// Largest number of bytes kept for all connections of one user, for others and for root and the daemon's own user: a stopped program needs
/// none as long as its socket has room.
pub(crate) const USER_OUT_MAX_BYTES: (usize, usize) = (4 << 20, 64 << 20);
/// Number of programs that must have left before the allocator is made to release free memory: by itself it keeps memory that lies before
/// used memory.
pub(crate) const TRIM_PROGRAMS: usize = 128;
/// Time after the last of them has left until the release, in ns, where no program is attached.
pub(crate) const TRIM_NS: u64 = 1_000_000_000;
/// Time after the last of them has left until the release, in ns, where programs are attached and none waits at its gate: the release takes
/// some 10 ms for each 100 MiB.
pub(crate) const TRIM_QUIET_NS: u64 = 10_000_000_000;
/// Time after which a connection that has kept messages and reads none is closed, in ns. Its socket is full by then: some hundred messages
/// are unread.
pub(crate) const UNREAD_NS: u64 = 2_000_000_000;
/// Memory of a kept message besides its own bytes, in bytes.
pub(crate) const KEPT_BYTES: usize = 56;
/// Number of descriptors that are neither connections nor closed for them: sockets, timers, files that are open for a moment.
pub(crate) const OWN_FDS: usize = 48;
/// Largest number of lines that wait to be written to the log; further ones are only counted.
pub(crate) const LINES_MAX: usize = 1_024;
/// Largest number of lines of the log that one user may cause within [`USER_LINES_NS`].
pub(crate) const USER_LINES_MAX: u32 = 40;
/// Interval of [`USER_LINES_MAX`], in ns.
pub(crate) const USER_LINES_NS: u64 = 10_000_000_000;
/// Size at which a log file is put aside, in bytes; the one put aside before is removed then.
pub(crate) const LOG_FILE_MAX_BYTES: u64 = 1 << 20;
/// Longest time that the daemon waits at its end for the remaining writes, in ms.
pub(crate) const WRITER_END_MS: u64 = 1_000;
/// Delay between a change of state that is kept over a restart and its write, in ns, so that further changes are written with it.
pub(crate) const REMEMBER_NS: u64 = 20_000_000;
/// Largest number of programs that have left and may come back and whose settings are kept; the oldest ones are forgotten.
pub(crate) const ABSENT_MAX: usize = 1_000;
/// Largest file with the state set at run time that is read, in bytes: a thousand programs.
pub(crate) const STATE_MAX_BYTES: u64 = 1 << 20;
/// Time without a decision from which on it is reported to the operator, in ns. Programs go on without the daemon after twice that.
pub(crate) const STALL_NS: u64 = 500_000_000;
/// Longest time without sleep, in ns, for which the loop runs before all ordinary threads of the machine: its pieces of work take well
/// below that, and no program notices being kept off a processor for so long now and then.
pub(crate) const BUSY_MOST_NS: u64 = 100_000_000;
/// Shortest wait that counts as sleep of the loop, in ns.
pub(crate) const SLEPT_NS: u64 = 50_000;
/// Shortest time between two complaints in the log, in ns: events that strangers cause must not fill it.
pub(crate) const LOG_NS: u64 = 1_000_000_000;
/// Longest time that a client may take to answer a question, in ns.
pub(crate) const ANSWER_NS: u64 = 1_000_000_000;
/// Largest number of levels of cgroups that count for a program: each is a file that is read when the program attaches.
pub(crate) const CGROUPS_MAX: usize = 16;
/// Largest number of ancestors of a process that are read.
pub(crate) const ANCESTORS_MAX: usize = 32;
/// Duration from which on the release of a stranger's descriptor is nudged, and again each time, in ns.
pub(crate) const NUDGE_NS: u64 = 5_000_000;
/// Time after which a thread that is blocked by one release is given up, in ns.
pub(crate) const LOST_NS: u64 = 1_000_000_000;
/// Largest number of threads given up at the same time.
pub(crate) const LOST_MAX: usize = 4;
/// Number of descriptors waiting to be closed from which on no more are received and no more connections accepted.
pub(crate) const QUEUED_MAX: usize = 256;

// ---- An operator's own scheduler -----------------------------------------------------------------------------------------

/// Time after which an answer of an operator's scheduler counts as missing, in ns.
pub(crate) const DEADLINE_NS: u64 = 100_000_000;
/// Time after which the load of an operator's library counts as failed, in s.
pub(crate) const LOAD_S: i64 = 5;
/// Limits of the time after which an operator's scheduler is asked again, in µs, whatever it answers.
pub(crate) const AGAIN_US: (u64, u64) = (1_000, 3_600_000_000);
/// Interval at which nice values are read, in ns, while a policy uses them: the kernel alone is told of `renice`.
pub(crate) const NICE_NS: u64 = 100_000_000;
/// Interval at which limits and reserves of memory follow what programs hold, in ns, while there are any: others see it in the memory that
/// is free for them. A program that asks for memory is answered by what is held then.
pub(crate) const MEMORY_NS: u64 = 250_000_000;

// ---- Pools ---------------------------------------------------------------------------------------------------------------

/// Time slice of a pool's channel group, in µs, equal to that of a single best-effort program: once an urgent program is ready, the pool's
/// commands in flight are cut after this time. Without an urgent program it cuts nothing. On an H200 an urgent launch waits up to 720 µs
/// for a slice of 500.
pub(crate) const POOL_TIMESLICE_US: u64 = SHORT_SLICE_US;
/// Time slice of an inner pool's channel group, in µs: that of a program by itself. The pool takes turns only with contexts outside, whose
/// gates are closed while an urgent program inside works.
pub(crate) const POOL_INNER_TIMESLICE_US: u64 = 2_000;
/// Minutes of work on a GPU without a fault after which a program is proven.
pub(crate) const POOL_PROVEN_MINUTES: u32 = 10;
/// In-flight budget of a pooled program, in µs: what is in flight when an urgent program comes is cut into slices of the pool,
/// each of which costs that one two switches of contexts, 0.4 ms on an H200. The programs need no switch among each other: with
/// 300 they do as much as with 1000, kernels of 10 µs 10 % more than with 100. From an urgent launch to its kernel it takes as
/// long with each of these.
pub(crate) const POOL_BUDGET_US: u32 = 400;
/// Largest number of processes in a pool: an MPS server has room for 48 contexts on a device (CUDA 13.0), and each process makes one.
pub(crate) const POOL_MEMBERS_MAX: usize = 48;
/// Time after which a pool that does not serve is given up, in ns. A server starts in 0.3 s on an H200, later where the driver is not
/// loaded.
pub(crate) const POOL_START_NS: u64 = 15_000_000_000;
/// Interval at which a pool that starts, or that may end, is polled, in ns.
pub(crate) const POOL_LOOK_NS: u64 = 10_000_000;
/// Time after which a pool without programs ends, in ns: the next program of a script still finds it.
pub(crate) const POOL_LINGER_NS: u64 = 2_000_000_000;
/// Time for which a fault may come after a program of the pool ended in the midst of its work, in ns (143 to 261 ms on an H100); no other
/// program joins the pool meanwhile.
pub(crate) const POOL_DOUBT_NS: u64 = 400_000_000;
/// Time after a program of the pool ended in the midst of its work in which a fault counts against no program, in ns: a program that is
/// killed in a long kernel breaks the pool, and the log names one that lives.
pub(crate) const POOL_BLAME_NS: u64 = 3_000_000_000;
/// Time for which a user gets no pool, in ns, after the user's pool could not be started, or has refused two programs within this time:
/// each attempt keeps a program waiting, or ends it.
pub(crate) const POOL_RETRY_NS: u64 = 600_000_000_000;
/// Largest size of an MPS daemon's log on disk, in bytes; it writes ten lines for each client.
pub(crate) const POOL_LOG_MAX_BYTES: u64 = 1 << 20;
/// Largest size of the files in a pool's folder together, in bytes, beyond which the pool ends and the folder is cleared: MPS leaves two logs
/// there, of some 100 bytes for each program.
pub(crate) const POOL_FOLDER_MAX_BYTES: u64 = 16 << 20;
/// Largest number of files and folders in a pool's folder, likewise: MPS makes some ten.
pub(crate) const POOL_FOLDER_ENTRIES_MAX: usize = 1_024;
/// Largest number of folders in one another in a pool's folder, likewise: MPS makes none.
pub(crate) const POOL_FOLDER_LEVELS_MAX: usize = 8;
/// Interval at which a keeper looks at its pool's folder, in ms: in that time a user can write some 100 MiB.
pub(crate) const POOL_FOLDER_LOOK_MS: i64 = 250;
/// Longest time for which a keeper removes what is in a pool's folder, in ms: a program waits for its pool meanwhile. The next keeper goes on.
pub(crate) const POOL_REMOVAL_MS: u64 = 2_000;
/// Length of a kernel from which on a program gets a context of its own from its next start, in µs: beside it, shares come in turns of
/// whole kernels, and if it were killed in the midst of one it would take the pool along.
pub(crate) const POOL_LONG_US: u64 = 10_000;
/// Number of pools ended by a program's faults after which it gets a context of its own.
pub(crate) const FAULTS_MAX: u32 = 2;
/// Largest number of programs of a user that are remembered as unsuitable; more are not worth a list.
pub(crate) const PROGRAMS_MAX: usize = 100;
/// Largest list of them that is read, in bytes: that of a thousand users.
pub(crate) const UNSUITABLE_MAX_BYTES: u64 = 128 << 20;
/// Longest name of a program in the list, in bytes.
pub(crate) const PROGRAM_MAX_BYTES: usize = 1_024;
/// Largest number of reasons that are remembered as reported to users, so that each is reported once; then all are forgotten.
pub(crate) const POOL_TOLD_MAX: usize = 1_000;

// ---- Faults --------------------------------------------------------------------------------------------------------------

/// Largest number of caught panics of a thread that wait to be reported.
pub(crate) const FAULTS_WAITING_MAX: usize = 64;

// ---- Trust ---------------------------------------------------------------------------------------------------------------

/// Interval at which the work of a program that may prove itself is polled, in ns: a minute, which counts if the device worked for the
/// program.
pub(crate) const TRUST_LOOK_NS: u64 = 60_000_000_000;
/// Distance from which on minutes of several processes of one program count as different, in ns: a little less than the time between two
/// polls of the same process.
pub(crate) const PROVEN_MINUTE_NS: u64 = 55_000_000_000;
/// Number of programs that are polled in one piece of work: some µs each; a thread does the rest.
pub(crate) const TRUST_PIECE: usize = 16;
/// Longest time that a process that asks for a pool waits for the facts about it, in ns: reading a thousand files' numbers takes some 10
/// ms. Then the process counts as not proven.
pub(crate) const TRUST_WAIT_NS: u64 = 1_000_000_000;
/// Largest number of tasks that wait for the thread. Further ones are not done: those programs count as not proven, and their minutes do
/// not count.
pub(crate) const TRUST_QUEUE: usize = 1_024;
/// Largest part of the kernel's list of a process's mappings that is read, in bytes: 60,000 mappings. A PyTorch program has some 3,000.
pub(crate) const TRUST_MAPS_MAX_BYTES: u64 = 4 << 20;
/// Largest number of files that a program may consist of: PyTorch with its libraries has some 400.
pub(crate) const TRUST_FILES_MAX: usize = 1_024;
/// Largest size of the paths of these files together, in bytes.
pub(crate) const TRUST_PATHS_MAX_BYTES: usize = 256 << 10;
/// Number of first bytes of a command line that are searched for a script.
pub(crate) const TRUST_COMMAND_MAX_BYTES: u64 = 16 << 10;
/// Time between two writes of new facts, in ns; after a fault they are written at once.
pub(crate) const PROVEN_WRITE_NS: u64 = 10_000_000_000;
/// Largest number of programs of a user that are remembered.
pub(crate) const PROVEN_PROGRAMS_MAX: usize = 32;
/// Largest size of the records of a user, in bytes: 32 PyTorch programs.
pub(crate) const PROVEN_USER_MAX_BYTES: usize = 2 << 20;
/// Largest number of known programs of all users together: choosing the one to remove reads all of them.
pub(crate) const PROVEN_ALL_MAX: usize = 4_096;
/// Largest size of the records of all users together, in bytes.
pub(crate) const PROVEN_ALL_MAX_BYTES: usize = 16 << 20;
/// Part of a program's bursts from which on the device counts as its bottleneck in a pool, in percent: others stretch its kernels there.
pub(crate) const PROVEN_INSIDE_PERCENT: u32 = 75;

// ---- Accounting ----------------------------------------------------------------------------------------------------------

/// Interval at which the unattached use of a device is measured, in ns, where its driver may report it: equal to that of the driver's
/// polls.
pub(crate) const MEASURE_NS: u64 = DEVICE_LOOK_NS;
/// Interval at which records of usage are written while programs use devices, in ns: a daemon that is killed loses no more than that.
pub(crate) const USAGE_NS: u64 = 30_000_000_000;
/// Largest number of pieces that wait for the thread that writes and sums records of usage.
pub(crate) const USAGE_QUEUE: usize = 64;
/// Size at which a file of records is put aside, in bytes, with one record for each hour of a program: 4,000 records before that.
pub(crate) const USAGE_FILE_MAX_BYTES: u64 = 1 << 20;
/// Largest size of a user's files of older records together, in bytes; also limited in number. The oldest is removed. Ten programs that are
/// always busy leave 5 MB a year.
pub(crate) const USAGE_ASIDE_MAX_BYTES: u64 = 8 << 20;
/// Largest size of the files of all users together, in bytes: beyond it, the user with most loses the oldest.
pub(crate) const USAGE_ALL_MAX_BYTES: u64 = 128 << 20;
/// Largest number of users with files of their own; records of further users go to one common file.
pub(crate) const USAGE_USERS_MAX: usize = 1_000;
/// Largest number of a user's files that are put aside, see [`USAGE_ASIDE_MAX_BYTES`].
pub(crate) const USAGE_ASIDE_MAX: usize = 200;
/// Longest line of such a file that is read, in bytes.
pub(crate) const USAGE_LINE_MAX_BYTES: u64 = 4_096;
/// Longest name of a program, job or container in a record, in bytes.
pub(crate) const USAGE_NAME_MAX_BYTES: usize = 128;
/// Number of rows of an answer on usage; further ones are added up in one.
pub(crate) const USAGE_ROWS_MAX: usize = 1_000;

// ---- Metrics -------------------------------------------------------------------------------------------------------------

/// Largest number of series of programs unless configured: each has some fifteen samples.
pub(crate) const METRICS_PROGRAMS_MAX: usize = 1_000;
/// Largest number of histograms of one kind, by class and device: five classes on sixteen devices, and some that programs make up. Beyond,
/// the user with most loses the least recently used one.
pub(crate) const METRICS_HISTOGRAMS_MAX: usize = 400;
/// Largest number of histograms that the programs of one user were the first to use.
pub(crate) const METRICS_USER_HISTOGRAMS_MAX: usize = 80;
/// Time for which a series without programs is still served, in ns: as long as Prometheus takes a sample for current.
pub(crate) const METRICS_KEPT_NS: u64 = 300_000_000_000;
/// Largest number of programs that are gone and that no monitor has read yet.
pub(crate) const METRICS_GONE_MAX: usize = 1_000;
/// Number of clients that are collected in one piece of work: some 0.1 ms.
pub(crate) const METRICS_PIECE: usize = 100;
/// Longest time that a decision can count as having taken by a program's word, in ns.
pub(crate) const METRICS_DECISION_MAX_NS: u64 = 1_000_000_000;
/// Time after which the daemon tries again to listen for monitors, in ns.
pub(crate) const METRICS_AGAIN_NS: u64 = 10_000_000_000;
/// Number of threads that answer monitors.
pub(crate) const METRICS_THREADS: usize = 4;
/// Time within which the head of a request must arrive, in ms. Its size is limited, too.
pub(crate) const METRICS_HEAD_MS: u64 = 1_000;
/// Largest head of a request, in bytes.
pub(crate) const METRICS_HEAD_MAX_BYTES: usize = 8 << 10;
/// Time after which a snapshot for monitors counts as missing, in ms.
pub(crate) const METRICS_PATIENCE_MS: u64 = 2_000;
/// Time after which an answer that the monitor does not take is given up, in ms.
pub(crate) const METRICS_WRITE_MS: u64 = 5_000;

// ---- Configuration -------------------------------------------------------------------------------------------------------

/// Largest configuration file, in bytes.
pub(crate) const CONFIG_MAX_BYTES: u64 = 4 << 20;
/// Longest wait for the name service, for all accounts of a configuration together, in ms.
pub(crate) const ACCOUNTS_MS: u64 = 2_000;
/// Interval at which accounts that are not known are looked up again, in ns: a directory may start after the daemon.
pub(crate) const ACCOUNTS_AGAIN_NS: u64 = 60_000_000_000;
/// Number of lookups without an end from which on no further one begins.
pub(crate) const ACCOUNTS_STUCK_MAX: usize = 4;
