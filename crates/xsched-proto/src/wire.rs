//! Messages between a client (an application, or the command) and the daemon.
//!
//! One message is one packet of a `SOCK_SEQPACKET` unix socket, encoded with postcard, at most [`MAX_PACKET`] bytes.
//! A client opens with [`ClientMsg::Hello`]; the daemon answers [`DaemonMsg::Welcome`] or [`DaemonMsg::Refused`].
//! A command opens with [`ClientMsg::Control`] and reads packets until [`DaemonMsg::End`] or [`DaemonMsg::Refused`].
//!
//! Three things are the same in every version, so that two versions understand that they are two: `Hello` and `Control` come first
//! and begin with the version ([`version_of`]), and `Refused` with its line comes first among what the daemon says.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::bounded::{DESCRIBED_MAX, PARAMS_MAX, TARGETS_MAX, WORDS_MAX, at_most};
use crate::device::DeviceInfo;
use crate::domains::DomainMode;
use crate::hint::Hints;
use crate::trace::Record;
use crate::usage::{UsageBy, UsageRow};

pub use crate::info::*;
pub use crate::platform::{Levels, Platform};

/// Largest packet either side sends or accepts, in bytes.
pub const MAX_PACKET: usize = 64 * 1024;

/// The most commands that a threshold or a batch size may name.
pub const COMMANDS_MAX: u32 = 1 << 20;

/// What a program asks for when it attaches; from `xsched run` or its environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramOptions {
    /// Priority, -255..=255 or [`crate::class::PRIORITY_NEVER`]; none = the daemon's rules or default.
    pub priority: Option<i32>,
    /// What is said for the policy; absent = the daemon's rules or defaults.
    pub hints: Hints,
    /// Preemption level 1..=3 to force; none = automatic.
    pub level: Option<u8>,
    /// Commands in flight while watched; none = automatic.
    pub threshold: Option<u32>,
    /// Commands after which room for others comes back, while watched; none = automatic.
    pub batch: Option<u32>,
    /// Programs with the same job are granted on all their devices together or not at all.
    pub job: Option<String>,
    /// What becomes of launches of vendors' libraries; none = the daemon's rules or default.
    pub domains: Option<DomainMode>,
    /// Its command line when it started, as [`crate::program::cut`] cuts it.
    #[serde(deserialize_with = "at_most::<WORDS_MAX, _, _>")]
    pub command: Vec<String>,
    /// Its command line now, where that is another: it has given itself a title.
    pub title: Option<String>,
    /// Resolved path of its executable. Counts only where the daemon is its own user's and may not look itself.
    pub exe: String,
}

/// From a client to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ClientMsg {
    /// First packet of an application. Carries descriptors: the segment memfd, an eventfd that the client writes when a state word
    /// changed, and its own pidfd, unless it can make none (seccomp, Valgrind, gVisor): the daemon then asks the kernel who has
    /// connected.
    Hello {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// What it asks for.
        options: ProgramOptions,
    },
    /// First packet of a command.
    Control {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// What it wants.
        request: Request,
    },
    /// A suspension unit came to be.
    GroupAdd {
        /// Index of its [`crate::segment::GroupSlot`].
        slot: u16,
        /// Device key, e.g. `pci:0000:41:00.0`, `sim:0`, `cpu:host`.
        device: String,
        /// Vendor interface.
        platform: Platform,
        /// Priority relative to the program's, in steps of ten (see [`crate::class::queue_priority`]).
        priority_steps: i32,
        /// Set by `hint --queue`: an absolute priority that replaces the relative one.
        priority_fixed: Option<i32>,
        /// Of the system domain: before others of the same priority in its process.
        system: bool,
        /// Levels this device can do.
        levels: Levels,
        /// How the contexts behind it share the device.
        sharing: Sharing,
    },
    /// It is gone.
    GroupRemove {
        /// Its slot.
        slot: u16,
    },
    /// An XQueue came to be. Not answered: a program may have a thousand.
    QueueAdd {
        /// Index of its [`crate::segment::QueueSlot`].
        slot: u16,
        /// Its group's slot.
        group: u16,
    },
    /// It is gone.
    QueueRemove {
        /// Its slot.
        slot: u16,
    },
    /// Answer to [`DaemonMsg::Describe`].
    Description {
        /// The token of the question.
        token: u64,
        /// Further packets of the same answer follow.
        more: bool,
        /// The lines of this packet, [`DESCRIBED_MAX`] at most.
        #[serde(deserialize_with = "at_most::<DESCRIBED_MAX, _, _>")]
        lines: Vec<Described>,
    },
    /// A group can do other levels than it said.
    Levels {
        /// Its slot.
        slot: u16,
        /// As in [`ClientMsg::GroupAdd`].
        levels: Levels,
    },
    /// What the program itself says of one of its groups.
    GroupHint {
        /// Its slot.
        slot: u16,
        /// Its priority, -255..=255, in place of what it was added with; none = what follows from the program's own.
        priority: Option<i32>,
        /// Values for the policy; absent = as they were.
        hints: Hints,
    },
    /// What the program itself says of all of its groups.
    ProgramHint {
        /// Values for the policy; absent = as they were.
        hints: Hints,
    },
}

