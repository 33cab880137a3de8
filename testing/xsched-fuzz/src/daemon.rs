//! The daemon's decisions, on arbitrary inputs of programs and commands, and of a host that passes inputs on late, twice or never. The
//! rules that hold all the same are those of the engine's property tests.

#[path = "../../../crates/xsched-engine/tests/engine/support/mod.rs"]
mod support;

use support::script::{play, play_and_watch};

pub(crate) fn run(data: &[u8]) {
    let Some((first, script)) = data.split_first() else { return };
    // Watching for starved programs takes ten times as long.
    let played = if first % 16 == 0 { play_and_watch(script) } else { play(script) };
    crate::planted::planted(|| played.most.pages > 0 && played.interrupts > 0);
}
