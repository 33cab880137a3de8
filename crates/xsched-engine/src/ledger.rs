//! Ledger of memory on devices: the processes that hold it, the limits they share, and the allowance of each.
//!
//! A [`Pot`] is a set of processes with a limit: those of one program, user, container. The allowances of its processes make up its limit
//! at most. A process that is alone in its pots has all that is left; where there are several, each gets memory in steps as it asks, and
//! memory that another one may take and has not taken is taken back when it is needed.
//!
//! Figures of a process are what it reports. Its allowance rises by grants alone, so that a report that is too high takes nothing that
//! would not be granted, and one that is too low gains nothing beyond the limits of the process itself.
//!
//! What a device's driver has for a process besides that (contexts, modules, local memory) is its overhead, which the daemon is told from
//! time to time. It counts as held. A new process is presumed to have the smallest one that was measured there.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use xsched_proto::account::{MemorySlot, MemoryUse, Residency, UNLIMITED};
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
    /// Memory that the driver has for the process besides what it counts.
    overhead: u64,
    /// Memory counted when the overhead was measured last.
    counted: u64,
    /// Time of the last question for a measurement, in ns, and memory counted then.
    asked: Option<(u64, u64)>,
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
    fn driver_counts(&self) -> u64 {
        self.words.allocated_bytes().saturating_sub(self.words.managed_bytes.load(Relaxed))
    }

    /// Follows the driver's figure of the process at a time in ns. The process may have allocated or freed since the driver was asked: of
    /// the overheads that are possible then, the nearest to the one before is taken.
    fn measure(&mut self, at_ns: u64, bytes: u64) {
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
        self.used = self.claimed_bytes();
    }

    /// Puts the grant in force. Memory that the process took meanwhile stays allowed.
    fn allow(&mut self) {
        let granted = if self.is_limited() { self.granted.saturating_sub(self.overhead) } else { UNLIMITED };
        self.words.allow(granted);
        self.read();
    }

    /// Lowers the grant. What the process has taken of it stays.
    fn lower(&mut self, to: u64) {
        let before = self.granted;
        if to < before {
            let in_force = self.words.allow(to.saturating_sub(self.overhead)).saturating_add(self.overhead);
            self.read();
            self.granted = in_force.min(before);
        }
    }
}

/// Processes on one device.
#[derive(Debug)]
struct Site<W> {
    holders: BTreeMap<HolderId, Holder<W>>,
    /// Time of the driver's last figures, in ns.
    measured_ns: u64,
}

/// Processes of one pot on a device, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    committed: u64,
    used: u64,
    members: usize,
}

/// Sums over the processes on a device.
#[derive(Debug, Default)]
struct Sums {
    pots: BTreeMap<Pot, Sum>,
    /// Programs with reserves that they have not taken: number, priority, and the rest of the reserve in bytes.
    reserves: Vec<(u64, i32, u64)>,
}

impl Sums {
    fn of(&self, pot: Pot) -> Sum {
        self.pots.get(&pot).copied().unwrap_or_default()
    }

    /// Memory that is reserved for programs more urgent than a process, and that they have not taken, in bytes.
    fn keep_free<W>(&self, own: &Holder<W>) -> u64 {
        let is_for =
            |(program, priority, _): &&(u64, i32, u64)| *program != own.terms.program && *priority > own.terms.priority;
        let open = self.reserves.iter().filter(is_for).map(|(.., open)| *open);
        open.fold(0, u64::saturating_add).min(own.capacity_bytes)
    }

    /// Memory that a process may hold in all, with the others' part as it is, and the pot that leaves it no more; none = there is no limit.
    fn room<W: Deref<Target = MemorySlot>>(&self, own: &Holder<W>) -> Option<(u64, Pot)> {
        let most = |(pot, limit): &(Pot, u64)| {
            let others = self.of(*pot).committed.saturating_sub(own.committed());
            let kept = if *pot == Pot::Device { self.keep_free(own) } else { 0 };
            (limit.saturating_sub(others).saturating_sub(kept), *pot)
        };
        own.terms.limits.iter().map(most).min()
    }

    /// Returns true if a process shares none of its limits.
    fn is_alone<W>(&self, own: &Holder<W>) -> bool {
        own.terms.limits.iter().all(|(pot, _)| self.of(*pot).members <= 1)
    }

