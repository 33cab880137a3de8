//! Rights that the process of an operator's own scheduler gives up before it loads the library: it only decides, and needs for that no more
//! than to read its own files.

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope, path_beneath_rules};

/// Newest version of the kernel's interface that is used: restrictions of newer kernels than this one apply where they exist.
const KNOWN: ABI = ABI::V6;

/// Gives up for good: capabilities, writing files, network connections, and signals to other processes. Error output stays possible.
pub(super) fn give_up() -> Result<(), String> {
    xsched_daemon::give_up_capabilities().map_err(|e| format!("cannot give up capabilities: {e}"))?;
    confine().map_err(|e| format!("cannot give up writing: {e}"))
}

fn confine() -> Result<(), landlock::RulesetError> {
    let writes = AccessFs::from_write(KNOWN);
    let rules =
        Ruleset::default().handle_access(writes)?.handle_access(AccessNet::from_all(KNOWN))?.scope(Scope::Signal)?;
    // Output that programs throw away.
    let null = path_beneath_rules(["/dev/null"], AccessFs::WriteFile);
    rules.create()?.add_rules(null)?.restrict_self()?;
    Ok(())
}
