//! The protocols by which launches, the agent and the daemon agree without a lock. Generic over the memory they run on: the product
//! runs them on [`xsched_proto::memory::Hardware`], the models (`tests.rs` here) on a checker's, which tries every order of their
//! steps and every value that a load may give. See `docs/internals/protocols.md`.

pub(crate) mod idle;
pub(crate) mod park;
pub(crate) mod registration;
pub(crate) mod residency;

#[cfg(test)]
mod tests;
