//! What this library exports beside the vendors' functions: what of the C library is looked at on its way, and the interface of
//! scheduling domains. Nothing of ours calls these; they stand above all else.

mod dlsym;
pub mod domain;
pub mod exec;
mod ioctl;
pub mod sanitizer;
