//! Host memory in which programs' memory lies while it is away from its device: the limits of all programs and of each user.
//!
//! A limit keeps memory from leaving. Memory that is away already stays where it is, also when a limit becomes smaller.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use xsched_proto::account::{Amount, MemorySlot, of_bytes};

use crate::ledger::Holder;
use crate::memory::Memory;
use crate::program::Program;
use crate::state::Engine;
use crate::user::User;

/// Bytes in the store, with those that are about to come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    all: u64,
    users: HashMap<User, u64>,
}

/// Limit of the store that more memory would exceed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// User whose limit it is; none = that of all programs.
    user: Option<User>,
    would_bytes: u64,
    limit_bytes: u64,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (would, limit) = (of_bytes(self.would_bytes), of_bytes(self.limit_bytes));
        match self.user {
            Some(user) => write!(f, "the host store would hold {would} of the {limit} of user {user}"),
            None => write!(f, "the host store would hold {would} of {limit}"),
        }
    }
}

impl Store {
    pub(crate) fn add(&mut self, user: User, bytes: u64) {
        self.all = self.all.saturating_add(bytes);
        let of_user = self.users.entry(user).or_default();
        *of_user = of_user.saturating_add(bytes);
    }
}

impl<M: Memory> Engine<M> {
    /// Contents of the store at present, with what was ordered to leave.
    pub(crate) fn store(&self) -> Store {
        let mut store = Store::default();
        for (id, holder) in self.ledger.holders() {
            if let Some(program) = self.programs.get(&id.0) {
                store.add(program.user, stored_bytes(program, holder));
            }
        }
        store
    }

    /// Checks whether so much memory of a program may leave beside these contents.
    ///
    /// # Errors
    /// The limit that it would exceed.
    pub(crate) fn fits_beside(&self, store: &Store, id: u64, bytes: u64) -> Result<(), Full> {
        let Some(program) = self.programs.get(&id) else { return Ok(()) };
        self.fits_limits(store, program.user, program.terms.memory.user_host, bytes)
    }

    /// Checks whether so much memory of a user with such a limit may leave beside these contents.
    ///
    /// # Errors
    /// The limit that it would exceed.
    pub(crate) fn fits_limits(
        &self,
        store: &Store,
        user: User,
        user_limit: Option<Amount>,
        bytes: u64,
    ) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        let memory = &self.settings.memory;
        let of_user = user_limit.map_or(0, |_| store.users.get(&user).copied().unwrap_or(0));
        let limits = [(None, store.all, memory.host_limit), (Some(user), of_user, user_limit)];
        for (user, held, limit) in limits {
            let would_bytes = held.saturating_add(bytes);
            if let Some(limit_bytes) = limit.map(|limit| limit.of(memory.host_bytes)).filter(|most| would_bytes > *most)
            {
                return Err(Full { user, would_bytes, limit_bytes });
            }
        }
        Ok(())
    }

    /// Adds memory of a program that is to leave.
    pub(crate) fn put_in_store(&self, store: &mut Store, id: u64, bytes: u64) {
        if let Some(program) = self.programs.get(&id) {
            store.add(program.user, bytes);
        }
    }

    /// Checks whether all memory of a program that can leave may do so now.
    ///
    /// # Errors
    /// The limit that it would exceed.
    ///
    /// `store`: its contents, which are added up when they are needed first, and serve for several programs.
    pub(crate) fn fits_store(&self, id: u64, store: &mut Option<Store>) -> Result<(), Full> {
        let is_limited = |program: &Program<M>| {
            self.settings.memory.host_limit.is_some() || program.terms.memory.user_host.is_some()
        };
        if !self.programs.get(&id).is_some_and(|program| is_limited(program)) {
            return Ok(());
        }
        let movable = self.ledger.of(id).map(|(_, holder)| holder.movable_bytes()).fold(0, u64::saturating_add);
        self.fits_beside(store.get_or_insert_with(|| self.store()), id, movable)
    }
}

/// Memory of a program on one device that is away from it, or was ordered to leave. No more than the device has is believed.
fn stored_bytes<M, W: Deref<Target = MemorySlot>>(program: &Program<M>, holder: &Holder<W>) -> u64 {
    let leaving = program.moving.as_ref().map_or(0, |moving| moving.leaving_bytes(holder.movable_bytes()));
    holder.away_bytes().saturating_add(leaving).min(holder.capacity_bytes())
}