/// One line of a program's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Described {
    /// A hooked function that was resolved.
    Function {
        /// Its name.
        name: String,
        /// Address of the real function.
        address: u64,
        /// File that owns the address.
        file: String,
        /// How it was found, e.g. `next`, `caller`, `handle`.
        via: String,
    },
    /// A queue of the vendor interface and the XQueue over it.
    Queue {
        /// The vendor's handle.
        handle: u64,
        /// Slot of the XQueue.
        slot: u16,
        /// Slot of its group.
        group: u16,
    },
    /// Something an administrator should know.
    Note {
        /// One line.
        text: String,
    },
}

/// A command's wish.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Answered by [`DaemonMsg::Daemon`], then one [`DaemonMsg::Device`] and one [`DaemonMsg::Program`] each.
    Ps,
    /// The same, with programs that ended lately.
    PsAll,
    /// Answered by one [`DaemonMsg::Policy`] each.
    PolicyList,
    /// Change the policy while programs run.
    PolicySet {
        /// A policy's name, in any case.
        name: String,
        /// Its parameters, by name, [`PARAMS_MAX`] at most; those left out have their defaults.
        #[serde(deserialize_with = "at_most::<PARAMS_MAX, _, _>")]
        params: Vec<(String, String)>,
        /// Key of the device that it is for; none = all.
        device: Option<String>,
    },
    /// Change what programs or queues are given. Absent fields stay. Answered by one [`DaemonMsg::Changed`] for each program.
    Hint {
        /// Programs and queues, [`TARGETS_MAX`] at most.
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
        /// New number of commands after which room comes back, 0 = automatic.
        batch: Option<u32>,
    },
    /// The active window of the user's session belongs to this process; none = to no process that is known.
    ActiveWindow {
        /// Process id.
        pid: Option<u32>,
    },
    /// Keep programs off their devices until resumed. Answered by one [`DaemonMsg::Changed`] each.
    Suspend {
        /// Programs and queues, [`TARGETS_MAX`] at most.
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
    },
    /// Undo [`Request::Suspend`].
    Resume {
        /// Programs and queues, [`TARGETS_MAX`] at most.
        #[serde(deserialize_with = "at_most::<TARGETS_MAX, _, _>")]
        targets: Vec<Target>,
    },
    /// Ask a program to describe itself; answered by [`DaemonMsg::Description`].
    Describe {
        /// Process id.
        pid: u32,
    },
    /// The process that asks is about to become a program: the daemon does not end for lack of clients while it, or
    /// a client of its job, is there.
    Announce {
        /// As in [`ProgramOptions::job`].
        job: String,
        /// What it will run, the same at each start of the same thing: what is learned of it is kept under this name.
        program: String,
    },
    /// The process that asks is about to touch a GPU, and would be in the pool of its user. Answered by
    /// [`DaemonMsg::Pool`] or [`DaemonMsg::ByTime`], once the pool is there: that may take seconds.
    JoinPool {
        /// As in [`ProgramOptions::job`].
        job: Option<String>,
        /// As in [`ProgramOptions::priority`].
        priority: Option<i32>,
        /// Also where the policy takes turns, or it is known not to suit others of a pool.
        insists: bool,
        /// Why the process itself knows that it must not be in a pool, in one line.
        obstacle: Option<String>,
    },
    /// The process that asks was in the pool of this pipe directory, and its MPS server has refused it.
    PoolRefused {
        /// As in [`DaemonMsg::Pool`].
        pipe: String,
    },
    /// A GPU fault of the process that asks has ended its context, in which nothing of others was.
    Faulted,
    /// From the server of a private MPS daemon: what became of the time slice of its channel group on one device.
    PoolServer {
        /// The number of the pool, from its environment.
        pool: u64,
        /// Why the pool cannot be, in one line; none = the slice holds.
        fault: Option<String>,
    },
    /// End the daemon; programs go on unscheduled.
    Stop,
    /// Time on devices, of the asking user's programs, or of all where root asks. Answered by one [`DaemonMsg::Usage`] each.
    Usage {
        /// From when on, in ms since 1970; what was recorded together with earlier time counts too.
        since_ms: u64,
        /// What it is added up by.
        by: UsageBy,
    },
    /// What was decided lately: [`DaemonMsg::TraceHead`], groups, records.
    Trace {
        /// [`Head::next`] of the last answer; 0 = from the oldest that is remembered.
        from: u64,
        /// Nothing before this, CLOCK_MONOTONIC in µs.
        since_us: u64,
    },
}

