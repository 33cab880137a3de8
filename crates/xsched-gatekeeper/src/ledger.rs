//! Ledger of device time: programs, and the time for which they had each device. Pure, in integer ns, without a clock.
//! [`docs/internals/accounting.md`] defines the quantities.
//!
//! A program is *on* a device while one of its groups is known to have work there. Of a moment in which n programs are on it, each
//! is charged one n-th ([`Usage::gpu_ns`]) and all of it ([`Usage::resident_ns`]). Charges sum to [`Ledger::busy`] to the ns: both
//! grow by the same spans.
//!
//! Reports come late: a group reports that it went idle after its grace time. So each change is entered at its own time, up to
//! [`LATE_NS`] ago, and charged once nothing earlier can come.
//!
//! Without rivals a program's completions are not followed, and its short pauses not seen. Such time is *unfollowed*: it waits until
//! the device's driver has reported the part of it in which the device was active ([`Ledger::measured`]).
//!
//! [`docs/internals/accounting.md`]: https://github.com/xsched/xsched/blob/main/docs/internals/accounting.md

use std::collections::{BTreeMap, HashMap, VecDeque};

use xsched_policy::{GroupId, ProgramId};

/// Nanoseconds of the clock of the gatekeeper's host.
pub type Nanos = u64;

/// Greatest delay of a report, in ns: the longest grace time is 1 ms, and a busy machine delays a thread by some tens of ms.
pub const LATE_NS: Nanos = 100_000_000;

/// Number of entries of one device that wait to be charged at which those that are old enough are charged …
const WAITING_SOME: usize = 64;
/// … and number at which the older half is charged, even if an earlier entry may still come.
const WAITING_MAX: usize = 4_096;

/// Groups that are gone whose parts a book keeps: as many as a program may have at a time.
const GONE_MAX: usize = xsched_proto::segment::GROUPS;

/// Time on a device, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Charged time: time in which n programs were on the device counts one n-th for each.
    pub gpu_ns: u64,
    /// Unfollowed part of it to which the driver's figure was applied.
    pub by_driver_ns: u64,
    /// Unfollowed part of it of which the driver reported nothing: it may be too much.
    pub at_most_ns: u64,
    /// Time in which the program was on the device, alone or not.
    pub resident_ns: u64,
}

impl Usage {
    /// Usage since an earlier state of the same account.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            gpu_ns: self.gpu_ns.saturating_sub(before.gpu_ns),
            by_driver_ns: self.by_driver_ns.saturating_sub(before.by_driver_ns),
            at_most_ns: self.at_most_ns.saturating_sub(before.at_most_ns),
            resident_ns: self.resident_ns.saturating_sub(before.resident_ns),
        }
    }

    fn charge(&mut self, ns: u64, how: How) {
        self.gpu_ns += ns;
        match how {
            How::Followed => {}
            How::ByDriver => self.by_driver_ns += ns,
            How::AtMost => self.at_most_ns += ns,
        }
    }
}

/// Source of a charge.
#[derive(Clone, Copy)]
enum How {
    /// Completions that the programs follow.
    Followed,
    ByDriver,
    AtMost,
}

/// Account of one program on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// Device key.
    pub device: &'a str,
    /// The program.
    pub program: ProgramId,
    /// Usage since the program was added.
    pub usage: Usage,
    /// True once the program has no group there any more, and nothing more can be charged.
    pub closed: bool,
}

/// The books of all devices.
#[derive(Debug, Default)]
pub struct Ledger {
    devices: BTreeMap<String, Device>,
    groups: HashMap<GroupId, Group>,
}

#[derive(Debug)]
struct Group {
    device: String,
    program: ProgramId,
    on: bool,
    /// Time of the last change, as reported.
    since_ns: Nanos,
}

