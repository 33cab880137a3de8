//! Messages between a client (an application, or the command) and the daemon.
//!
//! One message is one packet of a `SOCK_SEQPACKET` unix socket, encoded with postcard, at most [`MAX_PACKET`] bytes.
//! A client opens with [`ClientMsg::Hello`]; the daemon answers [`DaemonMsg::Welcome`] or [`DaemonMsg::Refused`].
//! A command opens with [`ClientMsg::Control`] and reads packets until [`DaemonMsg::End`] or [`DaemonMsg::Refused`].
//!
//! Three things are equal in every version, so that two versions can tell that they differ: `Hello` and `Control` come first and begin with
//! the version ([`version_of`]), and `Refused` with its line is the first variant of the daemon's messages.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::account::Amount;
use crate::bounded::{DESCRIBED_MAX, PARAMS_MAX, TARGETS_MAX, WORDS_MAX, at_most};
use crate::device::DeviceInfo;
use crate::domains::DomainMode;
use crate::hint::Hints;
use crate::trace::{Burst, Record};
use crate::usage::{UsageBy, UsageRow};

pub use crate::info::*;
pub use crate::platform::{Levels, Platform};

/// Largest packet that either side sends or accepts, in bytes.
pub const MAX_PACKET: usize = 64 * 1024;

/// Largest number of commands of a threshold or a batch size.
pub const COMMANDS_MAX: u32 = 1 << 20;

/// Options of a program that attaches, from `xsched run` or the program's environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramOptions {
    /// Priority, -255..=255 or [`crate::class::PRIORITY_NEVER`]; none = the daemon's rules or default.
    pub priority: Option<i32>,
    /// Hints for the policy; absent = the daemon's rules or defaults.
    pub hints: Hints,
    /// Preemption level 1..=3 to force; none = automatic.
    pub level: Option<u8>,
    /// Commands in flight under contention; none = automatic.
    pub threshold: Option<u32>,
    /// Commands between two completion fences under contention; none = automatic.
    pub batch: Option<u32>,
    /// Job of the program: programs with the same job are granted on all their devices together or not at all.
    pub job: Option<String>,
    /// Treatment of launches that come from vendors' libraries; none = the daemon's rules or default.
    pub domains: Option<DomainMode>,
    /// Largest amount of memory of the program on each device, all of its processes together; none = the daemon's rules or no limit.
    pub memory_limit: Option<Amount>,
    /// Memory of each device that less urgent programs leave to this one; none = the daemon's rules or nothing.
    pub memory_reserve: Option<Amount>,
    /// True if its memory can leave the device (`--memory swap`).
    pub memory_swap: bool,
    /// Time without launches after which its memory leaves by itself, in seconds; none = the daemon's rules or never.
    pub memory_idle_s: Option<u32>,
    /// Command line of the program at its start, as [`crate::program::cut`] cuts it.
    #[serde(deserialize_with = "at_most::<WORDS_MAX, _, _>")]
    pub command: Vec<String>,
    /// Command line of the program now, where that differs: the program has given itself a title.
    pub title: Option<String>,
    /// Resolved path of the program's executable. Counts only where the daemon belongs to the program's own user and may not look up the
    /// path itself.
    pub exe: String,
}

