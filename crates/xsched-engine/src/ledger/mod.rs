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

mod holder;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_proto::account::MemorySlot;

pub use holder::{Holder, HolderId, HolderTerms, Pot, Short, UserKey};
pub use sums::Sums;

/// Step in which a process gets memory where others share its limit, in bytes.
pub const STEP_BYTES: u64 = 64 << 20;
/// Memory that a process may hold beyond its grants and that counts against the limits of others all the same, in bytes: contexts and
/// modules, for which no program asks. More than that can only be a false report.
pub const BEYOND_BYTES: u64 = 2 << 30;

/// Answer of the limits to a question for room.
#[derive(Debug)]
pub struct Granted {
    /// The limit in the way, if one is.
    pub result: Result<(), Short>,
    /// Number of processes that were looked at for the answer.
    pub looked_at: usize,
}

/// Processes on one device.
#[derive(Debug)]
struct Site<W> {
    holders: BTreeMap<HolderId, Holder<W>>,
    /// Processes of each program.
    programs: BTreeMap<u64, BTreeSet<HolderId>>,
    /// Memory of the device as its driver told the daemon; none = not known.
    size_bytes: Option<u64>,
    /// Time of the driver's last figures, in ns.
    measured_ns: u64,
}

impl<W: Deref<Target = MemorySlot>> Site<W> {
    /// Reads what all processes hold, and adds it up.
    fn read(&mut self) -> Sums {
        self.holders.values_mut().for_each(Holder::read);
        self.sums()
    }

    fn sums(&self) -> Sums {
        Sums::of(&self.holders, self.size_bytes.is_some())
    }

    /// Takes back what other processes may take, and have not taken, of the limits that a process has. Done once for each limit while the
    /// same sums are in use: later questions find it taken back. Returns the number of processes that were looked at.
    fn take_back_for(&mut self, id: HolderId, sums: &mut Sums) -> usize {
        let Some(own) = self.holders.get(&id) else { return 0 };
        let pots = sums.take_back(own);
        let rounded_up = sums.take_rounded_up();
        for other in rounded_up.iter().filter(|other| **other != id) {
            let asked = sums.asked(*other);
            if let Some(holder) = self.holders.get_mut(other) {
                sums.change(holder, |holder| holder.lower(asked));
            }
        }
        if pots.is_empty() {
            return rounded_up.len();
        }
        for (other, holder) in &mut self.holders {
            if *other != id && pots.iter().any(|pot| holder.is_in(*pot)) {
                let asked = sums.asked(*other);
                sums.change(holder, |holder| holder.lower(asked));
            }
        }
        self.holders.len()
    }

    /// Grants a process so much memory in all, if its limits leave that, and some beyond.
    fn grant(&mut self, id: HolderId, wanted: u64, sums: &mut Sums) -> Granted {
        let mut looked_at = 0;
        let room = |site: &Site<W>, sums: &Sums| site.holders.get(&id).and_then(|own| sums.room(own));
        let Some((mut most, _)) = room(self, sums) else { return Granted { result: Ok(()), looked_at } };
        if wanted > most {
            looked_at = self.take_back_for(id, sums);
            let Some((left, pot)) = room(self, sums) else { return Granted { result: Ok(()), looked_at } };
            if wanted > left {
                return Granted { result: self.short(id, pot, sums), looked_at };
            }
            most = left;
        }
        if let Some(holder) = self.holders.get_mut(&id) {
            let alone = sums.is_alone(holder);
            let step = wanted.checked_next_multiple_of(STEP_BYTES).unwrap_or(wanted);
            let granted = if alone { most } else { holder.granted.min(most).max(step.min(most)) };
            sums.change(holder, |holder| holder.granted = granted);
            sums.note_grant(id, wanted, granted);
        }
        Granted { result: Ok(()), looked_at }
    }

    fn short(&self, id: HolderId, pot: Pot, sums: &Sums) -> Result<(), Short> {
        let Some(own) = self.holders.get(&id) else { return Ok(()) };
        let limit_bytes = own.terms.limits.iter().find(|(other, _)| *other == pot).map_or(0, |(_, bytes)| *bytes);
        Err(Short { pot, limit_bytes, used_bytes: sums.seen_by(own, pot).used })
    }

    fn settle(&mut self) {
        let mut sums = self.read();
        for id in self.holders.keys().copied().collect::<Vec<_>>() {
            self.settle_one(id, &mut sums);
        }
        self.publish_by(&sums);
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
        if is_new && !alone && self.grant(id, used.saturating_add(1), sums).result.is_err() {
            // Another daemon may have granted what it holds.
            if let Some(holder) = self.holders.get_mut(&id) {
                let most = sums.room(holder).map_or(0, |(most, _)| most);
                sums.change(holder, |holder| holder.granted = used.min(most));
            }
        }
    }

    /// Stores the words of all processes, by sums of them.
    fn publish_by(&mut self, sums: &Sums) {
        for holder in self.holders.values_mut() {
            holder.allow();
            store_words(holder, sums);
        }
    }

