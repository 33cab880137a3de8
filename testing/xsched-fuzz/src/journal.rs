//! Fuzz target for journals: each recorded decision is computed again, and a journal with updated decisions has no differences.

use xsched_flow::journal::{bless, replay};

pub(crate) fn run(data: &[u8]) {
    let Ok(found) = replay(data) else { return };
    let blessed = bless(data).expect("what can be replayed can be blessed");
    let again = replay(&blessed).expect("what is blessed can be replayed");
    assert_eq!(again.differences(), 0, "{:?}", again.first);
    crate::planted::planted(|| found.differences() >= 2);
}