/// Message of a client to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ClientMsg {
    /// First packet of an application. Carries descriptors: the segment memfd, an eventfd that the client writes when a state word changed,
    /// and the client's own pidfd, unless it can make none (seccomp, Valgrind, gVisor): the daemon then asks the kernel which process has
    /// connected.
    Hello {
        /// Is [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// Options of the program.
        options: ProgramOptions,
    },
    /// First packet of a command.
    Control {
        /// Is [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// Request of the command.
        request: Request,
    },
    /// A suspension unit was created.
    GroupAdd {
        /// Index of the group's [`crate::segment::GroupSlot`].
        slot: u16,
        /// Device key, e.g. `pci:0000:41:00.0`, `sim:0`, `cpu:host`.
        device: String,
        /// Vendor interface.
        platform: Platform,
        /// Difference to the program's priority, in steps of ten (see [`crate::class::queue_priority`]).
        priority_steps: i32,
        /// Absolute priority in place of the difference, set by `hint --queue`.
        priority_fixed: Option<i32>,
        /// True for a group of the system domain: it comes before others of the same priority in its process.
        system: bool,
        /// Levels that this device is capable of.
        levels: Levels,
        /// Sharing of the device by the contexts behind the group.
        sharing: Sharing,
    },
    /// A suspension unit was removed.
    GroupRemove {
        /// Slot of the group.
        slot: u16,
    },
    /// An XQueue was created. Not answered, since a program may have a thousand.
    QueueAdd {
        /// Index of the queue's [`crate::segment::QueueSlot`].
        slot: u16,
        /// Slot of its group.
        group: u16,
    },
    /// An XQueue was removed.
    QueueRemove {
        /// Slot of the XQueue.
        slot: u16,
    },
    /// Answer to [`DaemonMsg::Describe`].
    Description {
        /// Token of the question.
        token: u64,
        /// True if further packets of the same answer follow.
        more: bool,
        /// Lines of this packet, [`DESCRIBED_MAX`] at most.
        #[serde(deserialize_with = "at_most::<DESCRIBED_MAX, _, _>")]
        lines: Vec<Described>,
    },
    /// A group is capable of other levels than it announced.
    Levels {
        /// Slot of the group.
        slot: u16,
        /// Levels as in [`ClientMsg::GroupAdd`].
        levels: Levels,
    },
    /// The program gives hints on one of its groups.
    GroupHint {
        /// Slot of the group.
        slot: u16,
        /// Priority of the group, -255..=255, in place of the one it was added with; none = derived from the program's own.
        priority: Option<i32>,
        /// Values for the policy; absent = unchanged.
        hints: Hints,
    },
    /// The program gives hints on all of its groups.
    ProgramHint {
        /// Values for the policy; absent = unchanged.
        hints: Hints,
    },
    /// The program uses memory of a device. Answered by [`DaemonMsg::MemoryAnswer`] with number 0 once its limits are in force.
    MemoryDevice {
        /// Index of the device's [`crate::account::MemorySlot`].
        slot: u16,
        /// Device key, as in [`ClientMsg::GroupAdd`].
        device: String,
        /// Memory of the device, in bytes.
        capacity_bytes: u64,
    },
    /// The program is about to allocate more than it may. Answered by [`DaemonMsg::MemoryAnswer`].
    MemoryAsk {
        /// Slot of the device.
        slot: u16,
        /// Number of the question, greater than 0.
        number: u32,
        /// Size of the allocation, in bytes.
        bytes: u64,
        /// Room in bytes that the driver lacked for it, which has to be made; 0 = the driver was not asked.
        lacking: u64,
        /// True for memory of the process that has left the device and is to come back.
        returns: bool,
        /// True for a part of such memory, for which the process asks again: the answer comes at once, and nobody leaves for it.
        part: bool,
    },
    /// The program wants to know what it holds of a device: the driver's own figure of it is to be taken into account. Answered by
    /// [`DaemonMsg::MemoryAnswer`] once the words rest on a figure that is newer than the question, or at once where no driver tells.
    MemoryMeasure {
        /// Slot of the device.
        slot: u16,
        /// Number of the question, greater than 0.
        number: u32,
    },
    /// An allocation of the program has failed for want of memory. Not each one is told: [`crate::account::MemorySlot::refused`] counts.
    MemoryRefused {
        /// Slot of the device.
        slot: u16,
        /// Size of the allocation, in bytes.
        bytes: u64,
        /// True if the driver has refused it; false for a limit or a reserve.
        by_driver: bool,
    },
    /// A piece of the memory has left as [`DaemonMsg::MemoryMove`] orders, and the others follow one after the other. The words of the slot
    /// are up to date.
    MemoryLeaving {
        /// Number of the order.
        number: u32,
    },
    /// Answer to [`DaemonMsg::MemoryMove`], and news of a move that nobody ordered. The words of the slot are up to date.
    MemoryMoved {
        /// Slot of the device.
        slot: u16,
        /// Number of the order; 0 = there was none.
        number: u32,
        /// Reason in one line for which the order is not carried out; none = it is.
        why: Option<String>,
    },
}

