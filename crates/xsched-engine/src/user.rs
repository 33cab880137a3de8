//! Users, as far as rights and bounds go.

use std::fmt;

use crate::tuning::{KEPT_PART, LITTLE_PART};

/// The owner of programs and commands. A container's root is another user than the machine's, with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct User {
    /// The number that rules and limits know.
    pub uid: u32,
    /// Rights that come with it.
    pub rank: Rank,
    /// The inode of the pid namespace of its container, where the number alone does not tell the user; else 0.
    pub within: u64,
}

/// Rights of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rank {
    /// Root of the daemon's machine.
    Root,
    /// The user as whom the daemon runs.
    Own,
    /// Any other user.
    Other,
}

impl User {
    /// A user of whom no more is known than the number: without rights.
    pub fn unknown(uid: u32) -> User {
        User { uid, rank: Rank::Other, within: 0 }
    }

    /// Returns true for root of the daemon's machine: it may change every program, and no limit holds for it.
    pub fn is_root(self) -> bool {
        self.rank == Rank::Root
    }

    /// Returns true for root and for the user as whom the daemon runs.
    pub fn is_own(self) -> bool {
        self.rank != Rank::Other
    }

    /// Returns true for a user known to be of a container.
    pub fn is_contained(self) -> bool {
        self.within != 0
    }

    /// Returns true if this user sees and changes the programs of another.
    pub fn may_see(self, theirs: User) -> bool {
        self.is_root() || self == theirs
    }
}

/// Returns true if a table that all users share has a place for one thing more of a user, who has some of all that are there. A quarter is
/// kept for users that have little: so users with much, few of them or many, lock nobody out. Root and the daemon's own user find a place
/// in any case.
pub fn has_place(user: User, of_user: usize, all: usize, most: usize) -> bool {
    let is_little = of_user < (most / LITTLE_PART).max(1);
    user.is_own() || all < most - most / KEPT_PART || is_little && all < most
}

/// The form in which users are shown, and by which the jobs of different users differ.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within {
            0 => write!(f, "{}", self.uid),
            within => write!(f, "{} of container {within}", self.uid),
        }
    }
}
