//! Types and constants of HIP, at the level of the calling convention.

#![allow(dead_code, non_camel_case_types)]

pub(super) use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

pub(super) use crate::platform::shared::SUCCESS;

pub(super) type hipError_t = c_int;
pub(super) type hipStream_t = *mut c_void;
pub(super) type hipEvent_t = *mut c_void;
pub(super) type hipFunction_t = *mut c_void;
pub(super) type hipGraphExec_t = *mut c_void;

/// A shape: 12 bytes, passed in two registers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Dim3 {
    pub(super) x: c_uint,
    pub(super) y: c_uint,
    pub(super) z: c_uint,
}

/// A structure of `N` 64-bit words, passed on the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Words<const N: usize>(pub(super) [u64; N]);

/// hipErrorNotInitialized: result of a call if there is no runtime behind us.
pub(super) const NOT_INITIALIZED: hipError_t = 3;

/// hipStreamLegacy.
pub(super) const STREAM_LEGACY: usize = 1;
/// hipStreamPerThread.
pub(super) const STREAM_PER_THREAD: usize = 2;
/// hipStreamNonBlocking.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;

/// hipMemcpyDeviceToHost.
pub(super) const DEVICE_TO_HOST: c_uint = 2;

/// hipStreamCaptureStatusNone.
pub(super) const CAPTURE_NONE: c_int = 0;
/// hipStreamCaptureModeRelaxed.
pub(super) const CAPTURE_RELAXED: c_int = 2;

/// hipStreamWaitValueAnd.
pub(super) const WAIT_AND: c_uint = 2;

/// hipHostRegisterPortable | hipHostRegisterMapped.
pub(super) const REGISTER_FOR_DEVICES: c_uint = 3;
