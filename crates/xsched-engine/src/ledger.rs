//! Ledger of memory on devices: the processes that hold it, the limits they share, and the allowance of each.
//!
//! A [`Pot`] is a set of processes with a limit: those of one program, user, container. The allowances of its processes make up its limit
//! at most. A process that is alone in its pots has all that is left; where there are several, each gets memory in steps as it asks, and
//! memory that another one may take and has not taken is taken back when it is needed.
//!
//! Figures of a process are what it reports. Its allowance rises by grants alone, so that a report that is too high takes nothing that
//! would not be granted, and one that is too low gains nothing beyond the limits of the process itself.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use xsched_proto::account::{MemorySlot, MemoryUse, UNLIMITED};
use xsched_proto::class::Class;

/// Step in which a process gets memory where others share its limit, in bytes.
pub const STEP_BYTES: u64 = 64 << 20;
/// Memory that a process may hold beyond its grants and that counts against the limits of others all the same, in bytes: contexts and
/// modules, for which no program asks. More than that can only be a false report.
pub const BEYOND_BYTES: u64 = 2 << 30;

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

/// Terms of a process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderTerms {
    /// Limits that apply, in bytes.
    pub limits: Vec<(Pot, u64)>,
    /// Number of the program that the process belongs to.
    pub program: u64,
    /// Memory that less urgent processes leave to the program, in bytes.
    pub reserve_bytes: u64,
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
    device: Arc<str>,
    words: W,
    capacity_bytes: u64,
    terms: HolderTerms,
    /// Memory that was granted; not of interest without limits.
    granted: u64,
    /// Memory held as last read, no more than the device has.
    used: u64,
    /// Nothing was granted yet.
    is_new: bool,
}

impl<W: Deref<Target = MemorySlot>> Holder<W> {
    /// Device of the process.
    pub fn device(&self) -> &Arc<str> {
        &self.device
    }

    /// Memory of the device as the process reports it, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Memory held as last read, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// Memory held at present, no more than the device has, in bytes.
    pub fn present_bytes(&self) -> u64 {
        self.words.used_bytes.load(SeqCst).min(self.capacity_bytes)
    }

    /// Present report of the process.
    pub fn report(&self) -> MemoryUse {
        MemoryUse::of(&self.words)
    }

    /// Allowance in force, in bytes; none = there is no limit.
    pub fn allowance_bytes(&self) -> Option<u64> {
        Some(self.words.allowance_bytes.load(Relaxed)).filter(|bytes| *bytes != UNLIMITED)
    }

    /// Smallest limit that applies, in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.terms.limits.iter().map(|(_, bytes)| *bytes).min()
    }

    /// Terms in force.
    pub fn terms(&self) -> &HolderTerms {
        &self.terms
    }

    fn is_limited(&self) -> bool {
        !self.terms.limits.is_empty()
    }

    /// Memory that counts against the limits of others: held, or to be had at any time.
    fn committed(&self) -> u64 {
        self.granted.max(self.used.min(self.granted.saturating_add(BEYOND_BYTES)))
    }

    fn is_in(&self, pot: Pot) -> bool {
        self.terms.limits.iter().any(|(own, _)| *own == pot)
    }

    fn read(&mut self) {
        self.used = self.present_bytes();
    }

    /// Puts the grant in force. Memory that the process took meanwhile stays allowed.
    fn allow(&mut self) {
        let granted = if self.is_limited() { self.granted } else { UNLIMITED };
        self.words.allow(granted);
        self.read();
    }

    /// Lowers the grant. What the process has taken of it stays.
    fn lower(&mut self, to: u64) {
        let before = self.granted;
        if to < before {
            let in_force = self.words.allow(to);
            self.read();
            self.granted = in_force.min(before);
        }
    }
}

/// Processes on all devices, with what they hold.
#[derive(Debug)]
pub struct Ledger<W> {
    holders: BTreeMap<HolderId, Holder<W>>,
}

impl<W> Default for Ledger<W> {
    fn default() -> Ledger<W> {
        Ledger { holders: BTreeMap::new() }
    }
}

impl<W: Deref<Target = MemorySlot>> Ledger<W> {
    /// A process begins to use a device, and may hold memory there already. One that is known stays as it is.
    pub fn add(&mut self, id: HolderId, device: Arc<str>, words: W, capacity_bytes: u64, terms: HolderTerms) {
        self.holders.entry(id).or_insert_with(|| {
            let mut holder = Holder { device, words, capacity_bytes, terms, granted: 0, used: 0, is_new: true };
            holder.read();
            holder
        });
    }

