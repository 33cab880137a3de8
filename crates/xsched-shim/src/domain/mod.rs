//! Origin of launches: scheduling domains, call sites, and pass-through rules.
//!
//! - [`crate::exports::domain`]: the domain interface for programs and libraries (`include/xsched/domain.h`).
//! - [`rules`] (read by [`json`]): launches that an operator exempts from scheduling (`docs/guide/passthrough.md`).
//! - [`sites`]: the library that a call comes from, cached by call site; [`objects`]: the loaded libraries by address;
//!   [`names`]: the names of vendors' libraries; [`walk`]: the walk up the stack through a vendor's runtime.
//!
//! None of this runs unless there is a rule, a report is requested, or a program uses the interface.

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

/// Lists the names of all hooked functions.
type HookedNames = fn() -> Vec<&'static str>;

/// Reads the rules at the first device call, and starts to inspect launches if a rule or the program asks for it. A
/// daemon may ask later.
pub(crate) fn start(hooked: HookedNames, asked: Option<DomainMode>) {
    read_rules(hooked);
    inspect::install(&INSPECTOR);
    if rules::any() || asked.is_some_and(|mode| mode != DomainMode::Off) {
        look(hooked);
    }
}

static ARE_READ: Lock<bool> = Lock::new();
static LOOKS: Lock<bool> = Lock::new();

/// Reads the rules, once. Must precede any cached state of a library, which includes whether a rule names it.
fn read_rules(hooked: HookedNames) {
    let mut are_read = ARE_READ.lock();
    if !std::mem::replace(&mut *are_read, true) && !variables::is_secure() {
        rules::read(&hooked()).iter().for_each(|complaint| say(complaint));
    }
}

/// Starts to inspect launches, once.
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

/// Adds the counts of the calling thread, which is ending, to those of ended threads.
pub(crate) fn thread_ends() {
    sites::thread_ends();
}

/// Abandons counts and call sites in a forked child, where they belong to threads that do not exist.
pub(crate) fn forget_all() {
    sites::forget_all();
    objects::forget_all();
    rules::forget_all();
    ARE_READ.forget_if_held();
    LOOKS.forget_if_held();
}

/// Number of launches by library, largest first; `None` = launches are not inspected.
pub(crate) fn launches_by_library() -> Option<Vec<(String, u64)>> {
    inspect::is_on().then(sites::totals)
}

/// Invalidates cached call sites, after an object may have been unmapped.
pub(crate) fn objects_changed() {
    sites::forget_sites();
}
