//! Targets for a fuzzer: each passes arbitrary bytes to a function that reads bytes of strangers, and panics on a fault.
//!
//! `cargo xtask fuzz` has libFuzzer search for such bytes (`libfuzzer/`). The tests of this crate run each target on its corpus and on small
//! changes of it.

mod answers;
mod config;
mod connection;
mod daemon;
mod journal;
mod library;
mod packets;
mod piece;
mod planted;
mod program;
mod rules;
mod running;
mod scratch;
mod segment;
mod state;
mod words;

pub use planted::PLANTED;
pub use words::changed;

use std::path::{Path, PathBuf};

/// Function under test that reads bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name for `cargo xtask fuzz`, and of the folder in `corpus/`.
    pub name: &'static str,
    /// Runs the target on bytes; panics on a fault.
    pub run: fn(&[u8]),
    /// True if a daemon answers, starts or is an engine made anew each time: some hundred runs a second instead of many thousand.
    pub slow: bool,
    /// Words of the language, for a target that reads text: its input is then also mutated [word by word](changed).
    pub words: &'static [&'static str],
}

impl Target {
    /// Folder of the target's seeds.
    #[must_use]
    pub fn seeds(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}

/// All targets.
pub const TARGETS: [Target; 10] = [
    Target { name: "packets", run: packets::run, slow: false, words: &[] },
    Target { name: "connection", run: connection::run, slow: true, words: &[] },
    Target { name: "segment", run: segment::run, slow: true, words: &[] },
    Target { name: "daemon", run: daemon::run, slow: true, words: &[] },
    Target { name: "library", run: library::run, slow: true, words: &[] },
    Target { name: "answers", run: answers::run, slow: true, words: &[] },
    Target { name: "config", run: config::run, slow: false, words: config::WORDS },
    Target { name: "rules", run: rules::run, slow: false, words: rules::WORDS },
    Target { name: "journal", run: journal::run, slow: false, words: &[] },
    Target { name: "state", run: state::run, slow: true, words: state::WORDS },
];
