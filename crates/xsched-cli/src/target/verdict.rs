//! Result of examining a program from outside.

use std::path::{Path, PathBuf};

/// Result of examining a program from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The preload library will be loaded.
    Attaches,
    /// The program is static: nothing is loaded into it, and it calls no vendor's library. Programs that it starts get its environment.
    HandsOn,
    /// The library will not be loaded, or would do harm. The reason completes the sentence "… is …".
    Cannot {
        /// File for which this holds: the program or its interpreter.
        file: PathBuf,
        /// The reason.
        why: String,
        /// True if the environment does no harm in it, and is of use to the programs that it starts.
        hands_on: bool,
    },
}

impl Verdict {
    /// Verdict on a program in which the environment would do harm or be of no use.
    pub(super) fn keeps_out(file: &Path, why: impl Into<String>) -> Verdict {
        Verdict::Cannot { file: file.to_owned(), why: why.into(), hands_on: false }
    }
}
