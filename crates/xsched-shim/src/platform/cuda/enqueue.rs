//! Commands for streams. Each list begins with its name and class. A row has in brackets the meaning of a null stream
//! for the function, the stream, and the description of the work.

use xsched_core::Work;

use super::api::Api;
use super::types::*;
use super::{real, sig};
use crate::interpose::hooks;
use crate::platform::shared::StreamKind::{Legacy, PerThread};
use crate::platform::shared::path::{
    UNKNOWN, blocking_transfer, enqueue, join, kernel, memset, order, prequeueable, transfer,
};

/// Stream of functions that take none.
const NO_STREAM: CUstream = std::ptr::null_mut();

/// Start of CUlaunchConfig in cuda.h.
#[repr(C)]
struct LaunchConfig {
    shape: [c_uint; 6],
    shared_bytes: c_uint,
    stream: CUstream,
}

/// CUDA_LAUNCH_PARAMS of cuda.h.
#[repr(C)]
struct LaunchParams {
    function: CUfunction,
    shape: [c_uint; 6],
    shared_bytes: c_uint,
    stream: CUstream,
    parameters: *mut c_void,
}

const _: () =
    assert!(std::mem::offset_of!(LaunchConfig, stream) == 32 && std::mem::offset_of!(LaunchParams, stream) == 40);

#[inline(always)]
fn stream_of(config: *mut c_void) -> CUstream {
    // SAFETY: null, or the caller's own configuration, which the driver reads too.
    unsafe { config.cast::<LaunchConfig>().as_ref() }.map_or(NO_STREAM, |c| c.stream)
}

fn shape_of(config: *mut c_void) -> [c_uint; 6] {
    // SAFETY: as above.
    unsafe { config.cast::<LaunchConfig>().as_ref() }.map_or([0; 6], |c| c.shape)
}

/// Shared memory that a launch adds, in bytes.
pub(super) fn shared_of(config: *mut c_void) -> c_uint {
    // SAFETY: as above.
    unsafe { config.cast::<LaunchConfig>().as_ref() }.map_or(0, |c| c.shared_bytes)
}

/// Stream of a launch on several devices at once: it is scheduled with the first.
fn first_stream(list: *mut c_void, count: c_uint) -> CUstream {
    if count == 0 {
        return NO_STREAM;
    }
    // SAFETY: null, or the caller's own list of `count` entries.
    unsafe { list.cast::<LaunchParams>().as_ref() }.map_or(NO_STREAM, |p| p.stream)
}

macro_rules! enqueues {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [$mode:ident $stream:expr, $work:expr];)*
    ) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                enqueue::<Api>(real, $stream, $mode, move || -> Work { $work }, move || unsafe { function($($arg),*) })
            }
        )*
        hooks! { CUDA, $list: $class; $($name)* }
    };
}

/// Hooks functions that order commands of a stream and take next to no time on the device, listed by the function that
/// handles them.
macro_rules! orders {
    (
        $list:ident: $class:ident;
        $([$way:ident] $(fn $name:ident($($arg:ident: $ty:ty),*) [$mode:ident $stream:expr];)*)*
    ) => {
        $($(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $way::<Api>(real, $stream, $mode, move || unsafe { function($($arg),*) })
            }
        )*)*
        hooks! { CUDA, $list: $class; $($($name)*)* }
    };
}