/// Order to a program whose memory can leave its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryOrder {
    /// Memory leaves, and stays away until thawed.
    Freeze,
    /// Frozen memory comes back.
    Thaw,
    /// Memory leaves, to make room for others, until the program needs it.
    Leave,
    /// A part of the memory goes to the host, to make room for others. The program goes on with it there.
    Lend {
        /// Size of the part at least, in bytes.
        bytes: u64,
    },
}

/// Line of a program's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Described {
    /// Hooked function that was resolved.
    Function {
        /// Name of the function.
        name: String,
        /// Address of the real function.
        address: u64,
        /// File that owns the address.
        file: String,
        /// Way in which it was found, e.g. `next`, `caller`, `handle`.
        via: String,
    },
    /// Queue of the vendor interface and the XQueue over it.
    Queue {
        /// Handle of the vendor's queue.
        handle: u64,
        /// Slot of the XQueue.
        slot: u16,
        /// Slot of the queue's group.
        group: u16,
    },
    /// Note for an administrator.
    Note {
        /// Text, in one line.
        text: String,
    },
}

/// Request of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The answer is [`DaemonMsg::Daemon`], then [`DaemonMsg::Device`] for each device and [`DaemonMsg::Program`] for each program.
    Ps,
    /// Answered as [`Request::Ps`], with programs that ended lately.
    PsAll,
    /// The answer is [`DaemonMsg::Policy`] for each policy.
    PolicyList,
    /// Changes the policy while programs run.
    PolicySet {
        /// Name of a policy, in upper or lower case.
        name: String,
        /// Parameters of the policy by name, [`PARAMS_MAX`] at most; parameters left out have their defaults.
        #[serde(deserialize_with = "at_most::<PARAMS_MAX, _, _>")]
        params: Vec<(String, String)>,
        /// Key of the device that gets the policy; none = all devices.
        device: Option<String>,
    },
    /// Changes values of programs or queues. Absent fields stay. Answered by one [`DaemonMsg::Changed`] for each program.
    Hint {
        /// Programs and queues, at most [`TARGETS_MAX`].
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
        /// New priority.
        priority: Option<i32>,
        /// New values for the policy.
        hints: Hints,
        /// New preemption level.
        level: Option<u8>,
        /// New number of commands in flight; 0 = automatic.
        threshold: Option<u32>,
        /// New number of commands between two completion fences; 0 = automatic.
        batch: Option<u32>,
    },
    /// The active window of the user's session belongs to this process; none = to no known process.
    ActiveWindow {
        /// Process id.
        pid: Option<u32>,
    },
    /// Keeps programs off their devices until resumed. Answered by one [`DaemonMsg::Changed`] each.
    Suspend {
        /// Programs and queues, at most [`TARGETS_MAX`].
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
    },
    /// Has the memory of programs leave their devices, and suspends them, until thawed. Answered by one [`DaemonMsg::Changed`] each.
    Freeze {
        /// Programs, at most [`TARGETS_MAX`].
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
    },
    /// Undoes [`Request::Freeze`].
    Thaw {
        /// Programs, at most [`TARGETS_MAX`].
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
    },
    /// Undoes [`Request::Suspend`].
    Resume {
        /// Programs and queues, at most [`TARGETS_MAX`].
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
    },
    /// Asks a program to describe itself; answered by [`DaemonMsg::Description`].
    Describe {
        /// Process id.
        pid: u32,
    },
    /// The requesting process is about to become a program: the daemon does not end for lack of clients while that process, or a client of
    /// its job, exists.
    Announce {
        /// Job as in [`ProgramOptions::job`].
        job: String,
        /// Name of the program that it will run, equal at each start of the same program: the daemon keeps what it learns of the program
        /// under this name.
        program: String,
    },
    /// The requesting process is about to use a GPU, and asks for a place in its user's pool. Answered by [`DaemonMsg::Pool`] or
    /// [`DaemonMsg::ByTime`] once the pool exists, which may take seconds.
    JoinPool {
        /// Job as in [`ProgramOptions::job`].
        job: Option<String>,
        /// Priority as in [`ProgramOptions::priority`].
        priority: Option<i32>,
        /// True if it asks for the pool even where the policy takes turns, or the program is known to be unsuitable for a pool.
        insists: bool,
        /// Reason for which the process itself knows that it must not be in a pool, in one line.
        obstacle: Option<String>,
    },
    /// The requesting process was in the pool of this pipe directory, and the pool's MPS server has refused it.
    PoolRefused {
        /// Pipe directory as in [`DaemonMsg::Pool`].
        pipe: String,
    },
    /// A GPU fault of the requesting process has ended its context, in which no other process had work.
    Faulted,
    /// Report from the server of a private MPS daemon: the result of setting the time slice of its channel group on one device.
    PoolServer {
        /// Number of the pool, from the server's environment.
        pool: u64,
        /// Reason for which the pool cannot exist, in one line; none = the slice is in force.
        fault: Option<String>,
    },
    /// Ends the daemon; programs go on unscheduled.
    Stop,
    /// Asks for time on devices, of the requesting user's programs, or of all for root. Answered by one [`DaemonMsg::Usage`] each.
    Usage {
        /// Begin of the time asked for, in ms since 1970; time recorded in one entry with earlier time counts too.
        since_ms: u64,
        /// Key that usage is summed by.
        by: UsageBy,
    },
    /// Asks for the latest decisions. Answered by [`DaemonMsg::TraceHead`], groups, records.
    Trace {
        /// [`Head::next`] of the last answer; 0 = from the oldest record that the daemon still has.
        from: u64,
        /// Begin of the time asked for, CLOCK_MONOTONIC in µs.
        since_us: u64,
    },
    /// Follows programs of the requesting user, or of all for root, until the connection ends, and asks for their bursts. Answered by
    /// [`DaemonMsg::Bursts`].
    Record {
        /// Process ids, [`TARGETS_MAX`] at most; none = all programs.
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        pids: Vec<u32>,
        /// Number of the first burst that is wanted, as in the last answer; 0 = from the first one on.
        from: u64,
        /// The recording ends: bursts that go on are cut and told as well.
        ends: bool,
    },
    /// Has the configuration read again. Answered by one [`DaemonMsg::Note`] for each oddity in it; refused with the fault of a wrong one.
    Reload,
}

