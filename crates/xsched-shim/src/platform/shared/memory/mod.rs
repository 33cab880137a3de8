//! Memory of the process on its devices, as all vendors' interfaces have it.
//!
//! - [`account`]: the words that the daemon shares ([`MemorySlot`](xsched_proto::account::MemorySlot)).
//! - [`claims`]: memory counted before the vendor's library is called, or refused; [`Keeper`] is the vendor's part.
//! - [`table`]: allocations by address, so that a free subtracts what was added.
//! - [`steps`]: calls that allocate and free, made of these.
//!
//! An allocation is counted before the library is called, so that two threads cannot both take the last of an allowance,
//! and counted out again if the library refuses it. Memory is counted out after the library has freed it. An address that
//! is not in the table was allocated unseen: the library is called, and nothing is counted.

pub(crate) mod account;
pub(crate) mod claims;
pub(crate) mod steps;
pub(crate) mod table;

pub(crate) use account::Part;
pub(crate) use claims::{Claim, Keeper};
pub(crate) use table::Entry;

/// Slot of a context's device, and the context.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    /// Context that allocations end with; 0 = none.
    pub(crate) context: usize,
    pub(crate) slot: u16,
}
