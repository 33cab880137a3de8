//! Time on devices, kept beyond the end of programs and of the daemon: [`record`] is the data, [`mod@file`] and [`folder`] the storage,
//! [`sum`] the answers, [`programs`] the source of records, [`stored`] what a command reads without a daemon. Everything else is written and read beside the loop (`services::usage`).

mod accounting;
mod file;
mod folder;
mod measuring;
mod programs;
mod record;
mod stored;
mod sum;

use xsched_proto::usage::UsageBy;

#[cfg(test)]
pub(crate) use self::file::tests::record as example_record;
pub(crate) use self::folder::Folder;
pub(crate) use self::programs::{Accounting, Sweep};
pub(crate) use self::record::{Identity, Record};
pub(crate) use self::stored::folder_of;
pub use self::stored::{StoredProgram, StoredUsage};
pub(crate) use self::sum::rows;

/// Question of a command.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// Connection of the command that asks.
    pub(crate) conn: u64,
    /// User whose records are included; none = all.
    pub(crate) of_user: Option<String>,
    pub(crate) since_ms: u64,
    pub(crate) by: UsageBy,
}
