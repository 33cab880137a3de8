//! Queues of all programs: their numbers, their places, and how many each user has.

use std::collections::HashMap;

use xsched_proto::segment::QUEUES;

use crate::memory::Memory;
use crate::program::Queue;
use crate::state::Engine;
use crate::tuning::QUEUES_MAX;
use crate::user::User;
use crate::{Error, all_taken, bound_met};

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

    fn add(&mut self, user: User, queue: u64, owner: (u64, u16)) {
        *self.of_user.entry(user).or_default() += 1;
        self.owners.insert(queue, owner);
    }

    fn remove(&mut self, user: User, queue: u64) {
        self.owners.remove(&queue);
        if let Some(left) = self.of_user.get_mut(&user) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.of_user.remove(&user);
            }
        }
    }
}

impl<M: Memory> Engine<M> {
    /// Adds a queue, or moves it to another group. Returns why not, where a bound is reached.
    ///
    /// # Errors
    /// The program breaks the protocol.
    pub(crate) fn add_queue(&mut self, program: u64, slot: u16, group: u16) -> Result<Option<Error>, Error> {
        if usize::from(slot) >= QUEUES {
            return Err(Error::input(format!("it adds a queue in slot {slot} of {QUEUES}")));
        }
        self.group_at(program, group)
            .ok_or_else(|| Error::input("it adds a queue to a group that it does not have"))?;
        let id = self.next_id();
        let all = self.queues.owners.len();
        let known = self.programs.get_mut(&program).ok_or_else(|| Error::input("it is gone"))?;
        let user = known.user;
        if let Some(queue) = known.queues.get_mut(&slot) {
            queue.group = group;
            return Ok(None);
        }
        let has = self.queues.of_user.get(&user).copied().unwrap_or(0);
        if !user.is_own() && all >= QUEUES_MAX {
            return Ok(Some(all_taken("queues")));
        }
        if has >= known.terms.bounds.queues {
            return Ok(Some(bound_met(user, has, "queues")));
        }
        known.memory.announce(slot);
        known.queues.insert(slot, Queue::new(id, group));
        self.queues.add(user, id, (program, slot));
        Ok(None)
    }

    /// Removes a queue.
    ///
    /// # Errors
    /// The program breaks the protocol.
    pub(crate) fn remove_queue(&mut self, program: u64, slot: u16) -> Result<(), Error> {
        let known = self.programs.get_mut(&program).ok_or_else(|| Error::input("it is gone"))?;
        let queue =
            known.queues.remove(&slot).ok_or_else(|| Error::input("it removes a queue that it does not have"))?;
        let user = known.user;
        self.queues.remove(user, queue.id);
        Ok(())
    }

    /// Removes the queues of a program that leaves.
    pub(crate) fn remove_queues(&mut self, user: User, queues: impl Iterator<Item = u64>) {
        queues.for_each(|queue| self.queues.remove(user, queue));
    }

    /// Number of queues of all programs.
    pub fn queue_count(&self) -> usize {
        self.queues.owners.len()
    }
}