enqueues! {
    LAUNCHES: Launch;
    fn cuLaunch(f: CUfunction) [Legacy NO_STREAM, kernel(f, &[])];
    fn cuLaunchCooperativeKernel(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut c_void) [Legacy hStream, kernel(f, &[gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ])];
    fn cuLaunchCooperativeKernelMultiDevice(launchParamsList: *mut c_void, numDevices: c_uint, flags: c_uint) [Legacy first_stream(launchParamsList, numDevices), UNKNOWN];
    fn cuLaunchCooperativeKernel_ptsz(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut c_void) [PerThread hStream, kernel(f, &[gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ])];
    fn cuLaunchGrid(f: CUfunction, grid_width: c_int, grid_height: c_int) [Legacy NO_STREAM, kernel(f, &[grid_width as u32, grid_height as u32])];
    fn cuLaunchGridAsync(f: CUfunction, grid_width: c_int, grid_height: c_int, hStream: CUstream) [Legacy hStream, kernel(f, &[grid_width as u32, grid_height as u32])];
    fn cuLaunchKernel(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut c_void, extra: *mut c_void) [Legacy hStream, kernel(f, &[gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ])];
    fn cuLaunchKernelEx(config: *mut c_void, f: CUfunction, kernelParams: *mut c_void, extra: *mut c_void) [Legacy stream_of(config), kernel(f, &shape_of(config))];
    fn cuLaunchKernelEx_ptsz(config: *mut c_void, f: CUfunction, kernelParams: *mut c_void, extra: *mut c_void) [PerThread stream_of(config), kernel(f, &shape_of(config))];
    fn cuLaunchKernel_ptsz(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut c_void, extra: *mut c_void) [PerThread hStream, kernel(f, &[gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ])];
}