    /// Follows the change of a process.
    fn change<W: Deref<Target = MemorySlot>>(&mut self, holder: &mut Holder<W>, change: impl FnOnce(&mut Holder<W>)) {
        let before = holder.committed();
        change(holder);
        for (pot, _) in &holder.terms.limits {
            let sum = self.pots.entry(*pot).or_default();
            sum.committed = sum.committed.saturating_sub(before).saturating_add(holder.committed());
        }
    }
}

impl<W: Deref<Target = MemorySlot>> Site<W> {
    /// Reads what all processes hold, and adds it up.
    fn read(&mut self) -> Sums {
        self.holders.values_mut().for_each(Holder::read);
        self.sums()
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        // Reserve, priority and use of each program.
        let mut programs: BTreeMap<u64, (u64, i32, u64)> = BTreeMap::new();
        let reserved = self.holders.values().any(|holder| holder.terms.reserve_bytes > 0);
        for holder in self.holders.values() {
            let terms = &holder.terms;
            for (pot, _) in &terms.limits {
                let sum = sums.pots.entry(*pot).or_default();
                sum.committed = sum.committed.saturating_add(holder.committed());
                sum.used = sum.used.saturating_add(holder.used);
                sum.members += 1;
            }
            if reserved {
                let (reserve, priority, used) = programs.entry(terms.program).or_insert((0, terms.priority, 0));
                *reserve = (*reserve).max(terms.reserve_bytes.min(holder.capacity_bytes));
                *priority = (*priority).max(terms.priority);
                *used = used.saturating_add(holder.used);
            }
        }
        let open = |(program, (reserve, priority, used)): (u64, (u64, i32, u64))| {
            (program, priority, reserve.saturating_sub(used))
        };
        sums.reserves = programs.into_iter().map(open).filter(|(.., open)| *open > 0).collect();
        sums
    }

    /// Takes back what other processes may take, and have not taken, of the limits that a process has.
    fn take_back_for(&mut self, id: HolderId, sums: &mut Sums) {
        let Some(own) = self.holders.get(&id) else { return };
        let pots = own.terms.limits.clone();
        for (other, holder) in &mut self.holders {
            if *other != id && pots.iter().any(|(pot, _)| holder.is_in(*pot)) {
                sums.change(holder, |holder| holder.lower(0));
            }
        }
    }

    /// Grants a process so much memory in all, if its limits leave that, and some beyond.
    fn grant(&mut self, id: HolderId, wanted: u64, sums: &mut Sums) -> Result<(), Short> {
        let room = |site: &Site<W>, sums: &Sums| site.holders.get(&id).and_then(|own| sums.room(own));
        let Some((mut most, _)) = room(self, sums) else { return Ok(()) };
        if wanted > most {
            self.take_back_for(id, sums);
            let Some((left, pot)) = room(self, sums) else { return Ok(()) };
            if wanted > left {
                let limits = self.holders.get(&id).map_or(&[][..], |own| &own.terms.limits);
                let limit_bytes = limits.iter().find(|(other, _)| *other == pot).map_or(0, |(_, bytes)| *bytes);
                return Err(Short { pot, limit_bytes, used_bytes: sums.of(pot).used });
            }
            most = left;
        }
        if let Some(holder) = self.holders.get_mut(&id) {
            let alone = sums.is_alone(holder);
            let step = wanted.checked_next_multiple_of(STEP_BYTES).unwrap_or(wanted);
            let granted = if alone { most } else { holder.granted.min(most).max(step.min(most)) };
            sums.change(holder, |holder| holder.granted = granted);
        }
        Ok(())
    }

    fn settle(&mut self) {
        let mut sums = self.read();
        for id in self.holders.keys().copied().collect::<Vec<_>>() {
            self.settle_one(id, &mut sums);
        }
        self.publish();
    }

    fn settle_one(&mut self, id: HolderId, sums: &mut Sums) {
        let Some(holder) = self.holders.get_mut(&id) else { return };
        let Some((most, _)) = sums.room(holder) else { return };
        let (alone, is_new, used) = (sums.is_alone(holder), holder.is_new, holder.used);
        holder.is_new = false;
        sums.change(holder, |holder| {
            if alone {
                holder.granted = holder.granted.max(most);
            }
            // A limit that became smaller takes nothing away that the process holds.
            holder.lower(used.max(most));
        });
        if is_new && !alone && self.grant(id, used.saturating_add(1), sums).is_err() {
            // Another daemon may have granted what it holds.
            if let Some(holder) = self.holders.get_mut(&id) {
                let most = sums.room(holder).map_or(0, |(most, _)| most);
                sums.change(holder, |holder| holder.granted = used.min(most));
            }
        }
    }

