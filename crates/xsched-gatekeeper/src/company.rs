//! Groups of one hardware context: a gate that the arbiter closes yields instead, where all that have the device tell how they keep up.
//!
//! This only relaxes what the arbiter says: a gate that it opens is open, and a group that yields is held at most when its gate would
//! be closed.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use xsched_policy::GroupId;
use xsched_proto::backlog::PAGES;
use xsched_proto::gate::Gate;
use xsched_proto::segment::GroupSlot;
use xsched_proto::trace::Why;

use crate::Gatekeeper;

/// Where a group stands among those of one hardware context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Company {
    /// The context's server, by any number.
    pub server: u64,
    /// Its program's page of [`xsched_proto::backlog`], and the number of that.
    pub page: Option<(u8, u32)>,
}

/// Pages that a group yields to, and the number of the newest of them.
type Yields = (u32, u32);

impl<W: Deref<Target = GroupSlot>> Gatekeeper<W> {
    /// From now on a group is in the company of others, or in none.
    pub fn set_company(&mut self, id: GroupId, company: Option<Company>) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.company = company;
            self.has_company |= company.is_some();
        }
    }

    /// Has each closed gate yield that may, and no other.
    pub(crate) fn let_yield(&mut self) {
        if !self.has_company {
            return;
        }
        let mut on_device: HashMap<&str, Vec<GroupId>> = HashMap::new();
        for (device, group) in self.arbiter.groups() {
            if group.granted && (group.ready || group.busy) {
                on_device.entry(device).or_default().push(group.id);
            }
        }
        let mut answers = Vec::with_capacity(self.groups.len());
        for (device, group) in self.arbiter.groups() {
            let above = on_device.get(device).map_or(&[][..], Vec::as_slice);
            answers.push((group.id, self.yields(group.id, above)));
        }
        // Nothing is switched among groups of one hardware context: what each has in flight adds up.
        let yielding = answers.iter().filter(|(_, yields)| yields.is_some()).count().max(1) as u32;
        let mut beside = 0;
        for (id, yields) in answers {
            beside |= yields.map_or(0, |(pages, _)| pages);
            let Some(group) = self.groups.get(&id) else { continue };
            let words = &group.words;
            match yields {
                Some((pages, epoch)) => {
                    // The word comes last: who sees that it yields sees to whom.
                    words.yields_epoch.store(epoch, SeqCst);
                    words.yields_to.store(pages, SeqCst);
                    if !words.gate.load().yields() {
                        // 0 would be no limit.
                        words.budget_us.store((group.budget_us / yielding).max(1), Release);
                        words.gate.let_yield(true);
                    }
                }
                None if words.gate.load().yields() => words.gate.let_yield(false),
                None => {}
            }
        }
        // Times that a group measures beside others are not its own.
        for group in self.groups.values() {
            let page = group.company.and_then(|company| company.page);
            let accompanied = page.is_some_and(|(page, _)| beside & bit(page) != 0);
            let exclusive = group.exclusive && !accompanied;
            if group.words.gate.load().is_exclusive() != exclusive {
                group.words.gate.mark(Gate::EXCLUSIVE, exclusive);
            }
        }
    }

    /// The pages that a group yields to while those of `above` have the device.
    fn yields(&self, id: GroupId, above: &[GroupId]) -> Option<Yields> {
        let group = self.groups.get(&id).filter(|group| !group.granted)?;
        let server = group.company?.server;
        if above.is_empty() || self.arbiter.why(id).0 != Why::Policy {
            return None;
        }
        let mut yields = (0, 0);
        for above in above {
            let above = self.groups.get(above)?;
            let Company { server: theirs, page } = above.company?;
            let (page, epoch) = page.filter(|_| theirs == server && above.words.publishes.load(Relaxed) != 0)?;
            if usize::from(page) >= PAGES {
                return None;
            }
            let (pages, newest) = yields;
            let later = pages == 0 || (epoch.wrapping_sub(newest) as i32) > 0;
            yields = (pages | bit(page), if later { epoch } else { newest });
        }
        Some(yields)
    }
}

fn bit(page: u8) -> u32 {
    1u32.checked_shl(page.into()).unwrap_or(0)
}