/// Target of a change: programs that the requesting user may control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// All programs of a process. Where the process is not attached: the attached ones that it started, directly or not.
    Pid(u32),
    /// A process, and all processes that it started.
    Tree(u32),
    /// Programs of a job.
    Job(String),
    /// Programs of a user, by user id.
    User(u32),
    /// All programs.
    All,
    /// XQueue `q<N>`, which moves to a group of its own if its priority differs.
    Queue(u64),
}

/// Message of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DaemonMsg {
    /// The request is refused, for this reason: [`Error::Input`] or [`Error::Environment`].
    Refused(Error),
    /// Answer to [`ClientMsg::Hello`], with one descriptor: the heartbeat page.
    Welcome {
        /// Is [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// Number of this session at the daemon.
        session: u64,
        /// Priority of the program, after the operator's rules and limits.
        priority: i32,
        /// Treatment of launches that come from vendors' libraries, after the operator's rules and limits.
        domains: DomainMode,
        /// True if each stream has to be a group of its own, because an operator's scheduler decides stream by stream.
        streams_apart: bool,
    },
    /// Answer to [`ClientMsg::GroupAdd`]: from now on the gate word is in force.
    GroupAdded {
        /// Slot of the group.
        slot: u16,
        /// Number of the group, as in `g<N>`.
        id: u64,
        /// Effective priority of the group.
        priority: i32,
        /// Name of the policy in force on the group's device.
        policy: String,
    },
    /// Asks the client to move a queue to a group of this priority (`hint --queue`).
    QueuePriority {
        /// Slot of the queue.
        slot: u16,
        /// Absolute priority.
        priority: i32,
    },
    /// Level 3: asks the client to interrupt the running commands of a group, or to let them go on.
    Interrupt {
        /// Slot of the group.
        slot: u16,
        /// True to interrupt the running commands, false to let them continue.
        on: bool,
    },
    /// Level 3 where the hardware has time slices: asks the client to set the time slice of the group's context.
    Timeslice {
        /// Slot of the group.
        slot: u16,
        /// Time slice, in µs.
        us: u64,
    },
    /// Page on which an urgent program of the same hardware context reports how its queues keep up; carries its descriptor. See
    /// [`crate::backlog`].
    Backlog {
        /// Bit of the page in [`crate::segment::GroupSlot::yields_to`].
        page: u8,
        /// Number of the page, greater than those of all pages before it (modulo 2^32).
        epoch: u32,
        /// True for this program's own page, which it writes.
        own: bool,
    },
    /// The priority of the program has changed since [`DaemonMsg::Welcome`].
    Priority {
        /// New priority, after the operator's rules and limits.
        priority: i32,
    },
    /// Note for the program's user, in one line, such as a hint that the policy in force ignores.
    Note {
        /// Text, in one line.
        text: String,
    },
    /// Asks the program to describe itself, answered by [`ClientMsg::Description`].
    Describe {
        /// Token to be given back.
        token: u64,
    },
    /// Part of the answer to [`Request::Ps`].
    Daemon(DaemonInfo),
    /// Part of the answer to [`Request::Ps`].
    Program(Box<ProgramInfo>),
    /// Part of the answer to [`Request::PolicyList`].
    Policy(PolicyInfo),
    /// Part of the answer to [`Request::Describe`].
    Description(Vec<Described>),
    /// Answer to [`Request::JoinPool`]: a context on each device is reserved for the process in the pool of this pipe directory.
    Pool {
        /// Value of `CUDA_MPS_PIPE_DIRECTORY` for the pool.
        pipe: String,
        /// Note for the user, in one line.
        note: Option<String>,
        /// True for an urgent program, which comes before others in the pool.
        is_urgent: bool,
    },
    /// Answer to [`Request::JoinPool`]: the process makes a context of its own.
    ByTime {
        /// Reason, in one line, where the user should know it.
        why: Option<String>,
    },
    /// Part of the answer to a request that changes programs: the result for one program.
    Changed(Changed),
    /// End of an answer; the request was fulfilled.
    End,
    /// Part of the answer to [`Request::Ps`].
    Device(Box<DeviceInfo>),
    /// Part of the answer to [`Request::Ps`]: further queues of the preceding program, each with the group that it belongs to.
    /// [`crate::ask::ask`] adds them to that program.
    MoreQueues(Vec<(String, QueueInfo)>),
    /// Part of the answer to [`Request::Usage`].
    Usage(UsageRow),
    /// First part of the answer to [`Request::Trace`].
    TraceHead(Head),
    /// Part of the answer to [`Request::Trace`]: groups that occur in the records.
    TraceGroups(Vec<TracedGroup>),
    /// Part of the answer to [`Request::Trace`]: records, in order.
    TraceRecords(Vec<Record>),
    /// Answer to [`Request::Record`].
    Bursts {
        /// Number to ask for the bursts that follow this answer.
        next: u64,
        /// Number of bursts that were forgotten before they were asked for.
        lost: u64,
        /// Bursts, in the order of their ends.
        bursts: Vec<Burst>,
    },
    /// Part of the answer to [`Request::Ps`]: program that the daemon has refused.
    RefusedProgram(RefusedProgram),
    /// Comes before [`DaemonMsg::Refused`] where the refusal is for want of room, which may come: a program asks again then.
    AskAgain {
        /// Time from now to the next attempt, in ms.
        after_ms: u32,
    },
    /// Answer to [`ClientMsg::MemoryAsk`], [`ClientMsg::MemoryMeasure`] and [`ClientMsg::MemoryDevice`]. The words of the slot are up to date.
    MemoryAnswer {
        /// Slot of the device.
        slot: u16,
        /// Number of the question; 0 = the device is known.
        number: u32,
        /// True if the allowance is large enough for the allocation now.
        granted: bool,
        /// True if the memory of the host may take the place of what is refused: other programs have the room.
        on_host: bool,
        /// Holders of the memory, in one line, with the limit that was met, if one was. It comes with each answer to a question: a program
        /// whose driver refuses an allocation asks for it, too.
        why: Option<String>,
    },
    /// Room is being made for a question: the answer takes longer.
    MemoryWait {
        /// Number of the question.
        number: u32,
    },
    /// Has the program's memory on a device leave or come back. Answered by [`ClientMsg::MemoryMoved`].
    MemoryMove {
        /// Slot of the device.
        slot: u16,
        /// Number of the order, greater than 0.
        number: u32,
        /// The order.
        order: MemoryOrder,
    },
}

