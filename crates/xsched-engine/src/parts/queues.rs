//! Queues of all programs: their numbers, their places, and how many each user has.

use std::collections::HashMap;

use crate::user::User;

/// Queues of all programs.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    of_user: HashMap<User, usize>,
    /// Program and slot of each queue, by its number.
    owners: HashMap<u64, (u64, u16)>,
}

impl Queues {
    /// Program and slot of a queue.
    pub(crate) fn owner(&self, queue: u64) -> Option<(u64, u16)> {
        self.owners.get(&queue).copied()
    }

    /// Adds a queue of a user.
    pub(crate) fn add(&mut self, user: User, queue: u64, owner: (u64, u16)) {
        *self.of_user.entry(user).or_default() += 1;
        self.owners.insert(queue, owner);
    }

    /// Removes a queue of a user.
    pub(crate) fn remove(&mut self, user: User, queue: u64) {
        self.owners.remove(&queue);
        if let Some(left) = self.of_user.get_mut(&user) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.of_user.remove(&user);
            }
        }
    }

    /// Number of queues of a user.
    pub(crate) fn of_user(&self, user: User) -> usize {
        self.of_user.get(&user).copied().unwrap_or(0)
    }

    /// Number of all queues.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}
