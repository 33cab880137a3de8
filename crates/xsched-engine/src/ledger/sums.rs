//! Sums over the processes on a device, as they were read at one time.
//!
//! Where the daemon does not know the size of a device, each process says one. Then the figures of other users count only where their word
//! on the size is about the same, and no further than that size: neither the largest nor the smallest word decides for others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;

use xsched_proto::account::MemorySlot;

use super::holder::{Holder, Pot, UserKey};

/// Two words on the size of a device agree if they differ by no more than this part of one: interfaces round differently.
const AGREE_PART: u64 = 8;

/// Memory of some processes, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Memory that counts against the limits of others, in bytes.
    pub(super) committed: u64,
    /// Memory held, in bytes.
    pub(super) used: u64,
    /// Number of processes.
    members: usize,
}

impl Sum {
    fn add(&mut self, committed: u64, used: u64, members: usize) {
        self.committed = self.committed.saturating_add(committed);
        self.used = self.used.saturating_add(used);
        self.members += members;
    }

    /// Puts one part in the place of another.
    fn replace(&mut self, before: Sum, after: Sum) {
        self.committed = self.committed.saturating_sub(before.committed).saturating_add(after.committed);
        self.used = self.used.saturating_sub(before.used).saturating_add(after.used);
    }
}

/// Processes of one user in a set: their sum, and the size of the device that the user says.
#[derive(Clone, Copy, Debug)]
struct OfUser {
    user: UserKey,
    says_bytes: u64,
    sum: Sum,
}

/// Sizes of the device for which sums are kept as the processes that say them believe them; those beyond are added up for each question.
const SIZES_MAX: usize = 4;

impl OfUser {
    /// Sum as far as a process of another user believes it, to which the device has so many bytes.
    fn believed(&self, bytes: u64) -> Sum {
        let agrees = self.says_bytes.abs_diff(bytes) <= bytes / AGREE_PART;
        let cut = |of: u64| if agrees { of.min(bytes) } else { 0 };
        Sum { committed: cut(self.sum.committed), used: cut(self.sum.used), members: 0 }
    }
}

/// Set of processes on the device, added up.
#[derive(Clone, Debug, Default)]
struct SetSum {
    all: Sum,
    /// By user, in their order, where the size of the device is not known.
    users: Vec<OfUser>,
    /// Sums as others than the users themselves believe them, by the size that those say.
    believed: Vec<(u64, Sum)>,
}

impl SetSum {
    /// Sum as far as a process believes the others. The figures of its own user count in full.
    fn believed_by<W>(&self, own: &Holder<W>) -> Sum {
        if self.users.is_empty() {
            return self.all;
        }
        let bytes = own.capacity_bytes;
        let kept = self.believed.iter().find(|(size, _)| *size == bytes).map(|(_, sum)| *sum);
        let mut sum = kept.unwrap_or_else(|| self.believed_at(bytes));
        if let Some(of) = self.find(own.terms.user).ok().and_then(|at| self.users.get(at)) {
            sum.replace(of.believed(bytes), of.sum);
        }
        Sum { members: self.all.members, ..sum }
    }

    fn believed_at(&self, bytes: u64) -> Sum {
        let mut sum = Sum::default();
        self.users.iter().for_each(|of| sum.replace(Sum::default(), of.believed(bytes)));
        sum
    }

    /// Place of a user, or the place where it belongs.
    fn find(&self, user: UserKey) -> Result<usize, usize> {
        self.users.binary_search_by_key(&user, |of| of.user)
    }

    fn add<W: Deref<Target = MemorySlot>>(&mut self, holder: &Holder<W>, is_known: bool) {
        let (committed, used) = (holder.committed(), holder.used);
        self.all.add(committed, used, 1);
        if is_known {
            return;
        }
        let (user, says_bytes) = (holder.terms.user, holder.capacity_bytes);
        let at = self.find(user).unwrap_or_else(|at| {
            self.users.insert(at, OfUser { user, says_bytes, sum: Sum::default() });
            at
        });
        if let Some(of) = self.users.get_mut(at) {
            of.says_bytes = of.says_bytes.max(says_bytes);
            of.sum.add(committed, used, 1);
        }
    }

    /// Keeps the sums as processes believe them that say one of these sizes.
    fn keep(&mut self, sizes: &BTreeSet<u64>) {
        if !self.users.is_empty() {
            self.believed = sizes.iter().map(|bytes| (*bytes, self.believed_at(*bytes))).collect();
        }
    }

