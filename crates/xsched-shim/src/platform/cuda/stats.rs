//! Statistics of this platform for `XSCHED_STATS`.

use std::sync::OnceLock;

use super::gated;
use super::timeslice::{self, Counts};

/// Further member on memory that moves; empty if none can.
static MOVES: OnceLock<fn() -> String> = OnceLock::new();

/// Adds a member on memory that moves, while this library is loaded.
pub(super) fn add_moves(member: fn() -> String) {
    let _ = MOVES.set(member);
}

/// Counts of CUDA graphs with gates inside, and of those that should have some but have none, as a further JSON member;
/// empty without any.
fn graphs() -> String {
    match gated::counts() {
        (0, 0, _) => String::new(),
        (gated, plain, why) => {
            let why = why.map(|why| format!(",\"why\":\"{why}\"")).unwrap_or_default();
            format!(",\"graphs\":{{\"gated\":{gated},\"plain\":{plain}{why}}}")
        }
    }
}

/// Counts of the hardware's time slices, as a further JSON member; empty if there are none.
fn slices() -> String {
    match timeslice::counts() {
        Counts { groups: 0, .. } => String::new(),
        Counts { groups, by_driver, by_daemon, us } => format!(
            ",\"slices\":{{\"groups\":{groups},\"by_driver\":{by_driver},\"by_daemon\":{by_daemon},\"us\":{us}}}"
        ),
    }
}

/// Statistics of this platform, as further members of a JSON object.
pub(crate) fn members() -> String {
    graphs() + &slices() + &MOVES.get().map_or_else(String::new, |member| member())
}
