//! Services: work that threads do beside the loop, because it may take long. Each is a [`worker::Worker`] with a task, an outcome and
//! the function that does a task. The loop hands tasks over and takes outcomes, in whatever order they come. An outcome belongs to one
//! request, by its number ([`worker::epochs`]), so that a late, repeated or missing outcome changes nothing but its own answer.
//!
//! | service | task | outcome | stuck |
//! | --- | --- | --- | --- |
//! | [`identify`] | process behind a connection | its user, program, container | replaced |
//! | [`snapshot`] | state of all programs, commands that have asked | end of each answer | nothing in it blocks |
//! | [`trust`] | process of a program, its work, a fault | what is known of a program, lines for the log | replaced, not risked again for the same user |
//! | [`usage`] | records to keep, question | sum of records | left: two would write the same files |
//! | [`configuration`] | files, names of accounts | configuration, ids of accounts | its lookups are left behind |
//! | [`writer`] | line, state file | – | left: two would write the same files |
//! | `devices::sampler` | devices to ask about | state of a device, by its time | left: another would hang in the same driver |
//! | `net::fd_reaper` | descriptor | – | nudged, replaced, not risked again for the same user |
//! | [`child_reaper`] | process | – | nothing in it blocks |
//!
//! Not workers are:
//! - `metrics`: its threads take requests from sockets of their own, several at a time, each of which may block one of them; the loop works
//!   for them. The snapshots that the loop gives them are numbered, and a snapshot older than a request does not answer it.
//! - `rendezvous`: its thread serves a socket and takes no tasks.
//! - Other processes: an operator's scheduler (`scheduler`), the keeper of a pool (`pool`), the library of a driver (`devices`). The loop polls
//!   the sockets of the first two itself, with a deadline for each answer; the sampler's thread asks the third.

pub(crate) mod child_reaper;
pub(crate) mod configuration;
mod details;
pub(crate) mod events;
pub(crate) mod fair;
pub(crate) mod identify;
pub(crate) mod snapshot;
pub(crate) mod trust;
pub(crate) mod usage;
pub(crate) mod warnings;
pub(crate) mod worker;
pub(crate) mod writer;