    /// Follows a process whose committed memory has changed.
    fn change(&mut self, user: UserKey, before: u64, after: u64) {
        let change = |sum: &mut Sum| sum.committed = sum.committed.saturating_sub(before).saturating_add(after);
        change(&mut self.all);
        let Some(of) = self.find(user).ok().and_then(|at| self.users.get_mut(at)) else { return };
        let was = *of;
        change(&mut of.sum);
        for (bytes, sum) in &mut self.believed {
            sum.replace(was.believed(*bytes), of.believed(*bytes));
        }
    }
}

/// Reserve that a program has not taken.
#[derive(Clone, Copy, Debug, Default)]
struct Reserve {
    priority: i32,
    /// Memory that processes of the same user leave, in bytes.
    own: u64,
    /// Part of it that others leave, too, in bytes.
    others: u64,
}

/// Sums of reserves by priority, the most urgent one first: priority, and the sum down to it.
type Ladder = Vec<(i32, u64)>;

/// Reserves on a device that were not taken.
#[derive(Debug, Default)]
struct Reserves {
    programs: BTreeMap<u64, Reserve>,
    of_all: Ladder,
    /// The rest that only the same user's processes leave, by user.
    of_users: BTreeMap<UserKey, Ladder>,
}

impl Reserves {
    fn of<W>(holders: &BTreeMap<super::HolderId, Holder<W>>) -> Reserves {
        let mut programs: BTreeMap<u64, (UserKey, Reserve, u64)> = BTreeMap::new();
        if !holders.values().any(|holder| holder.terms.reserve_bytes > 0) {
            return Reserves::default();
        }
        for holder in holders.values() {
            let terms = &holder.terms;
            let new = || (terms.user, Reserve { priority: terms.priority, ..Reserve::default() }, 0);
            let (_, reserve, used) = programs.entry(terms.program).or_insert_with(new);
            reserve.own = reserve.own.max(terms.reserve_bytes.min(holder.capacity_bytes));
            reserve.others = reserve.others.max(terms.reserve_of_others_bytes.min(holder.capacity_bytes));
            reserve.priority = reserve.priority.max(terms.priority);
            *used = used.saturating_add(holder.used);
        }
        let mut reserves = Reserves::default();
        for (program, (user, reserve, used)) in programs {
            let (own, others) = (reserve.own.saturating_sub(used), reserve.others.saturating_sub(used));
            if own > 0 {
                reserves.programs.insert(program, Reserve { own, others, ..reserve });
                reserves.of_all.push((reserve.priority, others));
                reserves.of_users.entry(user).or_default().push((reserve.priority, own.saturating_sub(others)));
            }
        }
        for ladder in reserves.of_users.values_mut().chain([&mut reserves.of_all]) {
            ladder.sort_by_key(|(priority, _)| core::cmp::Reverse(*priority));
            let mut sum: u64 = 0;
            for (_, bytes) in ladder {
                sum = sum.saturating_add(*bytes);
                *bytes = sum;
            }
        }
        reserves
    }

    /// Sum of the reserves of programs more urgent than a priority.
    fn above(ladder: &Ladder, priority: i32) -> u64 {
        let more_urgent = ladder.partition_point(|(other, _)| *other > priority);
        more_urgent.checked_sub(1).map_or(0, |last| ladder[last].1)
    }

    /// Memory that a process leaves to programs more urgent than itself, in bytes.
    fn kept_free_by<W>(&self, own: &Holder<W>) -> u64 {
        let priority = own.terms.priority;
        let of_user = self.of_users.get(&own.terms.user).map_or(0, |ladder| Reserves::above(ladder, priority));
        let all = Reserves::above(&self.of_all, priority).saturating_add(of_user);
        let of_itself = self.programs.get(&own.terms.program).filter(|reserve| reserve.priority > priority);
        all.saturating_sub(of_itself.map_or(0, |reserve| reserve.own)).min(own.capacity_bytes)
    }
}

/// Sums over the processes on a device. Questions that are decided one after the other share them.
#[derive(Debug, Default)]
pub struct Sums {
    pots: HashMap<Pot, SetSum>,
    held: SetSum,
    reserves: Reserves,
    /// Sets whose advances were taken back since the sums were read.
    taken_back: BTreeSet<Pot>,
    /// Memory that processes were granted since then and asked for, in bytes in all: an earlier question keeps its room.
    asked: BTreeMap<super::HolderId, u64>,
    /// Of these, the ones that were granted more than they asked for.
    rounded_up: Vec<super::HolderId>,
}

