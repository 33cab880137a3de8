//! Types and constants of the CUDA driver API, at the level of the calling convention.

#![allow(dead_code)]

pub(super) use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

pub(super) type CUresult = c_int;
pub(super) type CUdevice = c_int;
pub(super) type CUdeviceptr = u64;
pub(super) type CUcontext = *mut c_void;
pub(super) type CUstream = *mut c_void;
pub(super) type CUevent = *mut c_void;
pub(super) type CUfunction = *mut c_void;
pub(super) type CUgraph = *mut c_void;
pub(super) type CUgraphExec = *mut c_void;
pub(super) type CUgraphNode = *mut c_void;

pub(super) use crate::platform::shared::SUCCESS;
/// Result of a call if there is no driver behind us.
pub(super) const NOT_INITIALIZED: CUresult = 3;

/// CU_STREAM_LEGACY.
pub(super) const STREAM_LEGACY: usize = 1;
/// CU_STREAM_PER_THREAD.
pub(super) const STREAM_PER_THREAD: usize = 2;
/// CU_STREAM_NON_BLOCKING.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;

/// CU_STREAM_CAPTURE_STATUS_NONE.
pub(super) const CAPTURE_NONE: c_int = 0;
/// CU_STREAM_CAPTURE_MODE_RELAXED.
pub(super) const CAPTURE_RELAXED: c_int = 2;

/// CU_STREAM_WAIT_VALUE_AND.
pub(super) const WAIT_AND: c_uint = 2;

/// CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP.
pub(super) const REGISTER_FOR_DEVICES: c_uint = 3;

/// CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, which no device has that lacks the other comparisons.
pub(super) const ATTRIBUTE_WAIT_VALUE: c_int = 123;
/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED.
pub(super) const ATTRIBUTE_MPS: c_int = 133;
