//! Inputs that the engine takes, and the effects that its host carries out.

use std::sync::Arc;

use xsched_policy::{Answer, Choice};
use xsched_proto::device::DeviceState;
use xsched_proto::hint::Hints;
use xsched_proto::wire::{DaemonMsg, Levels, Platform, Sharing, Target};

use crate::Error;
use crate::changes::Changes;
use crate::pooling::Seat;
use crate::program::Arrival;
use crate::terms::{Ceilings, Settings, Terms};
use crate::user::User;

/// Memory of a process as its device's driver tells it: the process id, and bytes; none = not told.
pub type ProcessMemory = (u32, Option<u64>);

/// An event outside the engine. `u64` is the number of a connection: that of a program, or of a command.
#[derive(Debug)]
pub enum Input<M> {
    /// A process attaches.
    Attached(u64, Box<Arrival<M>>),
    /// Changes of an earlier daemon are restored for a program.
    Restored {
        /// The program.
        program: u64,
        /// Changes by commands.
        changes: Changes,
        /// True if it was suspended.
        held: bool,
    },
    /// A program has left.
    Left {
        /// The program.
        program: u64,
        /// True if its process ended or hung up; false if it was dropped while it lives.
        by_itself: bool,
    },
    /// A message of a program.
    Message(u64, Message),
    /// A program has changed its words. They are read at once; decisions wait for the next [`Input::Decide`], since one decision for all
    /// programs that woke the daemon costs little more than one for each.
    Words(u64),
    /// All words are read: decide.
    Decide,
    /// The progress of a program is looked at: a bounded part of its counters. [`Effect::LookAgain`] follows while there are more.
    Look(u64),
    /// The time has come to look at the progress of groups that run while others wait. [`Effect::LookAt`] names the programs.
    LookTime,
    /// The time of [`crate::Engine::next_policy_us`] has come.
    PolicyTime,
    /// The page by which programs see that the daemon lives is due.
    Beat,
    /// Limits and reserves of memory are to follow what programs hold.
    MemoryTime,
    /// A further piece of work on the memory of devices, while [`crate::Engine::has_memory_work`] says so.
    MemoryWork,
    /// The memory of processes on a device as its driver tells: the device, the time in ns at which it was asked, and each process.
    Memory(Arc<str>, u64, Vec<ProcessMemory>),
    /// No driver tells what processes have of a device.
    Unmeasured(Arc<str>),
    /// The state of a device as its driver tells.
    Device(Arc<str>, Option<Box<DeviceState>>),
    /// Nice values of programs.
    Nice(Vec<(u64, i32)>),
    /// The active window of a user belongs to this process, or to none.
    ActiveWindow {
        /// The user.
        user: User,
        /// The process.
        pid: Option<u32>,
    },
    /// A policy is set for a device, or for all that have none of their own.
    Policy(Option<String>, Choice),
    /// The operator's own scheduler has answered.
    Answer(String, Answer),
    /// Another configuration is in force, with the policies that it changes and the terms of each program.
    Configured {
        /// Settings for all programs.
        settings: Box<Settings>,
        /// Policies to be set.
        policies: Vec<(Option<String>, Choice)>,
        /// Terms of the attached programs.
        terms: Vec<(u64, Terms)>,
    },
    /// A command changes programs. Further pieces of work follow by [`Input::Continue`].
    Change(Box<Order>),
    /// The start of the process that [`crate::Engine::wanted_start`] named, in clock ticks since the boot.
    Start(u64, Option<u64>),
    /// The next piece of a command's changes.
    Continue(u64),
    /// A command follows programs from now on, to fetch their bursts ([`crate::Engine::bursts`]).
    Record {
        /// The command.
        command: u64,
        /// Its user.
        user: User,
        /// Processes; none = all programs that the user sees.
        pids: Vec<u32>,
    },
    /// A command has ended: it records nothing any more.
    RecordEnds(u64),
    /// A program's time slice was not told: it does not read its messages.
    TimesliceUnsent {
        /// The program.
        program: u64,
        /// The slice that it had before, in µs.
        before_us: Option<u64>,
    },
    /// The backlog page of a program could not be made.
    PageFailed(u64),
    /// The book of a program on a device is recorded to the end.
    BookClosed(u64, Arc<str>),
}

impl<M> Input<M> {
    /// Connection of the program or command that has caused the input; none = several, or none.
    pub fn source(&self) -> Option<u64> {
        match self {
            Input::Attached(id, _) | Input::Message(id, _) | Input::Words(id) | Input::Look(id) => Some(*id),
            Input::Restored { program, .. } | Input::Left { program, .. } => Some(*program),
            Input::Change(order) => Some(order.from.command),
            Input::Start(command, _) | Input::Continue(command) => Some(*command),
            _ => None,
        }
    }
}