    /// Stores the words of all processes.
    fn publish(&mut self) {
        self.holders.values_mut().for_each(Holder::allow);
        let sums = self.sums();
        for holder in self.holders.values() {
            let (limit, others) = seen(holder, &sums);
            holder.words.keep_free_bytes.store(sums.keep_free(holder), Relaxed);
            holder.words.others_used_bytes.store(others, Relaxed);
            holder.words.limit_bytes.store(limit, Relaxed);
        }
    }
}

/// Size of the device as a process is to see it (0 = as it is), and the part of it that others have taken, in bytes.
fn seen<W: Deref<Target = MemorySlot>>(own: &Holder<W>, sums: &Sums) -> (u64, u64) {
    let Some(limit) = own.limit_bytes() else { return (0, 0) };
    let left = |(pot, limit): &(Pot, u64)| {
        let kept = if *pot == Pot::Device { sums.keep_free(own) } else { 0 };
        limit.saturating_sub(sums.of(*pot).used).saturating_sub(kept)
    };
    let left = own.terms.limits.iter().map(left).min().unwrap_or(0);
    // The process subtracts what it counts itself.
    (limit, limit.saturating_sub(own.used.saturating_sub(own.overhead)).saturating_sub(left))
}

/// Processes on all devices, with what they hold.
#[derive(Debug)]
pub struct Ledger<W> {
    sites: BTreeMap<Arc<str>, Site<W>>,
    /// Device of each process.
    devices: BTreeMap<HolderId, Arc<str>>,
    /// Smallest overhead that was measured on each device, in bytes. Devices are few, and only those that a driver knows are here.
    overheads: BTreeMap<Arc<str>, u64>,
}

impl<W> Default for Ledger<W> {
    fn default() -> Ledger<W> {
        Ledger { sites: BTreeMap::new(), devices: BTreeMap::new(), overheads: BTreeMap::new() }
    }
}

impl<W: Deref<Target = MemorySlot>> Ledger<W> {
    /// A process begins to use a device, and may hold memory there already. One that is known stays as it is.
    pub fn add(&mut self, id: HolderId, device: Arc<str>, words: W, capacity_bytes: u64, terms: HolderTerms) {
        if self.devices.contains_key(&id) {
            return;
        }
        let overhead = self.overheads.get(&*device).copied().unwrap_or(0);
        let mut holder = Holder {
            device: device.clone(),
            words,
            capacity_bytes,
            terms,
            granted: 0,
            used: 0,
            overhead,
            counted: 0,
            asked: None,
            is_new: true,
        };
        holder.read();
        self.devices.insert(id, device.clone());
        let site = self.sites.entry(device).or_insert_with(|| Site { holders: BTreeMap::new(), measured_ns: 0 });
        site.holders.insert(id, holder);
    }

    /// A device's driver has told at this time how much memory each process has; `of` returns it in bytes, 0 for one that the driver does
    /// not know, none for one that it tells nothing of. Allowances follow.
    pub fn measure(&mut self, device: &str, at_ns: u64, of: impl Fn(HolderId) -> Option<u64>) {
        let Some(site) = self.sites.get_mut(device).filter(|site| site.measured_ns < at_ns) else { return };
        site.measured_ns = at_ns;
        let mut smallest = u64::MAX;
        for (id, holder) in &mut site.holders {
            if let Some(bytes) = of(*id) {
                holder.measure(at_ns, bytes);
                // One whose count has changed meanwhile may be measured too low.
                if holder.overhead > 0 && holder.overhead == bytes.saturating_sub(holder.counted) {
                    smallest = smallest.min(holder.overhead);
                }
            }
        }
        if smallest < u64::MAX {
            let known = self.overheads.entry(device.into()).or_insert(smallest);
            *known = (*known).min(smallest);
        }
        site.settle();
    }

