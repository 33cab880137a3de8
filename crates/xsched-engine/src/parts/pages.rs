//! Backlog pages: the places of the pages by which urgent programs of a foreign MPS server tell how they keep up
//! ([`xsched_proto::backlog`]). The host has their memory.

use std::collections::BTreeMap;

use xsched_policy::PoolId;
use xsched_proto::backlog::PAGES;

/// The page of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) owner: u64,
    pub(crate) server: PoolId,
    pub(crate) epoch: u32,
}

/// All pages by place.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: BTreeMap<u8, Page>,
    /// Number of the last page.
    epoch: u32,
}

impl Pages {
    /// Place and number of a program's page.
    pub(crate) fn of(&self, owner: u64) -> Option<(u8, u32)> {
        self.pages.iter().find(|(_, page)| page.owner == owner).map(|(place, page)| (*place, page.epoch))
    }

    /// Gives a program a page, if there is a place.
    pub(crate) fn add(&mut self, owner: u64, server: PoolId) -> Option<(u8, u32)> {
        let place = (0..PAGES as u8).find(|place| !self.pages.contains_key(place))?;
        self.epoch = self.epoch.wrapping_add(1);
        self.pages.insert(place, Page { owner, server, epoch: self.epoch });
        Some((place, self.epoch))
    }

    /// Removes the page of a program. Returns true if it had one.
    pub(crate) fn remove(&mut self, owner: u64) -> bool {
        let before = self.pages.len();
        self.pages.retain(|_, page| page.owner != owner);
        self.pages.len() < before
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Pages of the other programs of a server, the oldest first, as owner, place and number.
    pub(crate) fn of_others(&self, server: PoolId, owner: u64) -> Vec<(u64, u8, u32)> {
        let others = self.pages.iter().filter(|(_, page)| page.server == server && page.owner != owner);
        let mut others: Vec<_> = others.map(|(place, page)| (page.owner, *place, page.epoch)).collect();
        others.sort_by_key(|(.., epoch)| *epoch);
        others
    }
}
