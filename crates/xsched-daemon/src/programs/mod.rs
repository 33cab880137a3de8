//! Programs of the daemon: how they attach, what they tell, the memory they share with it, and how they leave.

mod abandoned;
pub(crate) mod client;
mod expected;
mod follow;
pub(crate) mod memory;
pub(crate) mod naming;
pub(crate) mod pages;
mod refusing;
mod session;
pub(crate) mod trim;