    /// A process asks at this time, in ns, for a measurement. Of those that follow, the first one that is newer tells exactly what its
    /// overhead is, as long as it waits.
    pub fn note_question(&mut self, id: HolderId, now_ns: u64) {
        let Some(site) = self.devices.get(&id).and_then(|device| self.sites.get_mut(device)) else { return };
        if let Some(holder) = site.holders.get_mut(&id) {
            holder.asked = Some((now_ns, holder.driver_counts()));
        }
    }

    /// Removes all that the process behind a connection holds. Returns its devices.
    pub fn remove(&mut self, connection: u64) -> Vec<Arc<str>> {
        let ids: Vec<HolderId> = self.of(connection).map(|(id, _)| id).collect();
        let mut left = Vec::new();
        for device in ids.into_iter().filter_map(|id| self.devices.remove(&id)) {
            if let Some(site) = self.sites.get_mut(&device) {
                site.holders.retain(|(other, _), _| *other != connection);
            }
            self.sites.retain(|_, site| !site.holders.is_empty());
            left.push(device);
        }
        left
    }

    /// Memory of the process behind a connection, by device.
    pub fn of(&self, connection: u64) -> impl Iterator<Item = (HolderId, &Holder<W>)> {
        let own = self.devices.range((connection, 0)..=(connection, u16::MAX));
        own.filter_map(|(id, device)| Some((*id, self.sites.get(device)?.holders.get(id)?)))
    }

    /// All processes.
    pub fn holders(&self) -> impl Iterator<Item = (HolderId, &Holder<W>)> {
        self.sites.values().flat_map(|site| site.holders.iter().map(|(id, holder)| (*id, holder)))
    }

    /// Processes on a device.
    pub fn on(&self, device: &str) -> impl Iterator<Item = (HolderId, &Holder<W>)> {
        self.sites.get(device).into_iter().flat_map(|site| site.holders.iter().map(|(id, holder)| (*id, holder)))
    }

    /// Devices of which processes hold memory.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sites.keys()
    }

    /// Process on a device, by its number.
    pub fn get(&self, id: HolderId) -> Option<&Holder<W>> {
        self.sites.get(self.devices.get(&id)?)?.holders.get(&id)
    }

    /// Number of processes and devices that are kept.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Returns true if nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Returns true if words of some process follow from what others do: they share a limit, or memory is reserved.
    pub fn needs_looks(&self) -> bool {
        self.holders().any(|(_, holder)| holder.is_limited() || holder.terms.reserve_bytes > 0)
    }

    /// Puts other terms in force for a process. The allowance follows by [`Ledger::settle`].
    pub fn set_terms(&mut self, id: HolderId, terms: HolderTerms) {
        let Some(site) = self.devices.get(&id).and_then(|device| self.sites.get_mut(device)) else { return };
        if let Some(holder) = site.holders.get_mut(&id) {
            // As if it came now: what it holds was not granted.
            if !holder.is_limited() && !terms.limits.is_empty() {
                (holder.granted, holder.is_new) = (0, true);
            }
            holder.terms = terms;
        }
    }

    /// Memory that the processes of a pot hold on a device, as last read, in bytes.
    pub fn used(&self, device: &str, pot: Pot) -> u64 {
        let is_in = |holder: &Holder<W>| match pot {
            Pot::Program(program) => holder.terms.program == program,
            pot => holder.is_in(pot),
        };
        let used = self.on(device).filter(|(_, holder)| is_in(holder)).map(|(_, holder)| holder.used);
        used.fold(0, u64::saturating_add)
    }

    /// A process asks for room for so many bytes. Words of all processes on the device are up to date afterwards.
    ///
    /// # Errors
    /// The limit in the way.
    pub fn ask(&mut self, id: HolderId, bytes: u64) -> Result<(), Short> {
        let Some(site) = self.devices.get(&id).and_then(|device| self.sites.get_mut(device)) else { return Ok(()) };
        let mut sums = site.read();
        let wanted = site.holders.get(&id).map_or(0, |holder| holder.used.saturating_add(bytes));
        let granted = site.grant(id, wanted, &mut sums);
        site.publish();
        granted
    }

    /// Brings grants and words of all processes on a device up to date: after one came or went, or its terms changed, and from time to
    /// time.
    pub fn settle(&mut self, device: &str) {
        if let Some(site) = self.sites.get_mut(device) {
            site.settle();
        }
    }
}
