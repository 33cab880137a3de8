//! The engine: what the daemon decides, without sockets, clocks, threads and system calls.
//!
//! [`Engine::handle`] takes an [`Input`] (a program has attached, has changed its words, a command wants a change) with its time. It
//! decides by the policies and stores the gates that change before it returns. All else that follows is an [`Effect`], which the host
//! carries out in order: messages, lines for the log, things to be looked up. The host maps the memory that programs share and lends it
//! to the engine as [`Memory`].
//!
//! Where things are:
//! - `handle` takes inputs apart. `grouping`, `queueing`, `hints`, `command`, `follow` do what they are named after.
//! - `gates` reads words and stores decisions; `progress`, `timeslices` and `company` look after what follows from gates.
//! - `freezing` has programs whose memory is to leave their devices; `silence` those that do not begin what they were ordered.
//! - `swapping` makes room for programs that do not fit together, by one scan of a device (`room`), in `turns`; `store` limits the host memory for that; `idling` takes memory of idle programs away.
//! - `holding` has limits of memory and answers programs that ask for more of it; [`ledger`] counts it; `settling` does the work on it in pieces.
//! - `pooling` says what a pool is; `program` and `group` are what is known of each; `terms` what the configuration says of them; `io` has inputs and effects.
//! - `recording` follows programs for commands that record them.
//! - `trace`, `values`, `accounts` and `outcomes` tell what happened: from the one stream of [`xsched_proto::transitions`], which the gatekeeper makes.
//! - `state` is all of it in one value, with `parts` that are more than a table.
//!
//! Who writes which part of the state: `programs` and `groups` are written by `grouping`, `queueing` (queues of a program), `hints`
//! (values for the policy), `timeslices` (the slice that was told) and `gates` (what follows from a gate), each its own fields.
//! `ledger` is written by `holding`, `settings` by `handle`, `active_windows` by `follow`, `changing` by `command`, `servers` by `company`. Two of `parts` have several writers, of one
//! field each: `follow_ups` has `gates` (time slices) and `progress` (the rest), `history` has `trace`, `outcomes` and `gates` (the number of
//! decisions). Each other part is written by one module.

#![forbid(unsafe_code)]

mod accounts;
mod changes;
mod command;
mod company;
mod follow;
mod freezing;
mod gates;
mod group;
mod grouping;
mod handle;
mod hints;
mod holding;
mod idling;
mod io;
pub mod ledger;
mod memory;
mod outcomes;
mod parts;
mod pooling;
mod program;
mod progress;
mod queueing;
mod recording;
mod room;
mod settling;
mod silence;
mod state;
mod store;
mod swapping;
mod terms;
mod timeslices;
mod trace;
pub mod tuning;
mod turns;
mod user;
mod values;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use xsched_proto::text;

pub use changes::Changes;
pub use group::{Group, are_short};
pub use hints::{check_hint, overlooked_line};
pub use holding::number_of;
pub use io::{Effect, Input, Message, NewGroup, Order, ProcessMemory, Sender, What};
pub use memory::{GroupWords, LaunchSum, Memory};
pub use parts::books::Books;
pub use pooling::{Asking, DeviceShare, OUTSIDE, Placement, Proof, Seat, Side, Standing, Urgent};
pub use program::{Arrival, Program, Queue, Wishes};
pub use state::{Engine, Inventory};
pub use terms::{Bounds, Ceilings, Given, MemorySettings, MemoryTerms, Settings, Terms};
pub use trace::Telling;
pub use user::{Rank, User, has_place};
pub use xsched_proto::Error;

/// Checks a device key, job name or reason.
///
/// # Errors
/// One line that says what is accepted.
pub fn check_name(name: &str, what: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > tuning::NAME_MAX_BYTES {
        return Err(Error::input(format!("a {what} has 1 to {} bytes", tuning::NAME_MAX_BYTES)));
    }
    text::check_visible(name, what)
}

/// The refusal of one thing more than a user may have.
pub fn bound_met(user: User, n: usize, what: &str) -> Error {
    Error::environment(format!("user {user} has {n} {what}, as many as a user may have: see xsched ps"))
}

/// The refusal of one thing more than the daemon keeps for all.
pub fn all_taken(what: &str) -> Error {
    Error::environment(format!("all users together have as many {what} as the daemon keeps: see xsched ps"))
}

/// Removes the oldest entries of a list that all users share, until there are so many at most: each time that of the user with most of
/// them, so that a user with many pushes out its own.
pub fn trim<T, U: Eq + Hash>(list: &mut VecDeque<T>, most: usize, user: impl Fn(&T) -> U) {
    while list.len() > most {
        let mut counts: HashMap<U, usize> = HashMap::new();
        list.iter().for_each(|entry| *counts.entry(user(entry)).or_default() += 1);
        let heaviest = counts.values().copied().max().unwrap_or(0);
        let Some(at) = list.iter().position(|entry| counts.get(&user(entry)) == Some(&heaviest)) else { return };
        list.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_loses_the_oldest_entries_of_the_user_with_most() {
        let mut list: VecDeque<(u32, u32)> = (0..10).map(|n| (7, n)).collect();
        list.push_front((8, 100));
        list.push_back((9, 101));
        trim(&mut list, 4, |(user, _)| *user);
        assert_eq!(list, [(8, 100), (7, 8), (7, 9), (9, 101)]);
    }
}
