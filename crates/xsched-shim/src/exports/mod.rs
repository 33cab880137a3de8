//! Exports of this library other than vendors' functions: interposed functions of the C library, and the interfaces for
//! scheduling domains and schedulers. No code of this library calls them.

mod dlsym;
pub mod domain;
pub mod exec;
mod ioctl;
pub mod sanitizer;