#[derive(Debug, Default)]
struct Device {
    /// Changes reported and not charged yet, in order.
    waiting: Vec<(Nanos, Entry)>,
    /// Time up to which all is charged.
    at_ns: Nanos,
    /// Programs that are on it at that time, by number, each with its groups that are.
    on: Vec<(ProgramId, Vec<GroupId>)>,
    /// True if completions are followed, at that time.
    followed: bool,
    /// True if completions are followed, as last reported.
    told_followed: bool,
    /// Index of the program that gets the ns left over by a division: each in turn.
    turn: usize,
    books: BTreeMap<ProgramId, Book>,
    /// Number of books with unfollowed time that is not measured yet.
    unmeasured: usize,
    busy: Usage,
}

#[derive(Debug, Default)]
struct Book {
    usage: Usage,
    /// Unfollowed time that is not measured yet, in ns.
    unfollowed_ns: u64,
    /// Number of groups, on the device or not.
    groups: u32,
    /// Time at which the last of them was removed.
    left_ns: Nanos,
    /// Parts of the groups in what is charged; of those that are gone, of the last ones.
    parts: Vec<Part>,
    gone: VecDeque<GroupId>,
}

/// Part of one group in the time of its program.
#[derive(Clone, Copy, Debug)]
struct Part {
    group: GroupId,
    gpu_ns: u64,
    unfollowed_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    On(ProgramId, GroupId),
    Off(ProgramId, GroupId),
    Followed(bool),
}

impl Ledger {
    /// Adds a group with nothing on its device.
    pub fn add(&mut self, now: Nanos, id: GroupId, program: ProgramId, device: &str) {
        let own = self.devices.entry(device.to_owned()).or_insert_with(|| Device { at_ns: now, ..Device::default() });
        let book = own.books.entry(program).or_default();
        book.groups += 1;
        book.parts.push(Part { group: id, gpu_ns: 0, unfollowed_ns: 0 });
        self.groups.insert(id, Group { device: device.to_owned(), program, on: false, since_ns: now });
    }

    /// Removes a group, and with it its work on the device.
    pub fn remove(&mut self, now: Nanos, id: GroupId) {
        self.set(now, id, false);
        let Some(group) = self.groups.remove(&id) else { return };
        let Some(book) = self.devices.get_mut(&group.device).and_then(|d| d.books.get_mut(&group.program)) else {
            return;
        };
        book.groups -= 1;
        book.left_ns = now;
        book.gone.push_back(id);
        if book.gone.len() > GONE_MAX
            && let Some(first) = book.gone.pop_front()
        {
            book.parts.retain(|part| part.group != first);
        }
    }

    /// True if a group has work on its device, as far as was reported.
    pub fn is_on(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(|group| group.on)
    }

