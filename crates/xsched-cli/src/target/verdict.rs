//! Result of examining a program from outside.

use std::path::{Path, PathBuf};

/// Result of examining a program from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The preload library will be loaded.
    Attaches,
    /// A static program: nothing is loaded into it, and it calls no vendor's library. What it starts takes its environment.
    HandsOn,
    /// The library will not be loaded, or it would do harm; why, fit for "… is …".
    Cannot {
        /// The file that stands in the way: the program or its interpreter.
        file: PathBuf,
        /// The reason.
        why: String,
        /// The environment does no harm in it, and serves what it starts.
        hands_on: bool,
    },
}

impl Verdict {
    /// Of a program in which the environment would do harm, or has no use.
    pub(super) fn keeps_out(file: &Path, why: impl Into<String>) -> Verdict {
        Verdict::Cannot { file: file.to_owned(), why: why.into(), hands_on: false }
    }
}
