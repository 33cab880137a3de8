//! Parts that both the tasks and the tests of this package use.
#![forbid(unsafe_code)]

pub mod circles;
pub mod commits;
mod failure;
pub mod prose;
pub mod sizes;
pub mod workspace;

pub use failure::Failure;
