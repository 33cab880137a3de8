//! Groups of one hardware context: a gate that the arbiter closes yields instead, where all groups that have the device publish how they
//! keep up.
//!
//! Yielding only relaxes the arbiter's decisions: a gate that it opens is open, and a group that yields is held at most when its gate
//! would be closed.
//!
//! Among several groups that are kept from the device, each makes room for those of more priority, too.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use xsched_policy::GroupId;
use xsched_proto::backlog::PAGES;
use xsched_proto::gate::Gate;
use xsched_proto::hint::Slo;
use xsched_proto::segment::{GroupSlot, state};
use xsched_proto::trace::Why;
use xsched_proto::transitions::Step;

use crate::rule::{InForce, Rule, TARGET_PERCENT};
use crate::{Gated, Gatekeeper, Micros};

/// Time, in ns, for which a group publishes how its queues keep up after another one made room for it: it may begin its next burst with
/// the one command that matters.
const TELLS_NS: u64 = 10_000_000_000;

/// Membership of a group in a hardware context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Company {
    /// Number of the context's server.
    pub server: u64,
    /// Page of its program in [`xsched_proto::backlog`], and the epoch of that page; none = no page.
    pub page: Option<(u8, u32)>,
}

/// State of one group beside others of its hardware context.
pub(crate) struct Sharing {
    company: Option<Company>,
    /// Rule for others beside this group.
    rule: Rule,
    /// Slowdown that its target allows, in percent of the time alone.
    target_percent: u32,
    /// Time at which others last made room for this group, in ns, as long as it publishes how its queues keep up.
    tells_since_ns: Option<u64>,
    /// Time since which its gate yields.
    yields_since: Option<Micros>,
    /// Earlier times for which its gate yielded.
    opened: Opened,
    /// Commands completed at the last visit to its yielding gate.
    completed: u64,
    /// Commands completed at the end of its last burst.
    burst_completed: u64,
    pub(crate) demand: Demand,
}

impl Sharing {
    /// A group in no company, which has completed so many commands.
    pub(crate) fn new(completed: u64) -> Sharing {
        Sharing {
            company: None,
            rule: Rule::default(),
            target_percent: TARGET_PERCENT,
            tells_since_ns: None,
            yields_since: None,
            opened: Opened::default(),
            completed,
            burst_completed: completed,
            demand: Demand::default(),
        }
    }
}

/// Times and counts of a group's yielding gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of times that the closed gate began to yield.
    pub times: u64,
    /// Time for which it yielded, in µs.
    pub us: u64,
}

/// The groups that a group makes room for.
#[derive(Clone, Copy, Default)]
enum Above {
    /// No group so far.
    #[default]
    Nobody,
    /// Groups of one server, all of which publish how they keep up.
    Tell {
        server: u64,
        /// Bits of their pages.
        pages: u32,
        /// Epoch of the newest page.
        epoch: u32,
    },
    /// Groups of which some publish nothing, or are of another server.
    Silent,
}

impl Above {
    fn and(self, other: Above) -> Above {
        match (self, other) {
            (Above::Nobody, one) | (one, Above::Nobody) => one,
            (Above::Tell { server, pages, epoch }, Above::Tell { server: theirs, pages: more, epoch: newer })
                if server == theirs =>
            {
                let epoch = if (newer.wrapping_sub(epoch) as i32) > 0 { newer } else { epoch };
                Above::Tell { server, pages: pages | more, epoch }
            }
            _ => Above::Silent,
        }
    }
}

/// A group on a device that wants it.
struct Wanting {
    id: GroupId,
    priority: i32,
    granted: bool,
    above: Above,
}

