//! `libhalcuda.so`, which programs of the C API link: it forwards to the libxsched of the process, see `xsched_capi`.
#![allow(non_snake_case)] // published names

use std::ffi::c_void;

use xsched_capi::forward;
use xsched_capi::types::*;

xsched_capi::halcuda!(forward);
