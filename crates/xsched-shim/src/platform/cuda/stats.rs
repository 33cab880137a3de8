//! Numbers of this platform for `XSCHED_STATS`.

use super::graphs;
use super::timeslice::{self, Counts};

/// CUDA graphs with gates inside, and those without that should have some, as another member; empty without any.
fn graphs() -> String {
    match graphs::counts() {
        (0, 0, _) => String::new(),
        (gated, plain, why) => {
            let why = why.map(|why| format!(",\"why\":\"{why}\"")).unwrap_or_default();
            format!(",\"graphs\":{{\"gated\":{gated},\"plain\":{plain}{why}}}")
        }
    }
}

/// What became of the hardware's time slices, as another member; empty where there are none.
fn slices() -> String {
    match timeslice::counts() {
        Counts { groups: 0, .. } => String::new(),
        Counts { groups, by_driver, by_daemon, us } => format!(
            ",\"slices\":{{\"groups\":{groups},\"by_driver\":{by_driver},\"by_daemon\":{by_daemon},\"us\":{us}}}"
        ),
    }
}

/// They all, as more members of an object.
pub(crate) fn members() -> String {
    graphs() + &slices()
}