impl<W: Deref<Target = GroupSlot>> Gatekeeper<W> {
    /// Sets the membership of a group in a hardware context; none = in none.
    pub fn set_company(&mut self, id: GroupId, company: Option<Company>) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.sharing.company = company;
            self.has_company |= company.is_some();
        }
    }

    /// Groups that keep others of their context from the device without a page on which they publish how they keep up.
    pub fn pageless(&mut self) -> std::vec::Drain<'_, GroupId> {
        self.pageless.drain(..)
    }

    /// The rule in force for others beside a group with a page, and how often gates closed since the group was slower beside them than its
    /// target allows.
    pub fn rule(&self, now: Micros, id: GroupId) -> Option<(InForce, u64)> {
        let group = self.groups.get(&id)?;
        group.sharing.company?.page?;
        Some((group.sharing.rule.told(now * 1_000), group.sharing.rule.flips()))
    }

    /// Times and counts of a group's closed gate that yielded.
    pub fn opened(&self, now: Micros, id: GroupId) -> Option<Opened> {
        let group = self.groups.get(&id).filter(|group| group.sharing.company.is_some())?;
        let now_us = group.sharing.yields_since.map_or(0, |since| now.saturating_sub(since));
        Some(Opened { us: group.sharing.opened.us + now_us, ..group.sharing.opened })
    }

    /// Makes each closed gate yield that may, and no other.
    pub(crate) fn let_yield(&mut self, now: Micros) {
        if !self.has_company {
            return;
        }
        let yielding = self.find_yielding(now);
        // Nothing is switched among groups of one hardware context: their work in flight adds up, so they share a budget.
        let sharers = yielding.len().max(1) as u32;
        // A page's bit is one of its server: those of two users may have the same.
        let mut beside: HashMap<u64, u32> = HashMap::new();
        for (id, (pages, _)) in &yielding {
            let company = self.groups.get(id).and_then(|group| group.sharing.company);
            company.into_iter().for_each(|company| *beside.entry(company.server).or_default() |= pages);
        }
        let in_company = |group: &Gated<W>| group.sharing.company.is_some() || group.sharing.yields_since.is_some();
        let ids: Vec<GroupId> = self.groups.iter().filter(|(_, g)| in_company(g)).map(|(id, _)| *id).collect();
        for id in ids {
            match yielding.get(&id) {
                Some(_) if self.arbiter.holds_back(id) => {
                    self.yield_no_more(now, id);
                    self.arbiter.beside(now, id, false, false);
                }
                Some(&(pages, epoch)) => self.yield_to(now, id, pages, epoch, sharers),
                None => {
                    self.yield_no_more(now, id);
                    self.arbiter.beside_no_more(id);
                }
            }
            let Some(group) = self.groups.get_mut(&id) else { continue };
            group.tell_no_more(now);
            // Times measured beside others are not the group's own, so it is not exclusive then.
            let accompanied = group.sharing.company.is_some_and(|company| {
                let pages = beside.get(&company.server).copied().unwrap_or(0);
                company.page.is_some_and(|(page, _)| pages & bit(page) != 0)
            });
            let exclusive = group.is_exclusive() && !accompanied;
            if group.words.gate.load().is_exclusive() != exclusive {
                group.words.gate.mark(Gate::EXCLUSIVE, exclusive);
            }
        }
    }

    /// The closed groups that may yield, each with the bits of the pages to watch and the epoch of the newest of these.
    fn find_yielding(&mut self, now: Micros) -> HashMap<GroupId, (u32, u32)> {
        let mut wanting: HashMap<&str, Vec<Wanting>> = HashMap::new();
        let mut targets = Vec::new();
        for (device, group) in self.arbiter.groups().filter(|(_, group)| group.ready || group.busy) {
            let (id, priority, granted) = (group.id, group.priority, group.granted);
            wanting.entry(device).or_default().push(Wanting { id, priority, granted, above: Above::Silent });
            if let Some(Slo::Slowdown(percent)) = group.hints.slo {
                targets.push((id, percent));
            }
        }
        for (id, percent) in targets {
            self.groups.entry(id).and_modify(|group| group.sharing.target_percent = percent);
        }
        let mut found = HashMap::new();
        for groups in wanting.values_mut() {
            // There is nothing to do where all have the device.
            if groups.iter().all(|group| group.granted || !self.may_yield(group.id)) {
                continue;
            }
            for group in groups.iter_mut() {
                let Some(known) = self.groups.get_mut(&group.id) else { continue };
                group.above = known.told(now * 1_000);
                if group.granted && known.sharing.company.is_some_and(|company| company.page.is_none()) {
                    self.pageless.push(group.id);
                }
            }
            let granted = groups.iter().filter(|group| group.granted).fold(Above::Nobody, |all, g| all.and(g.above));
            let Above::Tell { server, .. } = granted else { continue };
            // Groups of this server that yield themselves go before others of lower priority.
            let of_server = |group: &&Wanting| {
                self.groups
                    .get(&group.id)
                    .and_then(|g| g.sharing.company)
                    .is_some_and(|company| company.server == server)
            };
            let mut rest: Vec<&Wanting> = groups.iter().filter(|group| !group.granted).filter(of_server).collect();
            rest.sort_unstable_by_key(|group| std::cmp::Reverse(group.priority));
            let (mut above, mut at) = (granted, 0);
            while at < rest.len() {
                let equals = rest[at..].iter().take_while(|group| group.priority == rest[at].priority).count();
                let Above::Tell { pages, epoch, .. } = above else { break };
                for group in &rest[at..at + equals] {
                    if self.may_yield(group.id) {
                        found.insert(group.id, (pages, epoch));
                    }
                }
                above = rest[at..at + equals].iter().fold(above, |all, group| all.and(group.above));
                at += equals;
            }
        }
        found
    }

    /// True if nothing about its own group keeps a closed gate from yielding.
    fn may_yield(&self, id: GroupId) -> bool {
        let in_company = |group: &Gated<W>| group.sharing.company.is_some() && !group.granted;
        self.groups.get(&id).is_some_and(in_company)
            && self.arbiter.why(id).0 == Why::Policy
            && self.arbiter.lets_yield(id)
    }

    fn yield_to(&mut self, now: Micros, id: GroupId, pages: u32, epoch: u32, sharers: u32) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let words = &group.words;
        // The gate word comes last: a client that sees it yield also sees the pages.
        words.yields_epoch.store(epoch, SeqCst);
        words.yields_to.store(pages, SeqCst);
        let begins = !words.gate.load().yields();
        if begins {
            // A budget of 0 would be no limit.
            words.budget_us.store((group.budget_us / sharers).max(1), Release);
            words.gate.let_yield(true);
            group.sharing.opened.times += 1;
            group.sharing.yields_since = Some(now);
        }
        let completed = words.completed.load(Relaxed);
        let gets_on = std::mem::replace(&mut group.sharing.completed, completed) != completed;
        let has_work = group.state == state::READY;
        self.arbiter.beside(now, id, has_work, gets_on);
        if begins {
            self.note(now, id, Step::Yields);
        }
    }

    fn yield_no_more(&mut self, now: Micros, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let Some(since) = group.sharing.yields_since.take() else { return };
        group.sharing.opened.us += now.saturating_sub(since);
        let granted = group.granted;
        if group.words.gate.load().yields() {
            group.words.gate.let_yield(false);
        }
        if !granted {
            self.note(now, id, Step::Held);
        }
    }
}

