//! Backlog pages: the places of the pages by which urgent programs of an MPS server tell how they keep up ([`xsched_proto::backlog`]). The
//! host has their memory.
//!
//! Each user has all places for itself: a page is shown to programs of its owner's user only, so no user's pages leave another one without.

use std::collections::BTreeMap;

use xsched_policy::PoolId;
use xsched_proto::backlog::PAGES;

use crate::user::User;

/// The page of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) user: User,
    pub(crate) server: PoolId,
    /// Its place among those of its user.
    pub(crate) place: u8,
    pub(crate) epoch: u32,
}

/// All pages by owner.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: BTreeMap<u64, Page>,
    /// Number of the last page.
    epoch: u32,
}

impl Pages {
    /// Place and number of a program's page.
    pub(crate) fn of(&self, owner: u64) -> Option<(u8, u32)> {
        self.pages.get(&owner).map(|page| (page.place, page.epoch))
    }

    /// Gives a program a page, if its user has a place.
    pub(crate) fn add(&mut self, owner: u64, user: User, server: PoolId) -> Option<(u8, u32)> {
        let of_user = self.pages.values().filter(|page| page.user == user);
        let taken = of_user.fold(0u32, |taken, page| taken | 1 << page.place);
        let place = (0..PAGES as u8).find(|place| taken & 1 << place == 0)?;
        self.epoch = self.epoch.wrapping_add(1);
        self.pages.insert(owner, Page { user, server, place, epoch: self.epoch });
        Some((place, self.epoch))
    }

    /// Removes the page of a program. Returns true if it had one.
    pub(crate) fn remove(&mut self, owner: u64) -> bool {
        self.pages.remove(&owner).is_some()
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Pages of the other programs of a server, the oldest first, as owner, place and number.
    pub(crate) fn of_others(&self, server: PoolId, owner: u64) -> Vec<(u64, u8, u32)> {
        let others = self.pages.iter().filter(|(other, page)| page.server == server && **other != owner);
        let mut others: Vec<_> = others.map(|(owner, page)| (*owner, page.place, page.epoch)).collect();
        others.sort_by_key(|(.., epoch)| *epoch);
        others
    }
}
