//! `hipGetProcAddress` and its like: return the runtime's answer, or a stub of ours if that is a hooked function.

use super::types::*;
use super::{real, sig};
use crate::enabled::HIP;
use crate::interpose::hooks;
use crate::platform::shared::lookup::answered;

macro_rules! lookups {
    ($list:ident: $class:ident; $(fn $name:ident($symbol:ident, $found:ident $(, $arg:ident: $ty:ty)*);)*) => {
        $(
            unsafe extern "C" fn $name($symbol: *mut c_void, $found: *mut c_void $(, $arg: $ty)*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                let rc = unsafe { function($symbol, $found $(, $arg)*) };
                if rc == SUCCESS {
                    answered(HIP, super::HOOKS, real, $found);
                }
                rc
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
    };
}

lookups! {
    LOOKUPS: Lookup;
    fn hipGetDriverEntryPoint(symbol, found, flags: u64, status: *mut c_void);
    fn hipGetDriverEntryPoint_spt(symbol, found, flags: u64, status: *mut c_void);
    fn hipGetProcAddress(symbol, found, version: c_int, flags: u64, status: *mut c_void);
    fn hipGetProcAddress_spt(symbol, found, version: c_int, flags: u64, status: *mut c_void);
}