impl<W: Deref<Target = GroupSlot>> Gated<W> {
    /// This group as one that others make room for, by the rule in force.
    fn told(&mut self, now_ns: u64) -> Above {
        let Some(Company { server, page: Some((page, epoch)) }) = self.sharing.company else { return Above::Silent };
        if self.sharing.tells_since_ns.replace(now_ns).is_none() {
            self.words.gate.mark(Gate::TELLS, true);
        }
        if usize::from(page) >= PAGES || self.words.publishes.load(Relaxed) == 0 {
            return Above::Silent;
        }
        match self.sharing.rule.in_force(now_ns, self.bursts) {
            InForce::Yields => Above::Tell { server, pages: bit(page), epoch },
            InForce::Probe | InForce::Closes => Above::Silent,
        }
    }

    /// Ends publishing once no group has made room for this one for long: it costs a fence for each command.
    fn tell_no_more(&mut self, now: Micros) {
        let is_over = |since_ns: &mut u64| *since_ns + TELLS_NS < now * 1_000;
        if self.sharing.tells_since_ns.take_if(is_over).is_some() {
            self.words.gate.mark(Gate::TELLS, false);
        }
    }

    /// Learns from a burst that has ended, the last of `ended` since the last scan.
    pub(crate) fn learn(&mut self, now_ns: u64, ended: u64) {
        let completed = self.words.completed.load(Relaxed);
        let commands = completed.wrapping_sub(std::mem::replace(&mut self.sharing.burst_completed, completed));
        let (us, device_us) = (self.words.burst_us.load(Relaxed), self.words.burst_device_us.load(Relaxed));
        if device_us != 0 {
            self.sharing.demand.add(us, device_us.into());
        }
        if ended == 1 {
            self.sharing.rule.learn(now_ns, self.bursts.wrapping_sub(1), us, commands, self.sharing.target_percent);
        }
    }
}

impl<W> Gated<W> {
    /// No other group has the device.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive || self.followed && !self.contended
    }
}

fn bit(page: u8) -> u32 {
    1u32.checked_shl(page.into()).unwrap_or(0)
}

/// Demand of a group: the part of its bursts for which it needs its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of bursts measured.
    pub bursts: u64,
    /// Their length, added up, in µs.
    pub us: u64,
    /// Expected device time of their commands, added up, in µs.
    pub device_us: u64,
}

impl Demand {
    fn add(&mut self, us: u64, device_us: u64) {
        self.bursts += 1;
        self.us = self.us.saturating_add(us);
        self.device_us = self.device_us.saturating_add(device_us);
    }

    /// Sum of the demands of two groups.
    #[must_use]
    pub fn and(self, other: Demand) -> Demand {
        Demand {
            bursts: self.bursts + other.bursts,
            us: self.us.saturating_add(other.us),
            device_us: self.device_us.saturating_add(other.device_us),
        }
    }

    /// Device time in percent of the time; more than 100 where several queues work at a time.
    pub fn percent(&self) -> Option<u32> {
        (self.us > 0).then(|| (self.device_us.saturating_mul(100) / self.us).try_into().unwrap_or(u32::MAX))
    }
}
