//! Whose work a launch is: scheduling domains, call sites, and pass-through rules.
//!
//! - [`crate::exports::domain`]: what programs and libraries may say themselves (`include/xsched/domain.h`).
//! - [`rules`] (read by [`json`]): what an operator lets through unscheduled (`docs/guide/passthrough.md`).
//! - [`sites`]: which library a call comes from, remembered by call site; [`objects`]: the loaded libraries by address;
//!   [`names`]: which of them are vendors'; [`walk`]: the way up through a vendor's runtime.
//!
//! Nothing of this runs unless there is a rule, a report is asked for, or a program uses the interface.

mod json;
mod names;
mod objects;
mod rule_file;
mod rules;
pub(crate) mod sites;
mod walk;

use xsched_agent::say;
use xsched_core::inspect::{self, Inspector};
use xsched_proto::domains::DomainMode;
use xsched_proto::variables;

use crate::lock::Lock;
use crate::process;

static INSPECTOR: Inspector = Inspector { launch: sites::launch, maker: sites::maker };

/// Names every hooked function.
type HookedNames = fn() -> Vec<&'static str>;

/// At the first device call: reads the rules, and begins to look at launches if a rule or the program wants it. A daemon may want
/// it later.
pub(crate) fn start(hooked: HookedNames, asked: Option<DomainMode>) {
    read_rules(hooked);
    inspect::install(&INSPECTOR);
    if rules::any() || asked.is_some_and(|mode| mode != DomainMode::Off) {
        look(hooked);
    }
}

static ARE_READ: Lock<bool> = Lock::new();
static LOOKS: Lock<bool> = Lock::new();

/// Before anything is remembered of a library: that it was named is part of it.
fn read_rules(hooked: HookedNames) {
    let mut are_read = ARE_READ.lock();
    if !std::mem::replace(&mut *are_read, true) && !variables::is_secure() {
        rules::read(&hooked()).iter().for_each(|complaint| say(complaint));
    }
}

/// Begins to look at launches.
pub(crate) fn look(hooked: HookedNames) {
    read_rules(hooked);
    let mut looks = LOOKS.lock();
    if !std::mem::replace(&mut *looks, true) {
        inspect::install(&INSPECTOR);
        inspect::start();
        if let Some(rt) = process::running() {
            rt.inspect_launches();
        }
    }
}

/// A thread ends: what it counted is kept.
pub(crate) fn thread_ends() {
    sites::thread_ends();
}

/// In a forked child nothing was counted yet, and the call sites of other threads are gone.
pub(crate) fn forget_all() {
    sites::forget_all();
    objects::forget_all();
    rules::forget_all();
    ARE_READ.forget_if_held();
    LOOKS.forget_if_held();
}

/// Launches by library, most first; `None` = not looked at.
pub(crate) fn launches_by_library() -> Option<Vec<(String, u64)>> {
    inspect::is_on().then(sites::totals)
}

/// Some object may have been unmapped.
pub(crate) fn objects_changed() {
    sites::forget_sites();
}