/// Program that the daemon has refused, because of a limit: it runs unscheduled, and asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedProgram {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Name of the program, as in [`ProgramInfo::name`]; empty if it is not known.
    pub name: String,
    /// Reason, in one line.
    pub why: String,
    /// Time since the first refusal, in s.
    pub since_s: u64,
}

/// Result of a change of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Process id.
    pub pid: u32,
    /// Name of the program, as in [`ProgramInfo::name`].
    pub name: String,
    /// Values that the request names, with their state before and now: equal where nothing had to be done.
    pub values: Vec<ChangedValue>,
}

/// Value of a program that a command was to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedValue {
    /// Name of the value: `priority`, `state`, `level`, a hint.
    pub what: String,
    /// Value before the change.
    pub was: String,
    /// Value now.
    pub now: String,
}

/// Encodes a message into one packet.
///
/// # Errors
/// The packet would be larger than [`MAX_PACKET`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, Error> {
    let bytes =
        postcard::to_allocvec(message).map_err(|e| Error::environment(format!("cannot encode a message: {e}")))?;
    if bytes.len() > MAX_PACKET {
        return Err(Error::environment(format!(
            "a message of {} bytes is over the limit of {MAX_PACKET}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// Decodes one packet, all of it.
///
/// # Errors
/// The packet is no such message.
pub fn decode<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, Error> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(Error::environment(format!("malformed message: {} bytes too many", rest.len()))),
        Err(e) => Err(Error::environment(format!("malformed message: {e}"))),
    }
}

/// Version of the sender of a first packet, however little of the rest can be read; none = it is no first packet.
pub fn version_of(packet: &[u8]) -> Option<u32> {
    let (variant, rest): (u32, _) = postcard::take_from_bytes(packet).ok()?;
    let (version, _) = postcard::take_from_bytes(rest).ok()?;
    (variant < 2).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These bytes, by which versions recognise each other, never change.
    #[test]
    fn what_tells_versions_apart_is_the_same_in_all() {
        let options = ProgramOptions::default();
        assert_eq!(encode(&ClientMsg::Hello { version: 3, options }).unwrap()[..2], [0, 3]);
        assert_eq!(encode(&ClientMsg::Control { version: 3, request: Request::Ps }).unwrap()[..2], [1, 3]);
        let refused = DaemonMsg::Refused(Error::Environment("no".into()));
        assert_eq!(encode(&refused).unwrap(), [0, 1, 2, b'n', b'o']);
        assert_eq!(encode(&DaemonMsg::Refused(Error::Input("no".into()))).unwrap(), [0, 0, 2, b'n', b'o']);
        assert_eq!(version_of(&[0, 200, 1, 99, 98]), Some(200));
        assert_eq!((version_of(&[1, 7]), version_of(&[2, 7]), version_of(&[])), (Some(7), None, None));
    }

    #[test]
    fn messages_survive_the_wire_and_garbage_is_refused() {
        let m = ClientMsg::Hello {
            version: 1,
            options: ProgramOptions { priority: Some(-3), job: Some("j".into()), ..Default::default() },
        };
        let bytes = encode(&m).unwrap();
        assert_eq!(decode::<ClientMsg>(&bytes), Ok(m));
        assert!(decode::<ClientMsg>(&[bytes.as_slice(), &[0]].concat()).is_err(), "trailing byte");
        assert!(decode::<ClientMsg>(&bytes[..bytes.len() - 1]).is_err(), "cut short");
        assert!(decode::<ClientMsg>(&[0xff; 40]).is_err());
        assert!(decode::<ClientMsg>(&[]).is_err());
    }

    #[test]
    fn a_list_is_taken_up_to_its_bound_and_refused_beyond() {
        let packet = |entries: usize| {
            let request = Request::Suspend { targets: vec![Target::All; entries] };
            encode(&ClientMsg::Control { version: 1, request }).expect("it fits")
        };
        assert!(decode::<ClientMsg>(&packet(TARGETS_MAX)).is_ok());
        let why = decode::<ClientMsg>(&packet(TARGETS_MAX + 1)).expect_err("too many");
        assert!(why.to_string().contains("malformed"), "{why}");
    }

    #[test]
    fn a_string_that_claims_to_be_huge_is_refused_without_allocating_it() {
        // Bytes of GroupAdd (1), slot 0, and a string with a length of 2^62.
        assert!(decode::<ClientMsg>(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]).is_err());
    }
}