    /// Removes all that the processes of a connection hold. Returns their devices.
    pub fn remove(&mut self, connection: u64) -> Vec<Arc<str>> {
        let ids: Vec<HolderId> = self.of(connection).map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.holders.remove(&id)).map(|holder| holder.device).collect()
    }

    /// Memory of the process behind a connection, by device.
    pub fn of(&self, connection: u64) -> impl Iterator<Item = (HolderId, &Holder<W>)> {
        self.holders.range((connection, 0)..=(connection, u16::MAX)).map(|(id, holder)| (*id, holder))
    }

    /// All processes.
    pub fn holders(&self) -> impl Iterator<Item = (HolderId, &Holder<W>)> {
        self.holders.iter().map(|(id, holder)| (*id, holder))
    }

    /// Process on a device, by its number.
    pub fn get(&self, id: HolderId) -> Option<&Holder<W>> {
        self.holders.get(&id)
    }

    /// Number of processes and devices that are kept.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Returns true if nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Returns true if words of some process follow from what others do: they share a limit, or memory is reserved.
    pub fn needs_looks(&self) -> bool {
        self.holders.values().any(|holder| holder.is_limited() || holder.terms.reserve_bytes > 0)
    }

    /// Puts other terms in force for a process. The allowance follows by [`Ledger::settle`].
    pub fn set_terms(&mut self, id: HolderId, terms: HolderTerms) {
        if let Some(holder) = self.holders.get_mut(&id) {
            // As if it came now: what it holds was not granted.
            if !holder.is_limited() && !terms.limits.is_empty() {
                (holder.granted, holder.is_new) = (0, true);
            }
            holder.terms = terms;
        }
    }

    fn on<'a>(&'a self, device: &'a str) -> impl Iterator<Item = (HolderId, &'a Holder<W>)> {
        self.holders().filter(move |(_, holder)| &*holder.device == device)
    }

    /// Memory that the processes of a pot hold on a device, in bytes.
    pub fn used(&self, device: &str, pot: Pot) -> u64 {
        let is_in = |holder: &Holder<W>| match pot {
            Pot::Program(program) => holder.terms.program == program,
            pot => holder.is_in(pot),
        };
        let used = self.on(device).filter(|(_, holder)| is_in(holder)).map(|(_, holder)| holder.used);
        used.fold(0, u64::saturating_add)
    }

    /// Memory of a device that is reserved for programs more urgent than a process, and that they have not taken, in bytes.
    pub fn keep_free(&self, id: HolderId) -> u64 {
        let Some(own) = self.holders.get(&id) else { return 0 };
        if self.holders.values().all(|holder| holder.terms.reserve_bytes == 0) {
            return 0;
        }
        // Reserve and use of each program that is more urgent.
        let mut programs: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (_, holder) in self.on(&own.device) {
            let terms = &holder.terms;
            if terms.program != own.terms.program && terms.priority > own.terms.priority {
                let (reserve, used) = programs.entry(terms.program).or_default();
                *reserve = (*reserve).max(terms.reserve_bytes.min(holder.capacity_bytes));
                *used = used.saturating_add(holder.used);
            }
        }
        let open = programs.values().map(|(reserve, used)| reserve.saturating_sub(*used));
        open.fold(0, u64::saturating_add).min(own.capacity_bytes)
    }

    /// Memory that a process may hold in all by each of its limits, with the others' part as it is.
    fn room(&self, id: HolderId) -> Option<(u64, Pot)> {
        let own = self.holders.get(&id)?;
        let most = |(pot, limit): &(Pot, u64)| {
            let others = self.on(&own.device).filter(|(other, holder)| *other != id && holder.is_in(*pot));
            let taken = others.map(|(_, holder)| holder.committed()).fold(0, u64::saturating_add);
            let kept = if *pot == Pot::Device { self.keep_free(id) } else { 0 };
            (limit.saturating_sub(taken).saturating_sub(kept), *pot)
        };
        own.terms.limits.iter().map(most).min()
    }

    /// Returns true if a process shares none of its limits.
    fn is_alone(&self, id: HolderId) -> bool {
        let Some(own) = self.holders.get(&id) else { return false };
        let mut others = self.on(&own.device).filter(|(other, _)| *other != id);
        !others.any(|(_, holder)| own.terms.limits.iter().any(|(pot, _)| holder.is_in(*pot)))
    }

    /// Takes back what other processes may take, and have not taken, of the limits that a process has.
    fn take_back_for(&mut self, id: HolderId) {
        let Some(own) = self.holders.get(&id) else { return };
        let (device, pots) = (own.device.clone(), own.terms.limits.clone());
        for (other, holder) in &mut self.holders {
            if *other != id && holder.device == device && pots.iter().any(|(pot, _)| holder.is_in(*pot)) {
                holder.lower(0);
            }
        }
    }

    /// Reads what all processes on a device hold.
    fn read(&mut self, device: &str) {
        self.holders.values_mut().filter(|holder| &*holder.device == device).for_each(Holder::read);
    }

    /// Grants a process so much memory in all, if its limits leave that, and some beyond.
    fn grant(&mut self, id: HolderId, wanted: u64) -> Result<(), Short> {
        let Some((mut most, _)) = self.room(id) else { return Ok(()) };
        if wanted > most {
            self.take_back_for(id);
            let Some((left, pot)) = self.room(id) else { return Ok(()) };
            if wanted > left {
                return Err(self.short(id, pot));
            }
            most = left;
        }
        let alone = self.is_alone(id);
        if let Some(holder) = self.holders.get_mut(&id) {
            let step = wanted.checked_next_multiple_of(STEP_BYTES).unwrap_or(wanted);
            holder.granted = if alone { most } else { holder.granted.min(most).max(step.min(most)) };
        }
        Ok(())
    }

    fn short(&self, id: HolderId, pot: Pot) -> Short {
        let Some(own) = self.holders.get(&id) else { return Short { pot, limit_bytes: 0, used_bytes: 0 } };
        let limit_bytes = own.terms.limits.iter().find(|(other, _)| *other == pot).map_or(0, |(_, bytes)| *bytes);
        Short { pot, limit_bytes, used_bytes: self.used(&own.device, pot) }
    }

    /// A process asks for room for so many bytes. Words of all processes on the device are up to date afterwards.
    ///
    /// # Errors
    /// The limit in the way.
    pub fn ask(&mut self, id: HolderId, bytes: u64) -> Result<(), Short> {
        let Some(holder) = self.holders.get(&id) else { return Ok(()) };
        let device = holder.device.clone();
        self.read(&device);
        let wanted = self.holders.get(&id).map_or(0, |holder| holder.used.saturating_add(bytes));
        let granted = self.grant(id, wanted);
        self.publish(&device);
        granted
    }

    /// Brings grants and words of all processes on a device up to date: after one came or went, or its terms changed, and from time to
    /// time.
    pub fn settle(&mut self, device: &str) {
        self.read(device);
        let ids: Vec<HolderId> = self.on(device).map(|(id, _)| id).collect();
        for id in ids {
            self.settle_one(id);
        }
        self.publish(device);
    }

    fn settle_one(&mut self, id: HolderId) {
        let Some((most, _)) = self.room(id) else { return };
        let (alone, is_new) = (self.is_alone(id), self.holders.get(&id).is_some_and(|holder| holder.is_new));
        let Some(holder) = self.holders.get_mut(&id) else { return };
        let used = holder.used;
        holder.is_new = false;
        if alone {
            holder.granted = holder.granted.max(most);
        }
        // A limit that became smaller takes nothing away that the process holds.
        holder.lower(used.max(most));
        if is_new && !alone && self.grant(id, used.saturating_add(1)).is_err() {
            // Another daemon may have granted what it holds.
            let most = self.room(id).map_or(0, |(most, _)| most);
            if let Some(holder) = self.holders.get_mut(&id) {
                holder.granted = used.min(most);
            }
        }
    }

    /// Stores the words of all processes on a device.
    fn publish(&mut self, device: &str) {
        let ids: Vec<HolderId> = self.on(device).map(|(id, _)| id).collect();
        for id in &ids {
            if let Some(holder) = self.holders.get_mut(id) {
                holder.allow();
            }
        }
        for id in ids {
            let keep_free = self.keep_free(id);
            let (limit, others) = self.seen(id);
            let Some(holder) = self.holders.get(&id) else { continue };
            holder.words.keep_free_bytes.store(keep_free, Relaxed);
            holder.words.others_used_bytes.store(others, Relaxed);
            holder.words.limit_bytes.store(limit, Relaxed);
        }
    }

    /// Size of the device as a process is to see it (0 = as it is), and the part of it that others have taken, in bytes.
    fn seen(&self, id: HolderId) -> (u64, u64) {
        let Some(own) = self.holders.get(&id) else { return (0, 0) };
        let Some(limit) = own.limit_bytes() else { return (0, 0) };
        let left = |(pot, limit): &(Pot, u64)| {
            let kept = if *pot == Pot::Device { self.keep_free(id) } else { 0 };
            limit.saturating_sub(self.used(&own.device, *pot)).saturating_sub(kept)
        };
        let left = own.terms.limits.iter().map(left).min().unwrap_or(0);
        (limit, limit.saturating_sub(own.used).saturating_sub(left))
    }
}