enqueues! {
    COPIES: Copy;
    fn cuFabricCpyBatchAsync(numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuFabricCpyBatchAsync_ptsz(numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuGraphUpload_ptsz(hGraphExec: CUgraphExec, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuGraphicsMapResources(count: c_uint, resources: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(count as usize)];
    fn cuGraphicsMapResources_ptsz(count: c_uint, resources: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(count as usize)];
    fn cuGraphicsUnmapResources(count: c_uint, resources: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(count as usize)];
    fn cuGraphicsUnmapResources_ptsz(count: c_uint, resources: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(count as usize)];
    fn cuMemBatchDecompressAsync(paramsArray: *mut c_void, count: usize, flags: c_uint, errorIndex: *mut c_void, stream: CUstream) [Legacy stream, transfer(count)];
    fn cuMemBatchDecompressAsync_ptsz(paramsArray: *mut c_void, count: usize, flags: c_uint, errorIndex: *mut c_void, stream: CUstream) [PerThread stream, transfer(count)];
    fn cuMemDiscardAndPrefetchBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemDiscardBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, flags: u64, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemDiscardBatchAsync_ptsz(dptrs: *mut c_void, sizes: *mut c_void, count: usize, flags: u64, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemMapArrayAsync(mapInfoList: *mut c_void, count: c_uint, hStream: CUstream) [Legacy hStream, transfer(count as usize)];
    fn cuMemMapArrayAsync_ptsz(mapInfoList: *mut c_void, count: c_uint, hStream: CUstream) [PerThread hStream, transfer(count as usize)];
    fn cuMemPrefetchAsync(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemPrefetchAsync_ptsz(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemPrefetchAsync_v2(devPtr: CUdeviceptr, count: usize, location: u64, flags: c_uint, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemPrefetchAsync_v2_ptsz(devPtr: CUdeviceptr, count: usize, location: u64, flags: c_uint, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemPrefetchBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemPrefetchBatchAsync_ptsz(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpy2D(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy2DAsync(pCopy: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy2DAsync_v2(pCopy: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy2DAsync_v2_ptsz(pCopy: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy2DUnaligned(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy2DUnaligned_v2(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy2DUnaligned_v2_ptds(pCopy: *mut c_void) [PerThread NO_STREAM, transfer(0)];
    fn cuMemcpy2D_v2(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy2D_v2_ptds(pCopy: *mut c_void) [PerThread NO_STREAM, transfer(0)];
    fn cuMemcpy3D(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy3DAsync(pCopy: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy3DAsync_v2(pCopy: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy3DAsync_v2_ptsz(pCopy: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy3DBatchAsync(numOps: usize, opList: *mut c_void, failIdx: *mut c_void, flags: u64, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy3DBatchAsync_ptsz(numOps: usize, opList: *mut c_void, failIdx: *mut c_void, flags: u64, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy3DBatchAsync_v2(numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy3DBatchAsync_v2_ptsz(numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy3DPeer(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy3DPeerAsync(pCopy: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy3DPeerAsync_ptsz(pCopy: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy3DPeer_ptds(pCopy: *mut c_void) [PerThread NO_STREAM, transfer(0)];
    fn cuMemcpy3DWithAttributesAsync(op: *mut c_void, flags: u64, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpy3DWithAttributesAsync_ptsz(op: *mut c_void, flags: u64, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy3D_v2(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn cuMemcpy3D_v2_ptds(pCopy: *mut c_void) [PerThread NO_STREAM, transfer(0)];
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) [Legacy hStream, transfer(ByteCount)];
    fn cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) [PerThread hStream, transfer(ByteCount)];
    fn cuMemcpyAtoA(dstArray: *mut c_void, dstOffset: c_uint, srcArray: *mut c_void, srcOffset: c_uint, ByteCount: c_uint) [Legacy NO_STREAM, transfer(ByteCount as usize)];
    fn cuMemcpyAtoA_v2(dstArray: *mut c_void, dstOffset: usize, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyAtoA_v2_ptds(dstArray: *mut c_void, dstOffset: usize, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyAtoD(dstDevice: c_uint, srcArray: *mut c_void, srcOffset: c_uint, ByteCount: c_uint) [Legacy NO_STREAM, transfer(ByteCount as usize)];
    fn cuMemcpyAtoD_v2(dstDevice: CUdeviceptr, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyAtoD_v2_ptds(dstDevice: CUdeviceptr, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyAtoH(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: c_uint, ByteCount: c_uint) [Legacy NO_STREAM, blocking_transfer(ByteCount as usize)];
    fn cuMemcpyAtoHAsync(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: c_uint, ByteCount: c_uint, hStream: CUstream) [Legacy hStream, transfer(ByteCount as usize)];
    fn cuMemcpyAtoHAsync_v2(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize, hStream: CUstream) [Legacy hStream, transfer(ByteCount)];
    fn cuMemcpyAtoHAsync_v2_ptsz(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize, hStream: CUstream) [PerThread hStream, transfer(ByteCount)];
    fn cuMemcpyAtoH_v2(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [Legacy NO_STREAM, blocking_transfer(ByteCount)];
    fn cuMemcpyAtoH_v2_ptds(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [PerThread NO_STREAM, blocking_transfer(ByteCount)];
    fn cuMemcpyBatchAsync(dsts: *mut c_void, srcs: *mut c_void, sizes: *mut c_void, count: usize, attrs: *mut c_void, attrsIdxs: *mut c_void, numAttrs: usize, failIdx: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemcpyBatchAsync_ptsz(dsts: *mut c_void, srcs: *mut c_void, sizes: *mut c_void, count: usize, attrs: *mut c_void, attrsIdxs: *mut c_void, numAttrs: usize, failIdx: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemcpyBatchAsync_v2(dsts: *mut c_void, srcs: *mut c_void, sizes: *mut c_void, count: usize, attrs: *mut c_void, attrsIdxs: *mut c_void, numAttrs: usize, hStream: CUstream) [Legacy hStream, transfer(count)];
    fn cuMemcpyBatchAsync_v2_ptsz(dsts: *mut c_void, srcs: *mut c_void, sizes: *mut c_void, count: usize, attrs: *mut c_void, attrsIdxs: *mut c_void, numAttrs: usize, hStream: CUstream) [PerThread hStream, transfer(count)];
    fn cuMemcpyDtoA(dstArray: *mut c_void, dstOffset: c_uint, srcDevice: c_uint, ByteCount: c_uint) [Legacy NO_STREAM, transfer(ByteCount as usize)];
    fn cuMemcpyDtoA_v2(dstArray: *mut c_void, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyDtoA_v2_ptds(dstArray: *mut c_void, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyDtoD(dstDevice: c_uint, srcDevice: c_uint, ByteCount: c_uint) [Legacy NO_STREAM, transfer(ByteCount as usize)];
    fn cuMemcpyDtoDAsync(dstDevice: c_uint, srcDevice: c_uint, ByteCount: c_uint, hStream: CUstream) [Legacy hStream, prequeueable(transfer(ByteCount as usize))];
    fn cuMemcpyDtoDAsync_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) [Legacy hStream, prequeueable(transfer(ByteCount))];
    fn cuMemcpyDtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) [PerThread hStream, prequeueable(transfer(ByteCount))];
    fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyDtoD_v2_ptds(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyDtoH(dstHost: *mut c_void, srcDevice: c_uint, ByteCount: c_uint) [Legacy NO_STREAM, blocking_transfer(ByteCount as usize)];
    fn cuMemcpyDtoHAsync(dstHost: *mut c_void, srcDevice: c_uint, ByteCount: c_uint, hStream: CUstream) [Legacy hStream, transfer(ByteCount as usize)];
    fn cuMemcpyDtoHAsync_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) [Legacy hStream, transfer(ByteCount)];
    fn cuMemcpyDtoHAsync_v2_ptsz(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) [PerThread hStream, transfer(ByteCount)];
    fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize) [Legacy NO_STREAM, blocking_transfer(ByteCount)];
    fn cuMemcpyDtoH_v2_ptds(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize) [PerThread NO_STREAM, blocking_transfer(ByteCount)];
    fn cuMemcpyHtoA(dstArray: *mut c_void, dstOffset: c_uint, srcHost: *mut c_void, ByteCount: c_uint) [Legacy NO_STREAM, transfer(ByteCount as usize)];
    fn cuMemcpyHtoAAsync(dstArray: *mut c_void, dstOffset: c_uint, srcHost: *mut c_void, ByteCount: c_uint, hStream: CUstream) [Legacy hStream, transfer(ByteCount as usize)];
    fn cuMemcpyHtoAAsync_v2(dstArray: *mut c_void, dstOffset: usize, srcHost: *mut c_void, ByteCount: usize, hStream: CUstream) [Legacy hStream, transfer(ByteCount)];
    fn cuMemcpyHtoAAsync_v2_ptsz(dstArray: *mut c_void, dstOffset: usize, srcHost: *mut c_void, ByteCount: usize, hStream: CUstream) [PerThread hStream, transfer(ByteCount)];
    fn cuMemcpyHtoA_v2(dstArray: *mut c_void, dstOffset: usize, srcHost: *mut c_void, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyHtoA_v2_ptds(dstArray: *mut c_void, dstOffset: usize, srcHost: *mut c_void, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyHtoD(dstDevice: c_uint, srcHost: *mut c_void, ByteCount: c_uint) [Legacy NO_STREAM, transfer(ByteCount as usize)];
    fn cuMemcpyHtoDAsync(dstDevice: c_uint, srcHost: *mut c_void, ByteCount: c_uint, hStream: CUstream) [Legacy hStream, transfer(ByteCount as usize)];
    fn cuMemcpyHtoDAsync_v2(dstDevice: CUdeviceptr, srcHost: *mut c_void, ByteCount: usize, hStream: CUstream) [Legacy hStream, transfer(ByteCount)];
    fn cuMemcpyHtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcHost: *mut c_void, ByteCount: usize, hStream: CUstream) [PerThread hStream, transfer(ByteCount)];
    fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: *mut c_void, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyHtoD_v2_ptds(dstDevice: CUdeviceptr, srcHost: *mut c_void, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyPeer(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyPeerAsync(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) [Legacy hStream, transfer(ByteCount)];
    fn cuMemcpyPeerAsync_ptsz(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) [PerThread hStream, transfer(ByteCount)];
    fn cuMemcpyPeer_ptds(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemcpyWithAttributesAsync(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut c_void, hStream: CUstream) [Legacy hStream, transfer(0)];
    fn cuMemcpyWithAttributesAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut c_void, hStream: CUstream) [PerThread hStream, transfer(0)];
    fn cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) [PerThread NO_STREAM, transfer(ByteCount)];
    fn cuMemsetD16(dstDevice: c_uint, us: u16, N: c_uint) [Legacy NO_STREAM, memset(N as usize)];
    fn cuMemsetD16Async(dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream) [Legacy hStream, prequeueable(memset(N))];
    fn cuMemsetD16Async_ptsz(dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream) [PerThread hStream, prequeueable(memset(N))];
    fn cuMemsetD16_v2(dstDevice: CUdeviceptr, us: u16, N: usize) [Legacy NO_STREAM, memset(N)];
    fn cuMemsetD16_v2_ptds(dstDevice: CUdeviceptr, us: u16, N: usize) [PerThread NO_STREAM, memset(N)];
    fn cuMemsetD2D16(dstDevice: c_uint, dstPitch: c_uint, us: u16, Width: c_uint, Height: c_uint) [Legacy NO_STREAM, memset(Width as usize * Height as usize)];
    fn cuMemsetD2D16Async(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream) [Legacy hStream, prequeueable(memset(Width * Height))];
    fn cuMemsetD2D16Async_ptsz(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream) [PerThread hStream, prequeueable(memset(Width * Height))];
    fn cuMemsetD2D16_v2(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize) [Legacy NO_STREAM, memset(Width * Height)];
    fn cuMemsetD2D16_v2_ptds(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize) [PerThread NO_STREAM, memset(Width * Height)];
    fn cuMemsetD2D32(dstDevice: c_uint, dstPitch: c_uint, ui: c_uint, Width: c_uint, Height: c_uint) [Legacy NO_STREAM, memset(Width as usize * Height as usize)];
    fn cuMemsetD2D32Async(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize, hStream: CUstream) [Legacy hStream, prequeueable(memset(Width * Height))];
    fn cuMemsetD2D32Async_ptsz(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize, hStream: CUstream) [PerThread hStream, prequeueable(memset(Width * Height))];
    fn cuMemsetD2D32_v2(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize) [Legacy NO_STREAM, memset(Width * Height)];
    fn cuMemsetD2D32_v2_ptds(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize) [PerThread NO_STREAM, memset(Width * Height)];
    fn cuMemsetD2D8(dstDevice: c_uint, dstPitch: c_uint, uc: c_uchar, Width: c_uint, Height: c_uint) [Legacy NO_STREAM, memset(Width as usize * Height as usize)];
    fn cuMemsetD2D8Async(dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize, hStream: CUstream) [Legacy hStream, prequeueable(memset(Width * Height))];
    fn cuMemsetD2D8Async_ptsz(dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize, hStream: CUstream) [PerThread hStream, prequeueable(memset(Width * Height))];
    fn cuMemsetD2D8_v2(dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize) [Legacy NO_STREAM, memset(Width * Height)];
    fn cuMemsetD2D8_v2_ptds(dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize) [PerThread NO_STREAM, memset(Width * Height)];
    fn cuMemsetD32(dstDevice: c_uint, ui: c_uint, N: c_uint) [Legacy NO_STREAM, memset(N as usize)];
    fn cuMemsetD32Async(dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream) [Legacy hStream, prequeueable(memset(N))];
    fn cuMemsetD32Async_ptsz(dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream) [PerThread hStream, prequeueable(memset(N))];
    fn cuMemsetD32_v2(dstDevice: CUdeviceptr, ui: c_uint, N: usize) [Legacy NO_STREAM, memset(N)];
    fn cuMemsetD32_v2_ptds(dstDevice: CUdeviceptr, ui: c_uint, N: usize) [PerThread NO_STREAM, memset(N)];
    fn cuMemsetD8(dstDevice: c_uint, uc: c_uchar, N: c_uint) [Legacy NO_STREAM, memset(N as usize)];
    fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: c_uchar, N: usize, hStream: CUstream) [Legacy hStream, prequeueable(memset(N))];
    fn cuMemsetD8Async_ptsz(dstDevice: CUdeviceptr, uc: c_uchar, N: usize, hStream: CUstream) [PerThread hStream, prequeueable(memset(N))];
    fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: c_uchar, N: usize) [Legacy NO_STREAM, memset(N)];
    fn cuMemsetD8_v2_ptds(dstDevice: CUdeviceptr, uc: c_uchar, N: usize) [PerThread NO_STREAM, memset(N)];
    fn cuStreamAttachMemAsync(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint) [Legacy hStream, transfer(0)];
    fn cuStreamAttachMemAsync_ptsz(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint) [PerThread hStream, transfer(0)];
}

orders! {
    ORDERS: Order;
    [join]
    fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: c_uint) [Legacy hStream];
    fn cuStreamWaitEvent_ptsz(hStream: CUstream, hEvent: CUevent, Flags: c_uint) [PerThread hStream];
    [order]
    fn cuEventRecord(hEvent: CUevent, hStream: CUstream) [Legacy hStream];
    fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: c_uint) [Legacy hStream];
    fn cuEventRecordWithFlags_ptsz(hEvent: CUevent, hStream: CUstream, flags: c_uint) [PerThread hStream];
    fn cuEventRecord_ptsz(hEvent: CUevent, hStream: CUstream) [PerThread hStream];
    fn cuLaunchHostFunc(hStream: CUstream, callback: *mut c_void, userData: *mut c_void) [Legacy hStream];
    fn cuLaunchHostFunc_ptsz(hStream: CUstream, callback: *mut c_void, userData: *mut c_void) [PerThread hStream];
    fn cuLaunchHostFunc_v2(hStream: CUstream, callback: *mut c_void, userData: *mut c_void, syncMode: c_uint) [Legacy hStream];
    fn cuLaunchHostFunc_v2_ptsz(hStream: CUstream, callback: *mut c_void, userData: *mut c_void, syncMode: c_uint) [PerThread hStream];
    fn cuSignalExternalSemaphoresAsync(extSemArray: *mut c_void, paramsArray: *mut c_void, numExtSems: c_uint, stream: CUstream) [Legacy stream];
    fn cuSignalExternalSemaphoresAsync_ptsz(extSemArray: *mut c_void, paramsArray: *mut c_void, numExtSems: c_uint, stream: CUstream) [PerThread stream];
    fn cuStreamAddCallback(hStream: CUstream, callback: *mut c_void, userData: *mut c_void, flags: c_uint) [Legacy hStream];
    fn cuStreamAddCallback_ptsz(hStream: CUstream, callback: *mut c_void, userData: *mut c_void, flags: c_uint) [PerThread hStream];
    fn cuStreamBatchMemOp(stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint) [Legacy stream];
    fn cuStreamBatchMemOp_ptsz(stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint) [PerThread stream];
    fn cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint) [Legacy stream];
    fn cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint) [PerThread stream];
    fn cuStreamWaitValue32(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [Legacy stream];
    fn cuStreamWaitValue32_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [PerThread stream];
    fn cuStreamWaitValue32_v2(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [Legacy stream];
    fn cuStreamWaitValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [PerThread stream];
    fn cuStreamWaitValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [Legacy stream];
    fn cuStreamWaitValue64_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [PerThread stream];
    fn cuStreamWaitValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [Legacy stream];
    fn cuStreamWaitValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [PerThread stream];
    fn cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [Legacy stream];
    fn cuStreamWriteValue32_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [PerThread stream];
    fn cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [Legacy stream];
    fn cuStreamWriteValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) [PerThread stream];
    fn cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [Legacy stream];
    fn cuStreamWriteValue64_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [PerThread stream];
    fn cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [Legacy stream];
    fn cuStreamWriteValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) [PerThread stream];
    fn cuWaitExternalSemaphoresAsync(extSemArray: *mut c_void, paramsArray: *mut c_void, numExtSems: c_uint, stream: CUstream) [Legacy stream];
    fn cuWaitExternalSemaphoresAsync_ptsz(extSemArray: *mut c_void, paramsArray: *mut c_void, numExtSems: c_uint, stream: CUstream) [PerThread stream];
}
