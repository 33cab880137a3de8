//! Common steps of the hooks.

use super::super::api::Api;
use super::super::pool::noting;
use super::super::types::*;
use super::device;
use super::keeper::Cuda;
use crate::platform::shared::memory::{Part, steps};
use crate::platform::shared::waits::lending_call;

/// CUDA_ERROR_OUT_OF_MEMORY.
pub(super) const OUT_OF_MEMORY: CUresult = 2;

/// Hooks functions that have to do with memory, each with the function that handles it and what that needs besides the
/// address of the real function and the call.
macro_rules! memory_calls {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [$way:ident($($given:expr),*)];)*
    ) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $way(real, $($given,)* || unsafe { function($($arg),*) })
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}
pub(super) use memory_calls;

/// Hooks functions as [`memory_calls`] does. Where the condition behind `if` holds, the driver's function is all that the call
/// needs: it is jumped to, and no register is saved for the steps, which are elsewhere.
macro_rules! quick_calls {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [$way:ident($($given:expr),*)] if $free:expr;)*
    ) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                #[cold]
                #[inline(never)]
                unsafe extern "C" fn steps($($arg: $ty),*) -> CUresult {
                    let (real, function) = real!($name);
                    // SAFETY: the caller's own arguments.
                    $way(real, $($given,)* || unsafe { function($($arg),*) })
                }
                let known = $name::known();
                if !known.is_null() && $free {
                    // SAFETY: the address of the real function of this name; the caller's own arguments.
                    return unsafe { std::mem::transmute::<*mut c_void, sig::$name>(known)($($arg),*) };
                }
                // SAFETY: the caller's own arguments.
                unsafe { steps($($arg),*) }
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}
pub(super) use quick_calls;

/// Runs a call that may wait for the device.
pub(super) fn lend(real: *mut c_void, call: impl FnOnce() -> CUresult) -> CUresult {
    noting(lending_call::<Api, _>(real, call))
}

/// Address that a driver has written. Entry points older than CUDA 3.2 have addresses of 32 bits.
pub(super) fn address_at<T: Copy + Into<u64>>(place: *mut c_void) -> u64 {
    // SAFETY: the caller's own place for the address, which the driver just wrote.
    unsafe { place.cast::<T>().read_unaligned() }.into()
}

/// Runs a call that allocates memory of the current device, see [`steps::allocates`].
pub(super) fn allocates(
    real: *mut c_void,
    part: Part,
    bytes: u64,
    call: impl Fn() -> CUresult,
    made: impl FnOnce() -> (u64, u64),
) -> CUresult {
    steps::allocates::<Cuda>(part, bytes, || device::current(real), || lend(real, &call), made)
}