    /// Stores the words of all processes.
    fn publish(&mut self) {
        let sums = self.sums();
        self.publish_by(&sums);
    }
}

impl<W> Site<W> {
    /// A process belongs to a program no more.
    fn leave_program(&mut self, program: u64, id: HolderId) {
        if let Some(ids) = self.programs.get_mut(&program) {
            ids.remove(&id);
            if ids.is_empty() {
                self.programs.remove(&program);
            }
        }
    }
}

/// Stores what a process is to see of its device.
fn store_words<W: Deref<Target = MemorySlot>>(holder: &Holder<W>, sums: &Sums) {
    let (limit, others) = seen(holder, sums);
    holder.words.keep_free_bytes.store(sums.keep_free(holder), Relaxed);
    holder.words.others_used_bytes.store(others, Relaxed);
    holder.words.limit_bytes.store(limit, Relaxed);
}

/// Size of the device as a process is to see it (0 = as it is), and the part of it that others have taken, in bytes.
fn seen<W: Deref<Target = MemorySlot>>(own: &Holder<W>, sums: &Sums) -> (u64, u64) {
    let Some(limit) = own.limit_bytes() else { return (0, 0) };
    let left = |(pot, limit): &(Pot, u64)| {
        let kept = if *pot == Pot::Device { sums.keep_free(own) } else { 0 };
        limit.saturating_sub(sums.seen_by(own, *pot).used).saturating_sub(kept)
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
    /// Number of processes of each user on each device.
    users: BTreeMap<UserKey, BTreeMap<Arc<str>, usize>>,
    /// Facts on devices that a driver knows, which are few.
    known: BTreeMap<Arc<str>, KnownDevice>,
}

/// Facts on a device that its driver told the daemon.
#[derive(Clone, Copy, Debug, Default)]
struct KnownDevice {
    /// Memory, in bytes.
    size_bytes: Option<u64>,
    /// Smallest overhead that was measured, in bytes.
    overhead_bytes: Option<u64>,
}

impl<W> Default for Ledger<W> {
    fn default() -> Ledger<W> {
        Ledger { sites: BTreeMap::new(), devices: BTreeMap::new(), users: BTreeMap::new(), known: BTreeMap::new() }
    }
}

impl<W: Deref<Target = MemorySlot>> Ledger<W> {
    /// A process begins to use a device, and may hold memory there already. One that is known stays as it is. `says_bytes`: memory of the
    /// device as the process says, which counts only where the driver's figure is not known.
    pub fn add(&mut self, id: HolderId, device: Arc<str>, words: W, says_bytes: u64, terms: HolderTerms) {
        if self.devices.contains_key(&id) {
            return;
        }
        let known = self.known.get(&*device).copied().unwrap_or_default();
        let mut holder = Holder {
            device: device.clone(),
            words,
            capacity_bytes: known.size_bytes.unwrap_or(says_bytes),
            terms,
            granted: 0,
            used: 0,
            overhead: known.overhead_bytes.unwrap_or(0),
            counted: 0,
            asked: None,
            is_new: true,
        };
        holder.read();
        self.devices.insert(id, device.clone());
        *self.users.entry(holder.terms.user).or_default().entry(device.clone()).or_default() += 1;
        let new = || Site {
            holders: BTreeMap::new(),
            programs: BTreeMap::new(),
            size_bytes: known.size_bytes,
            measured_ns: 0,
        };
        let site = self.sites.entry(device).or_insert_with(new);
        site.programs.entry(holder.terms.program).or_default().insert(id);
        site.holders.insert(id, holder);
    }

    /// The driver of a device has told how much memory that has, in bytes. Grants and words follow by [`Ledger::settle`]. Returns true if
    /// that is news for processes that hold some.
    pub fn note_size(&mut self, device: &str, bytes: u64) -> bool {
        if bytes == 0 || self.known.get(device).is_some_and(|known| known.size_bytes == Some(bytes)) {
            return false;
        }
        self.known.entry(device.into()).or_default().size_bytes = Some(bytes);
        let Some(site) = self.sites.get_mut(device) else { return false };
        site.size_bytes = Some(bytes);
        site.holders.values_mut().for_each(|holder| holder.capacity_bytes = bytes);
        true
    }

    /// Memory of a device as its driver told, in bytes; none = not known.
    pub fn size_bytes(&self, device: &str) -> Option<u64> {
        self.known.get(device)?.size_bytes
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
            let known = self.known.entry(device.into()).or_default();
            known.overhead_bytes = Some(known.overhead_bytes.map_or(smallest, |before| before.min(smallest)));
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
        for id in ids {
            let Some(device) = self.devices.remove(&id) else { continue };
            if let Some(site) = self.sites.get_mut(&device) {
                if let Some(holder) = site.holders.remove(&id) {
                    site.leave_program(holder.terms.program, id);
                    if let Some(of_user) = self.users.get_mut(&holder.terms.user) {
                        if of_user.get(&device) == Some(&1) {
                            of_user.remove(&device);
                        } else if let Some(count) = of_user.get_mut(&device) {
                            *count -= 1;
                        }
                        if of_user.is_empty() {
                            self.users.remove(&holder.terms.user);
                        }
                    }
                }
                if site.holders.is_empty() {
                    self.sites.remove(&device);
                }
            }
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
        let Some(holder) = site.holders.get_mut(&id) else { return };
        // As if it came now: what it holds was not granted.
        if !holder.is_limited() && !terms.limits.is_empty() {
            (holder.granted, holder.is_new) = (0, true);
        }
        let (before, now) = (holder.terms.program, terms.program);
        // The user of a process stays.
        holder.terms = HolderTerms { user: holder.terms.user, ..terms };
        if before != now {
            site.leave_program(before, id);
            site.programs.entry(now).or_default().insert(id);
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

    /// Processes of a program on a device.
    pub fn of_program(&self, device: &str, program: u64) -> impl Iterator<Item = (HolderId, &Holder<W>)> {
        let site = self.sites.get(device);
        let ids = site.and_then(|site| site.programs.get(&program)).into_iter().flatten();
        ids.filter_map(move |id| Some((*id, site?.holders.get(id)?)))
    }

    /// Programs on a device, each with its processes there.
    pub fn programs_on(&self, device: &str) -> impl Iterator<Item = impl Iterator<Item = (HolderId, &Holder<W>)>> {
        self.sites.get(device).into_iter().flat_map(|site| {
            let holder = |id: &HolderId| Some((*id, site.holders.get(id)?));
            site.programs.values().map(move |ids| ids.iter().filter_map(holder))
        })
    }

    /// Number of processes of a user by device.
    pub fn count_of(&self, user: UserKey) -> &BTreeMap<Arc<str>, usize> {
        static NONE: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        self.users.get(&user).unwrap_or(&NONE)
    }

    /// Number of processes on a device.
    pub fn len_on(&self, device: &str) -> usize {
        self.sites.get(device).map_or(0, |site| site.holders.len())
    }

    /// A process asks for room for so many bytes. Words of all processes on the device are up to date afterwards.
    ///
    /// # Errors
    /// The limit in the way.
    pub fn ask(&mut self, id: HolderId, bytes: u64) -> Result<(), Short> {
        let Some(device) = self.devices.get(&id).cloned() else { return Ok(()) };
        let mut sums = self.read(&device);
        let granted = self.ask_beside(id, bytes, &mut sums);
        self.publish(&device);
        granted.result
    }

    /// Reads what the processes on a device hold: the first part of [`Ledger::ask`], done once for several questions.
    pub fn read(&mut self, device: &str) -> Sums {
        self.sites.get_mut(device).map_or_else(Sums::default, Site::read)
    }

    /// Asks for room for so many bytes by sums that were read just now. Words follow by [`Ledger::publish_one`] and [`Ledger::settle`].
    pub fn ask_beside(&mut self, id: HolderId, bytes: u64, sums: &mut Sums) -> Granted {
        let site = self.devices.get(&id).and_then(|device| self.sites.get_mut(device));
        let Some(site) = site else { return Granted { result: Ok(()), looked_at: 0 } };
        let wanted = site.holders.get(&id).map_or(0, |holder| holder.used.saturating_add(bytes));
        site.grant(id, wanted, sums)
    }

    /// Returns true if an allocation of a process leaves free what is reserved for more urgent programs.
    pub fn leaves_reserve(&self, id: HolderId, bytes: u64, sums: &Sums) -> bool {
        self.get(id).is_none_or(|own| sums.leaves_reserve(own, bytes))
    }

    /// The limit in the way of so many bytes more, by sums that were read just now; none = there is room. Nothing is granted.
    pub fn short_of(&self, id: HolderId, bytes: u64, sums: &Sums) -> Option<Short> {
        let site = self.sites.get(self.devices.get(&id)?)?;
        let own = site.holders.get(&id)?;
        let (most, pot) = sums.room(own)?;
        if own.used.saturating_add(bytes) <= most { None } else { site.short(id, pot, sums).err() }
    }

    /// Stores the words of one process, by sums that were read just now. Those of others follow by [`Ledger::settle`].
    pub fn publish_one(&mut self, id: HolderId, sums: &Sums) {
        let site = self.devices.get(&id).and_then(|device| self.sites.get_mut(device));
        if let Some(holder) = site.and_then(|site| site.holders.get_mut(&id)) {
            holder.allow();
            store_words(holder, sums);
        }
    }

    /// Stores the words of all processes on a device.
    fn publish(&mut self, device: &str) {
        if let Some(site) = self.sites.get_mut(device) {
            site.publish();
        }
    }

    /// Brings grants and words of all processes on a device up to date: after one came or went, or its terms changed, and from time to
    /// time.
    pub fn settle(&mut self, device: &str) {
        if let Some(site) = self.sites.get_mut(device) {
            site.settle();
        }
    }
}
