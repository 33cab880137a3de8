//! Rights that a process gives up before it runs foreign code: a vendor's library, an operator's scheduler.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Gives up all capabilities for good.
///
/// # Errors
/// Fails if the kernel refuses.
pub fn give_up_capabilities() -> io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    let held = capabilities(None)?;
    // A service without capabilities may be forbidden the call.
    if held.permitted.is_empty() && held.inheritable.is_empty() {
        return Ok(());
    }
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
