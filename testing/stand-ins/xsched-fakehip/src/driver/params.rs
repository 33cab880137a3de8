//! Structures in the arguments of the driver's functions.

use std::ffi::{c_int, c_uint, c_void};

/// `hipIpcMemHandle_t` and `hipIpcEventHandle_t`, which have the layout of the driver's handles.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Handle(pub(crate) [u8; 64]);

/// `CUDA_MEMCPY2D`; `hip_Memcpy2D` has the same fields in the same places.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copy2d {
    pub(crate) src: Side,
    pub(crate) dst: Side,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One side of a [`Copy2d`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: usize,
    pub(crate) pitch: usize,
}

/// One side of a `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DriverSide {
    pub(crate) at: [usize; 3],
    pub(crate) level: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: usize,
    pub(crate) reserved: usize,
    pub(crate) pitch: usize,
    pub(crate) rows: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DriverCopy3d {
    pub(crate) src: DriverSide,
    pub(crate) dst: DriverSide,
    pub(crate) extent: [usize; 3],
}

const _: () = assert!(size_of::<DriverCopy3d>() == 200);

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
pub(crate) struct DriverKernelParams {
    pub(crate) function: usize,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) params: *const *const c_void,
    pub(crate) extra: *const *const c_void,
    pub(crate) kernel: usize,
    pub(crate) context: usize,
}

/// `CUDA_HOST_NODE_PARAMS`, and `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostParams {
    pub(crate) function: Option<super::HostFunction>,
    pub(crate) data: *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DriverSetParams {
    pub(crate) dst: u64,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) unit: c_uint,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct UpdateResult {
    pub(crate) result: c_int,
    pub(crate) node: usize,
    pub(crate) from: usize,
}
