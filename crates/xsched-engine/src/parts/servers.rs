//! MPS servers that are not ours. A program names the server that it is in by a number, which cannot be checked. So a number is one of
//! the program's user: two users that name the same one are in two servers, and neither sees pages of the other's or runs beside it. In a
//! server for several users (`-multiuser-server`) these share the time.

use std::collections::{HashMap, HashSet};

use crate::user::User;

/// Numbers of servers kept for groups that are gone, before they are forgotten.
const UNUSED_MAX: usize = 64;

/// Servers by user and the number by which programs name them.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    known: HashMap<(User, u64), u64>,
    last: u64,
}

impl Servers {
    /// Number of the server that programs of a user name so; no two servers have the same.
    pub(crate) fn number(&mut self, user: User, named: u64) -> u64 {
        *self.known.entry((user, named)).or_insert_with(|| {
            self.last += 1;
            self.last
        })
    }

    /// Returns true if there are many more than the groups that may be in one.
    pub(crate) fn has_too_many(&self, groups: usize) -> bool {
        self.known.len() > groups + UNUSED_MAX
    }

    /// Forgets all but those that are used.
    pub(crate) fn keep(&mut self, used: &HashSet<u64>) {
        self.known.retain(|_, number| used.contains(number));
    }
}