impl Sums {
    /// Adds up processes, of which each was read just now. `is_known`: the size of their device is known to the daemon.
    pub(super) fn of<W: Deref<Target = MemorySlot>>(
        holders: &BTreeMap<super::HolderId, Holder<W>>,
        is_known: bool,
    ) -> Sums {
        let pots = HashMap::with_capacity(2 * holders.len());
        let mut sums = Sums { pots, reserves: Reserves::of(holders), ..Sums::default() };
        for holder in holders.values() {
            sums.held.add(holder, is_known);
            for (pot, _) in &holder.terms.limits {
                sums.pots.entry(*pot).or_default().add(holder, is_known || pot.is_of_one_user());
            }
        }
        if !is_known {
            let sizes: BTreeSet<u64> = holders.values().map(|holder| holder.capacity_bytes).collect();
            let sizes: BTreeSet<u64> = sizes.into_iter().take(SIZES_MAX).collect();
            sums.pots.values_mut().chain([&mut sums.held]).for_each(|set| set.keep(&sizes));
        }
        sums
    }

    /// Sum of a pot as a process believes it.
    pub(super) fn seen_by<W>(&self, own: &Holder<W>, pot: Pot) -> Sum {
        self.pots.get(&pot).map_or_else(Sum::default, |set| set.believed_by(own))
    }

    /// Memory that a process leaves to programs more urgent than itself, and that those have not taken, in bytes.
    pub(super) fn keep_free<W>(&self, own: &Holder<W>) -> u64 {
        self.reserves.kept_free_by(own)
    }

    /// Returns true if an allocation of a process leaves free what is reserved for more urgent programs, as far as memory of attached
    /// programs goes. The process itself asks its driver, which knows of other memory, too.
    pub(super) fn leaves_reserve<W>(&self, own: &Holder<W>, bytes: u64) -> bool {
        let kept = self.keep_free(own);
        // An advance may be allocated at any time.
        let held = self.held.believed_by(own).used;
        kept == 0 || held.saturating_add(kept).saturating_add(bytes) <= own.capacity_bytes
    }

    /// Memory that a process may hold in all, with the others' part as it is, and the pot that leaves it no more; none = there is no limit.
    pub(super) fn room<W: Deref<Target = MemorySlot>>(&self, own: &Holder<W>) -> Option<(u64, Pot)> {
        let most = |(pot, limit): &(Pot, u64)| {
            let others = self.seen_by(own, *pot).committed.saturating_sub(own.committed());
            let kept = if *pot == Pot::Device { self.keep_free(own) } else { 0 };
            (limit.saturating_sub(others).saturating_sub(kept), *pot)
        };
        own.terms.limits.iter().map(most).min()
    }

    /// Returns true if a process shares none of its limits.
    pub(super) fn is_alone<W>(&self, own: &Holder<W>) -> bool {
        own.terms.limits.iter().all(|(pot, _)| !self.is_shared(*pot))
    }

    fn is_shared(&self, pot: Pot) -> bool {
        self.pots.get(&pot).is_some_and(|set| set.all.members > 1)
    }

    /// Pots of a process that it shares, and whose advances were not taken back so far. From now on they count as taken back.
    pub(super) fn take_back<W>(&mut self, own: &Holder<W>) -> Vec<Pot> {
        let pots = own.terms.limits.iter().map(|(pot, _)| *pot);
        let pots: Vec<Pot> = pots.filter(|pot| self.is_shared(*pot) && !self.taken_back.contains(pot)).collect();
        self.taken_back.extend(&pots);
        pots
    }

    /// A process was granted so much in all, of which it asked for so much.
    pub(super) fn note_grant(&mut self, id: super::HolderId, asked: u64, granted: u64) {
        self.asked.insert(id, asked);
        if granted > asked {
            self.rounded_up.push(id);
        }
    }

    /// Memory in all that a process keeps where advances are taken back, in bytes.
    pub(super) fn asked(&self, id: super::HolderId) -> u64 {
        self.asked.get(&id).copied().unwrap_or(0)
    }

    /// Processes that were granted more than they asked for since this was last called.
    pub(super) fn take_rounded_up(&mut self) -> Vec<super::HolderId> {
        core::mem::take(&mut self.rounded_up)
    }

    /// Follows the change of a process.
    pub(super) fn change<W: Deref<Target = MemorySlot>>(
        &mut self,
        holder: &mut Holder<W>,
        change: impl FnOnce(&mut Holder<W>),
    ) {
        let before = holder.committed();
        change(holder);
        let after = holder.committed();
        for (pot, _) in &holder.terms.limits {
            self.pots.entry(*pot).or_default().change(holder.terms.user, before, after);
        }
    }
}