/// A message of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A group comes.
    GroupAdd(NewGroup),
    /// Another set of preemption levels of a group.
    Levels {
        /// Its slot.
        slot: u16,
        /// The levels that it has now.
        levels: Levels,
    },
    /// The program gives hints for one of its groups.
    GroupHint {
        /// Its slot.
        slot: u16,
        /// Priority of its own, or none.
        priority: Option<i32>,
        /// Hints for the policy.
        hints: Hints,
    },
    /// The program gives hints for all of its groups.
    ProgramHint(Hints),
    /// A group goes.
    GroupRemove(u16),
    /// A queue comes, or moves to another group.
    QueueAdd {
        /// Its slot.
        slot: u16,
        /// Slot of its group.
        group: u16,
    },
    /// A queue goes.
    QueueRemove(u16),
    /// The program uses memory of a device.
    MemoryDevice {
        /// Slot of the device.
        slot: u16,
        /// Key of the device.
        device: String,
        /// Memory of the device, in bytes.
        capacity_bytes: u64,
    },
    /// The program asks for more memory.
    MemoryAsk {
        /// Slot of the device.
        slot: u16,
        /// Number of the question.
        number: u32,
        /// Size of the allocation, in bytes.
        bytes: u64,
        /// Room in bytes that the driver lacked for it; 0 = the driver was not asked.
        lacking: u64,
        /// True for memory that has left the device and is to come back.
        returns: bool,
        /// True for a part of such memory, without which the process goes on.
        part: bool,
    },
    /// The program asks for what it holds, by the driver's newest figure.
    MemoryMeasure {
        /// Slot of the device.
        slot: u16,
        /// Number of the question.
        number: u32,
    },
    /// An allocation of the program has failed for want of memory.
    MemoryRefused {
        /// Slot of the device.
        slot: u16,
        /// Size of the allocation, in bytes.
        bytes: u64,
        /// True if the driver has refused it.
        by_driver: bool,
    },
    /// Memory of the program leaves in pieces, of which the first has left.
    MemoryLeaving {
        /// Number of the order.
        number: u32,
    },
    /// Memory of the program has moved, or has not for this reason.
    MemoryMoved {
        /// Number of the order; 0 = there was none.
        number: u32,
        /// Reason, in one line.
        why: Option<String>,
    },
}

/// A group that comes.
#[derive(Clone, Debug, PartialEq)]
pub struct NewGroup {
    /// Its slot.
    pub slot: u16,
    /// Key of its device.
    pub device: String,
    /// The interface by which it uses the device.
    pub platform: Platform,
    /// Priority relative to its program's, in steps of ten.
    pub steps: i32,
    /// Priority of its own.
    pub fixed: Option<i32>,
    /// True for the system domain.
    pub system: bool,
    /// Preemption levels that the device has for it.
    pub levels: Levels,
    /// The way in which its context shares the device.
    pub sharing: Sharing,
    /// The pool in which its context is.
    pub pool: Option<Seat>,
    /// The state of its device as last told.
    pub state: Option<Box<DeviceState>>,
}

/// A command that changes programs.
#[derive(Debug)]
pub struct Order {
    /// The command, and who gives it.
    pub from: Sender,
    /// Programs and queues that it names.
    pub targets: Vec<Target>,
    /// The change.
    pub what: What,
}

/// The sender of a command.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Its connection.
    pub command: u64,
    /// Its user.
    pub user: User,
    /// Its process.
    pub pid: u32,
    /// Its process and the ones that it was started by.
    pub ancestors: Vec<u32>,
    /// Limits of its user.
    pub ceilings: Ceilings,
}

/// A change of programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// Suspended (true) or resumed.
    Hold(bool),
    /// Frozen (true) or thawed.
    Freeze(bool),
    /// Other values for the policy.
    Hint(Changes),
}

/// A consequence outside the engine, to be carried out in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// A message to a program or a command.
    Send(u64, DaemonMsg),
    /// The last message of a command's answer.
    Finish(u64, DaemonMsg),
    /// A program is refused for this reason: it is told so, and its connection ends.
    Refuse(u64, Error),
    /// A program has broken the protocol: its connection ends.
    Drop(u64, Error),
    /// A program's contexts get another time slice, unless the program leaves its messages unread ([`Input::TimesliceUnsent`]).
    Timeslice {
        /// The program.
        program: u64,
        /// Slot of one of its groups.
        slot: u16,
        /// The slice, in µs.
        us: u64,
        /// The slice before, in µs.
        before_us: Option<u64>,
    },
    /// A program is told of a backlog page, which the host makes when its owner is told of it.
    Page {
        /// The program that is told.
        to: u64,
        /// The program whose page it is.
        owner: u64,
        /// Place of the page.
        page: u8,
        /// Number of the page.
        epoch: u32,
    },
    /// A backlog page is of no use any more.
    PageGone(u64),
    /// The memory of processes on a device is wanted: [`Input::Memory`] or [`Input::Unmeasured`].
    Measure(Arc<str>),
    /// Programs whose counters are to be looked at ([`Input::Look`]).
    LookAt(Vec<u64>),
    /// A look at a program has further pieces.
    LookAgain(u64),
    /// A line for the log that a user has caused.
    Log(u32, String),
    /// A line of the file of bursts.
    Burst(String),
    /// Something changed that outlives the daemon.
    Remember,
    /// Groups came or went: other devices may be in use.
    DevicesInUse,
    /// The book of a program on a device was closed: nothing was ever charged to it.
    BlankBook(u64, Arc<str>),
}
