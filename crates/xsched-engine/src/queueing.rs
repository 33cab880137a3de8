//! Queues of programs come and go.

use xsched_proto::segment::QUEUES;

use crate::memory::Memory;
use crate::program::Queue;
use crate::state::Engine;
use crate::tuning::QUEUES_MAX;
use crate::user::User;
use crate::user::has_place;
use crate::{Error, all_taken, bound_met};

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
        let all = self.queues.len();
        let known = self.programs.get_mut(&program).ok_or_else(|| Error::input("it is gone"))?;
        let user = known.user;
        if let Some(queue) = known.queues.get_mut(&slot) {
            queue.group = group;
            return Ok(None);
        }
        let has = self.queues.of_user(user);
        if !has_place(user, has, all, QUEUES_MAX) {
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
        self.queues.len()
    }
}