/// Whom a change is for: programs that the one who asks may control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// All of a process. Where that is not attached: the attached ones that it started, directly or not.
    Pid(u32),
    /// A process, and all that it started.
    Tree(u32),
    /// The programs of a job.
    Job(String),
    /// The programs of a user, by user id.
    User(u32),
    /// All programs.
    All,
    /// One XQueue, `q<N>`; it moves to a group of its own when its priority differs.
    Queue(u64),
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DaemonMsg {
    /// No, and why: [`Error::Input`] or [`Error::Environment`].
    Refused(Error),
    /// Answer to [`ClientMsg::Hello`]; carries one descriptor, the heartbeat page.
    Welcome {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// The daemon's number for this session.
        session: u64,
        /// The program's own priority, after the operator's rules and limits.
        priority: i32,
        /// What becomes of its launches of vendors' libraries, likewise.
        domains: DomainMode,
        /// Each stream is to be a group of its own: an operator's scheduler decides stream by stream.
        streams_apart: bool,
    },
    /// Answer to [`ClientMsg::GroupAdd`]: from now on the gate word counts.
    GroupAdded {
        /// The group's slot.
        slot: u16,
        /// `g<N>`.
        id: u64,
        /// Its effective priority.
        priority: i32,
        /// Name of the policy in force on its device.
        policy: String,
    },
    /// Move a queue to a group of this priority (`hint --queue`).
    QueuePriority {
        /// The queue's slot.
        slot: u16,
        /// Absolute priority.
        priority: i32,
    },
    /// Level 3: interrupt what the group is running, or let it go on.
    Interrupt {
        /// The group's slot.
        slot: u16,
        /// True to interrupt.
        on: bool,
    },
    /// Level 3 where the hardware has time slices: the group's context is to have this one.
    Timeslice {
        /// The group's slot.
        slot: u16,
        /// In µs.
        us: u64,
    },
    /// A page that tells how an urgent program of the same hardware context keeps up; carries its descriptor. See
    /// [`crate::backlog`].
    Backlog {
        /// Its bit in [`crate::segment::GroupSlot::yields_to`].
        page: u8,
        /// Its number: each page has a greater one than those before it (modulo 2^32).
        epoch: u32,
        /// True: this program's own page, to be written.
        own: bool,
    },
    /// The program's own priority is another than [`DaemonMsg::Welcome`] said.
    Priority {
        /// After the operator's rules and limits.
        priority: i32,
    },
    /// Something that the program's user should know, in one line: a hint that the policy in force does not look at.
    Note {
        /// One line.
        text: String,
    },
    /// Describe yourself, answer with [`ClientMsg::Description`].
    Describe {
        /// To be given back.
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
    /// Answer to [`Request::JoinPool`]: the process is reserved a context on each device in the pool of this pipe directory.
    Pool {
        /// `CUDA_MPS_PIPE_DIRECTORY`.
        pipe: String,
        /// Something that the user should know, in one line.
        note: Option<String>,
        /// True for an urgent program, which goes before others inside.
        is_urgent: bool,
    },
    /// Answer to [`Request::JoinPool`]: the process gets a context of its own.
    ByTime {
        /// Why, in one line, where the user should know.
        why: Option<String>,
    },
    /// Part of the answer to a request that changes programs: what has become of one.
    Changed(Changed),
    /// The answer is complete and was yes.
    End,
    /// Part of the answer to [`Request::Ps`].
    Device(Box<DeviceInfo>),
    /// Part of the answer to [`Request::Ps`]: further queues of the program before it, each with the group that it belongs to.
    /// [`crate::ask::ask`] adds them to that.
    MoreQueues(Vec<(String, QueueInfo)>),
    /// Part of the answer to [`Request::Usage`].
    Usage(UsageRow),
    /// First part of the answer to [`Request::Trace`].
    TraceHead(Head),
    /// Part of the answer to [`Request::Trace`]: groups that the records speak of.
    TraceGroups(Vec<TracedGroup>),
    /// Part of the answer to [`Request::Trace`]: what happened, in order.
    TraceRecords(Vec<Record>),
}

/// What has become of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Process id.
    pub pid: u32,
    /// What it is called, as in [`ProgramInfo::name`].
    pub name: String,
    /// What was changed, its value before and now. They are the same where nothing had to be done.
    pub values: Vec<ChangedValue>,
}

/// One value of a program that was to be changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedValue {
    /// What it is called: `priority`, `state`, `level`, a hint.
    pub what: String,
    /// Before.
    pub was: String,
    /// Now.
    pub now: String,
}

/// Encodes a message into one packet.
///
/// # Errors
/// When it would exceed [`MAX_PACKET`].
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

/// Decodes one packet; nothing may be left over.
///
/// # Errors
/// When the packet is no such message.
pub fn decode<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, Error> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(Error::environment(format!("malformed message: {} bytes too many", rest.len()))),
        Err(e) => Err(Error::environment(format!("malformed message: {e}"))),
    }
}

/// The version of whoever sent a first packet, however little of the rest can be read; none = it is no first packet.
pub fn version_of(packet: &[u8]) -> Option<u32> {
    let (variant, rest): (u32, _) = postcard::take_from_bytes(packet).ok()?;
    let (version, _) = postcard::take_from_bytes(rest).ok()?;
    (variant < 2).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What other versions read and write of it: these bytes never change.
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
        // GroupAdd (1), slot 0, a string length of 2^62.
        assert!(decode::<ClientMsg>(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]).is_err());
    }
}
