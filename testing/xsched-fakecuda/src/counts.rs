//! How often each function was called (made by the build script from the list of names).
#![allow(non_upper_case_globals)] // vendor names

use std::sync::atomic::AtomicU64;

include!(concat!(env!("OUT_DIR"), "/counts.rs"));
