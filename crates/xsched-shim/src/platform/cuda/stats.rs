//! Statistics of this platform for `XSCHED_STATS`.

use std::sync::OnceLock;

use super::timeslice::{self, Counts};
use super::{gated, residency};

/// Further member on memory, given once some is counted.
static MEMORY: OnceLock<fn() -> String> = OnceLock::new();

/// Adds a member on memory.
pub(super) fn add_memory(member: fn() -> String) {
    let _ = MEMORY.set(member);
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

/// Counts of moves of memory, and what does not move in bytes, as a further JSON member; empty if none can move.
fn moves() -> String {
    let Some((moves, failed)) = residency::counts() else { return String::new() };
    let pinned: Vec<String> = residency::pins::pins().iter().map(|(why, bytes)| format!("\"{why}\":{bytes}")).collect();
    format!(",\"residency\":{{\"moves\":{moves},\"failed\":{failed},\"pinned\":{{{}}}}}", pinned.join(","))
}

/// Statistics of this platform, as further members of a JSON object.
pub(crate) fn members() -> String {
    graphs() + &slices() + &MEMORY.get().map_or_else(String::new, |member| member()) + &moves()
}