    /// Enters that from `at` on a group has work on its device, or none any more. A late report counts from its own time, but not from
    /// before the group's last one.
    pub fn set(&mut self, at: Nanos, id: GroupId, on: bool) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.on != on) else { return };
        let at = at.max(group.since_ns);
        (group.on, group.since_ns) = (on, at);
        let entry = if on { Entry::On(group.program, id) } else { Entry::Off(group.program, id) };
        if let Some(device) = self.devices.get_mut(&group.device) {
            device.enter(at, entry);
        }
    }

    /// Enters that the completions of the programs on a group's device are followed from now on, or not any more.
    pub fn follow(&mut self, now: Nanos, id: GroupId, followed: bool) {
        let Some(group) = self.groups.get(&id) else { return };
        let Some(device) = self.devices.get_mut(&group.device) else { return };
        if std::mem::replace(&mut device.told_followed, followed) != followed {
            device.enter(now, Entry::Followed(followed));
        }
    }

    /// Charges unfollowed time by the part of the time since the last call in which a device was active, in percent, as its driver reports;
    /// none = not reported. Due about once a second for each device in [`Ledger::unmeasured`].
    pub fn measured(&mut self, now: Nanos, device: &str, active_percent: Option<u32>) {
        let Some(device) = self.devices.get_mut(device) else { return };
        device.settle(now.saturating_sub(LATE_NS));
        device.unmeasured = 0;
        for book in device.books.values_mut() {
            let span = std::mem::take(&mut book.unfollowed_ns);
            let (ns, how) = match active_percent {
                Some(percent) => (part(span, percent), How::ByDriver),
                None => (span, How::AtMost),
            };
            book.usage.charge(ns, how);
            book.measure_parts(ns, span);
            device.busy.charge(ns, how);
        }
    }

    /// Devices with unfollowed time that is not measured yet. Costs some ns for each device, however many books it has.
    pub fn unmeasured(&self) -> impl Iterator<Item = &str> {
        let alone = |d: &Device| !(d.told_followed || d.on.is_empty() && d.waiting.is_empty());
        self.devices.iter().filter(move |(_, d)| d.unmeasured > 0 || alone(d)).map(|(name, _)| name.as_str())
    }

    /// Charges all up to [`LATE_NS`] ago: no earlier change can be reported any more. All accounts are those of that moment.
    pub fn settle(&mut self, now: Nanos) {
        self.devices.values_mut().for_each(|device| device.settle(now.saturating_sub(LATE_NS)));
    }

    /// Charges all, at the end.
    pub fn finish(&mut self, now: Nanos) {
        self.devices.values_mut().for_each(|device| device.settle(now));
        let names: Vec<String> = self.devices.keys().cloned().collect();
        names.iter().for_each(|name| self.measured(now, name, None));
    }

    /// Accounts of all programs on all devices.
    pub fn accounts(&self) -> impl Iterator<Item = Account<'_>> {
        self.devices.iter().flat_map(|(name, device)| {
            device.books.iter().map(move |(&program, book)| device.account(name, program, book))
        })
    }

    /// Account of one program on one device; none = it has no book there.
    pub fn account(&self, device: &str, program: ProgramId) -> Option<Account<'_>> {
        let (name, own) = self.devices.get_key_value(device)?;
        Some(own.account(name, program, own.books.get(&program)?))
    }

    /// The part of a group in [`Usage::gpu_ns`] of its program, in ns: time that several groups of a program were on the device is divided
    /// among them. None = there is no such book, or the group is gone for long.
    pub fn group_ns(&self, device: &str, program: ProgramId, group: GroupId) -> Option<u64> {
        let parts = &self.devices.get(device)?.books.get(&program)?.parts;
        Some(parts.iter().find(|part| part.group == group)?.gpu_ns)
    }

    /// True if a program has a book on some device.
    pub fn has_books(&self, program: ProgramId) -> bool {
        self.devices.values().any(|device| device.books.contains_key(&program))
    }

    /// True if a program that has no group on a device any more never had work there: then its book may be closed at once.
    pub fn is_blank(&self, device: &str, program: ProgramId) -> bool {
        let Some(own) = self.devices.get(device) else { return false };
        let of_program = |entry: &Entry| matches!(entry, Entry::On(p, _) | Entry::Off(p, _) if *p == program);
        own.books
            .get(&program)
            .is_some_and(|book| book.groups == 0 && book.usage == Usage::default() && book.unfollowed_ns == 0)
            && !own.on.iter().any(|(p, _)| *p == program)
            && !own.waiting.iter().any(|(_, entry)| of_program(entry))
    }

    /// Time in which some program was on a device, since it has books. `resident_ns` is that time without the deductions of
    /// [`Ledger::measured`].
    pub fn busy(&self, device: &str) -> Usage {
        self.devices.get(device).map_or_else(Usage::default, |device| device.busy)
    }

    /// Devices that have books, and the time in which some program was on each.
    pub fn devices(&self) -> impl Iterator<Item = (&str, Usage)> {
        self.devices.iter().map(|(name, device)| (name.as_str(), device.busy))
    }

    /// Closes the book of a program on a device, once it is [`Account::closed`], and the device's with its last one.
    pub fn close(&mut self, device: &str, program: ProgramId) {
        let Some(own) = self.devices.get_mut(device) else { return };
        if own.books.get(&program).is_some_and(|book| book.groups == 0) {
            let unfollowed = own.books.remove(&program).is_some_and(|book| book.unfollowed_ns > 0);
            own.unmeasured -= usize::from(unfollowed);
        }
        if own.books.is_empty() {
            self.devices.remove(device);
        }
    }
}

