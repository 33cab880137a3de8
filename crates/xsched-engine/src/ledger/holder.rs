//! Processes on devices: the terms of each, and what it holds.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use xsched_proto::account::{MemorySlot, MemoryUse, Residency, UNLIMITED};
use xsched_proto::class::Class;

use super::BEYOND_BYTES;

/// User of a process: its number, and the container whose user it is.
pub type UserKey = (u32, u64);

/// Set of processes that share a limit on each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pot {
    /// Processes of one program: one run and what it starts.
    Program(u64),
    /// Processes in one container.
    Container(u64),
    /// Processes in one pod.
    Pod(u64),
    /// Processes to which one rule applies.
    Rule(u32),
    /// Processes of one user: its number, and the container whose user it is.
    User(u32, u64),
    /// Processes of one class.
    Class(Class),
    /// All processes on the device.
    Device,
}

impl Pot {
    /// Returns true for processes of one user.
    pub(super) fn is_of_one_user(self) -> bool {
        matches!(self, Pot::Program(_) | Pot::User(..))
    }
}

/// Terms of a process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderTerms {
    /// Limits that apply, in bytes.
    pub limits: Vec<(Pot, u64)>,
    /// Number of the program that the process belongs to.
    pub program: u64,
    /// Its user.
    pub user: UserKey,
    /// Memory that less urgent processes of the same user leave to the program, in bytes.
    pub reserve_bytes: u64,
    /// Part of it that less urgent processes of other users leave, too, in bytes.
    pub reserve_of_others_bytes: u64,
    /// Priority of the process.
    pub priority: i32,
}

/// Limit that is in the way of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Processes that share the limit.
    pub pot: Pot,
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// Memory that these processes hold, in bytes.
    pub used_bytes: u64,
}

/// Process on one device, by its program's connection and its slot.
pub type HolderId = (u64, u16);

/// Memory of one process on one device.
#[derive(Debug)]
pub struct Holder<W> {
    pub(super) device: Arc<str>,
    pub(super) words: W,
    /// Memory of the device: as its driver told the daemon, or else as the process says.
    pub(super) capacity_bytes: u64,
    pub(super) terms: HolderTerms,
    /// Memory that was granted; not of interest without limits.
    pub(super) granted: u64,
    /// Memory held as last read, no more than the device has.
    pub(super) used: u64,
    /// Memory that the driver has for the process besides what it counts.
    pub(super) overhead: u64,
    /// Memory counted when the overhead was measured last.
    pub(super) counted: u64,
    /// Time of the last question for a measurement, in ns, and memory counted then.
    pub(super) asked: Option<(u64, u64)>,
    /// Nothing was granted yet.
    pub(super) is_new: bool,
}

impl<W: Deref<Target = MemorySlot>> Holder<W> {
    /// Device of the process.
    pub fn device(&self) -> &Arc<str> {
        &self.device
    }

    /// Memory of the device, in bytes: as its driver told the daemon, or else as the process says.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Memory held as last read, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// Memory held at present, no more than the device has, in bytes. An advance is not held yet, and counts against limits all the same.
    pub fn present_bytes(&self) -> u64 {
        self.words.allocated_bytes().saturating_add(self.overhead).min(self.capacity_bytes)
    }

    /// Memory that has left the device for the host, no more than the device has, in bytes.
    pub fn away_bytes(&self) -> u64 {
        self.words.away_bytes.load(Relaxed).min(self.capacity_bytes)
    }

    /// Memory held at present, and the rest of an advance, in bytes.
    pub fn claimed_bytes(&self) -> u64 {
        self.words.used_bytes.load(SeqCst).saturating_add(self.overhead).min(self.capacity_bytes)
    }

    /// Memory that the process counts, as far as it is in the driver's figure, in bytes.
    pub(super) fn driver_counts(&self) -> u64 {
        self.words.allocated_bytes().saturating_sub(self.words.managed_bytes.load(Relaxed))
    }

    /// Follows the driver's figure of the process at a time in ns. The process may have allocated or freed since the driver was asked: of
    /// the overheads that are possible then, the nearest to the one before is taken.
    pub(super) fn measure(&mut self, at_ns: u64, bytes: u64) {
        let now = self.driver_counts();
        let before = std::mem::replace(&mut self.counted, now);
        // A process that has asked shortly before the driver was asked waits meanwhile.
        let asked = self.asked.take_if(|(asked_ns, _)| *asked_ns <= at_ns);
        let before = asked.map_or(before, |(_, counted)| counted);
        let (least, most) = (bytes.saturating_sub(now.max(before)), bytes.saturating_sub(now.min(before)));
        self.overhead = self.overhead.clamp(least, most).min(self.capacity_bytes);
    }

    /// Memory of the process that can leave the device, in bytes.
    pub fn movable_bytes(&self) -> u64 {
        self.words.movable_bytes.load(Acquire).min(self.present_bytes())
    }

    /// Returns true while memory of the process is being moved.
    pub fn is_moving(&self) -> bool {
        Residency(self.words.residency.load(Relaxed)).has(Residency::MOVING)
    }

    /// Present report of the process.
    pub fn report(&self) -> MemoryUse {
        let counted = MemoryUse::of(&self.words);
        let more = |bytes: u64| bytes.saturating_add(self.overhead);
        MemoryUse {
            used_bytes: more(counted.used_bytes),
            peak_bytes: more(counted.peak_bytes),
            overhead_bytes: more(counted.overhead_bytes),
            ..counted
        }
    }

    /// Allowance in force, in bytes; none = there is no limit.
    pub fn allowance_bytes(&self) -> Option<u64> {
        let counted = Some(self.words.allowance_bytes.load(Relaxed)).filter(|bytes| *bytes != UNLIMITED)?;
        Some(counted.saturating_add(self.overhead))
    }

    /// Memory that the process leaves to more urgent programs, in bytes.
    pub fn keep_free_bytes(&self) -> u64 {
        self.words.keep_free_bytes.load(Relaxed).min(self.capacity_bytes)
    }

    /// Smallest limit that applies, in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.terms.limits.iter().map(|(_, bytes)| *bytes).min()
    }

    /// Terms in force.
    pub fn terms(&self) -> &HolderTerms {
        &self.terms
    }

    pub(super) fn is_limited(&self) -> bool {
        !self.terms.limits.is_empty()
    }

    /// Memory that counts against the limits of others: held, or to be had at any time.
    pub(super) fn committed(&self) -> u64 {
        self.granted.max(self.used.min(self.granted.saturating_add(BEYOND_BYTES)))
    }

    pub(super) fn is_in(&self, pot: Pot) -> bool {
        self.terms.limits.iter().any(|(own, _)| *own == pot)
    }

    pub(super) fn read(&mut self) {
        self.used = self.claimed_bytes();
    }

    /// Puts the grant in force. Memory that the process took meanwhile stays allowed.
    pub(super) fn allow(&mut self) {
        let granted = if self.is_limited() { self.granted.saturating_sub(self.overhead) } else { UNLIMITED };
        self.words.allow(granted);
        self.read();
    }

    /// Lowers the grant. What the process has taken of it stays.
    pub(super) fn lower(&mut self, to: u64) {
        let before = self.granted;
        if to < before {
            let in_force = self.words.allow(to.saturating_sub(self.overhead)).saturating_add(self.overhead);
            self.read();
            self.granted = in_force.min(before);
        }
    }
}