impl Book {
    /// Divides a time among groups that were on the device together.
    fn divide(&mut self, ns: u64, groups: &[GroupId], figure: fn(&mut Part) -> &mut u64) {
        let (each, rest) = (ns / groups.len() as u64, ns % groups.len() as u64);
        for (at, group) in groups.iter().enumerate() {
            if let Some(part) = self.parts.iter_mut().find(|part| part.group == *group) {
                *figure(part) += each + u64::from((at as u64) < rest);
            }
        }
    }

    /// Divides what a measurement has left of the time that was not followed, by the groups' parts in that.
    fn measure_parts(&mut self, ns: u64, span: u64) {
        let (mut unfollowed, mut given) = (0, 0);
        for part in self.parts.iter_mut().filter(|part| part.unfollowed_ns > 0) {
            unfollowed += std::mem::take(&mut part.unfollowed_ns);
            let due = (u128::from(ns) * u128::from(unfollowed) / u128::from(span.max(1))) as u64;
            part.gpu_ns += due - given;
            given = due;
        }
    }
}

impl Device {
    fn account<'a>(&self, name: &'a str, program: ProgramId, book: &Book) -> Account<'a> {
        let closed = book.groups == 0 && self.at_ns >= book.left_ns && book.unfollowed_ns == 0;
        Account { device: name, program, usage: book.usage, closed }
    }

    fn enter(&mut self, at: Nanos, entry: Entry) {
        // Charged time stays charged.
        let at = at.max(self.at_ns);
        let place = self.waiting.partition_point(|(other, _)| *other <= at);
        self.waiting.insert(place, (at, entry));
        if self.waiting.len() > WAITING_MAX {
            self.settle(self.waiting[WAITING_MAX / 2].0);
        } else if self.waiting.len() > WAITING_SOME && self.waiting[WAITING_SOME / 2].0 + LATE_NS <= at {
            self.settle(at - LATE_NS);
        }
    }

    /// Charges all up to a time.
    fn settle(&mut self, to: Nanos) {
        let due = self.waiting.partition_point(|(at, _)| *at <= to);
        let entries: Vec<(Nanos, Entry)> = self.waiting.drain(..due).collect();
        for (at, entry) in entries {
            self.advance(at);
            match entry {
                Entry::On(program, group) => match self.on.binary_search_by_key(&program, |(p, _)| *p) {
                    Ok(place) => self.on[place].1.push(group),
                    Err(place) => self.on.insert(place, (program, vec![group])),
                },
                Entry::Off(program, group) => {
                    if let Ok(place) = self.on.binary_search_by_key(&program, |(p, _)| *p) {
                        self.on[place].1.retain(|other| *other != group);
                        if self.on[place].1.is_empty() {
                            self.on.remove(place);
                        }
                    }
                }
                Entry::Followed(followed) => self.followed = followed,
            }
        }
        self.advance(to);
    }

    fn advance(&mut self, to: Nanos) {
        let span = to.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(to);
        let sharers = self.on.len() as u64;
        if span == 0 || sharers == 0 {
            return;
        }
        self.busy.resident_ns += span;
        let measures = self.followed || sharers > 1;
        let (each, rest) = (span / sharers, (span % sharers) as usize);
        for (place, (program, groups)) in self.on.iter().enumerate() {
            let book = self.books.entry(*program).or_default();
            book.usage.resident_ns += span;
            if !measures {
                self.unmeasured += usize::from(book.unfollowed_ns == 0);
                book.unfollowed_ns += span;
                book.divide(span, groups, |part| &mut part.unfollowed_ns);
                continue;
            }
            let gets_one = (place + self.on.len() - self.turn % self.on.len()) % self.on.len() < rest;
            let ns = each + u64::from(gets_one);
            book.usage.charge(ns, How::Followed);
            book.divide(ns, groups, |part| &mut part.gpu_ns);
        }
        if measures {
            self.turn = self.turn.wrapping_add(rest);
            self.busy.charge(span, How::Followed);
        }
    }
}

fn part(ns: u64, percent: u32) -> u64 {
    (u128::from(ns) * u128::from(percent.min(100)) / 100) as u64
}

#[cfg(test)]
mod tests;
