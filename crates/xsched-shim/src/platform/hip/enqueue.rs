//! Commands for streams. Each list begins with its name and class. A row has in brackets the meaning of a null stream
//! for the function, the stream, and the description of the work. Arguments of kernels are never read.

use xsched_core::Work;

use super::api::Api;
use super::types::*;
use super::{real, sig};
use crate::interpose::hooks;
use crate::platform::shared::StreamKind::{Legacy, PerThread};
use crate::platform::shared::behind;
use crate::platform::shared::path::{
    UNKNOWN, blocking_transfer, enqueue, graph, join, kernel, memset, order, prequeueable, transfer,
};

/// Stream of functions that take none.
const NO_STREAM: hipStream_t = std::ptr::null_mut();

/// Start of hipLaunchConfig_t; also of HIP_LAUNCH_CONFIG, whose members between shape and stream differ.
#[repr(C)]
struct LaunchConfig {
    shape: [c_uint; 6],
    shared_bytes: usize,
    stream: hipStream_t,
}

/// hipLaunchParams.
#[repr(C)]
struct LaunchParams {
    function: *mut c_void,
    shape: [c_uint; 6],
    parameters: *mut c_void,
    shared_bytes: usize,
    stream: hipStream_t,
}

/// hipFunctionLaunchParams.
#[repr(C)]
struct ModuleLaunchParams {
    function: hipFunction_t,
    shape: [c_uint; 6],
    shared_bytes: c_uint,
    stream: hipStream_t,
    parameters: *mut c_void,
}

const _: () = assert!(
    std::mem::offset_of!(LaunchConfig, stream) == 32
        && std::mem::offset_of!(LaunchParams, stream) == 48
        && std::mem::offset_of!(ModuleLaunchParams, stream) == 40
);

#[inline(always)]
fn stream_of(config: *mut c_void) -> hipStream_t {
    // SAFETY: null, or the caller's own configuration, which the runtime reads too.
    unsafe { config.cast::<LaunchConfig>().as_ref() }.map_or(NO_STREAM, |c| c.stream)
}

fn shape_of(config: *mut c_void) -> [c_uint; 6] {
    // SAFETY: as above.
    unsafe { config.cast::<LaunchConfig>().as_ref() }.map_or([0; 6], |c| c.shape)
}

/// Stream of a launch on several devices at once: it is scheduled with the first.
fn first_stream(list: *mut c_void, count: c_int) -> hipStream_t {
    if count <= 0 {
        return NO_STREAM;
    }
    // SAFETY: null, or the caller's own list of `count` entries.
    unsafe { list.cast::<LaunchParams>().as_ref() }.map_or(NO_STREAM, |p| p.stream)
}

/// Stream of a launch of modules' kernels on several devices at once: the first.
fn first_module_stream(list: *mut c_void, count: c_uint) -> hipStream_t {
    if count == 0 {
        return NO_STREAM;
    }
    // SAFETY: as above.
    unsafe { list.cast::<ModuleLaunchParams>().as_ref() }.map_or(NO_STREAM, |p| p.stream)
}

fn shape(grid: Dim3, block: Dim3) -> [c_uint; 6] {
    [grid.x, grid.y, grid.z, block.x, block.y, block.z]
}

fn area(width: usize, height: usize) -> usize {
    width.saturating_mul(height)
}

/// Work of a synchronous copy: data for the host has arrived when the call returns.
fn copy(kind: c_uint, size: usize) -> Work {
    if kind == DEVICE_TO_HOST { blocking_transfer(size) } else { transfer(size) }
}

macro_rules! enqueues {
    (
        $list:ident: $class:ident;
        $(fn $name:ident($($arg:ident: $ty:ty),*) [$mode:ident $stream:expr, $work:expr];)*
    ) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                enqueue::<Api>(real, $stream, $mode, move || -> Work { $work }, move || unsafe { function($($arg),*) })
            }
        )*
        hooks! { HIP, $list: $class; $($name)* }
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
            unsafe extern "C" fn $name($($arg: $ty),*) -> hipError_t {
                let (real, function) = real!($name);
                // SAFETY: the caller's own arguments.
                $way::<Api>(real, $stream, $mode, move || unsafe { function($($arg),*) })
            }
        )*)*
        hooks! { HIP, $list: $class; $($($name)*)* }
    };
}

enqueues! {
    LAUNCHES: Launch;
    fn _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t, flags: c_uint) [Legacy hStream, kernel(f, &[globalWorkSizeX, globalWorkSizeY, globalWorkSizeZ, localWorkSizeX, localWorkSizeY, localWorkSizeZ])];
    fn _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t) [Legacy hStream, kernel(f, &[globalWorkSizeX, globalWorkSizeY, globalWorkSizeZ, localWorkSizeX, localWorkSizeY, localWorkSizeZ])];
    fn hipDrvLaunchKernelEx(config: *mut c_void, f: hipFunction_t, params: *mut c_void, extra: *mut c_void) [Legacy stream_of(config), kernel(f, &shape_of(config))];
    fn hipExtLaunchKernel(function_address: *mut c_void, numBlocks: Dim3, dimBlocks: Dim3, args: *mut c_void, sharedMemBytes: usize, stream: hipStream_t, startEvent: hipEvent_t, stopEvent: hipEvent_t, flags: c_int) [Legacy stream, kernel(function_address, &shape(numBlocks, dimBlocks))];
    fn hipExtLaunchMultiKernelMultiDevice(launchParamsList: *mut c_void, numDevices: c_int, flags: c_uint) [Legacy first_stream(launchParamsList, numDevices), UNKNOWN];
    fn hipExtModuleLaunchKernel(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t, flags: c_uint) [Legacy hStream, kernel(f, &[globalWorkSizeX, globalWorkSizeY, globalWorkSizeZ, localWorkSizeX, localWorkSizeY, localWorkSizeZ])];
    fn hipGraphLaunch(graphExec: hipGraphExec_t, stream: hipStream_t) [Legacy stream, graph(graphExec, 0)];
    fn hipGraphLaunch_spt(graphExec: hipGraphExec_t, stream: hipStream_t) [PerThread stream, graph(graphExec, 0)];
    fn hipHccModuleLaunchKernel(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t) [Legacy hStream, kernel(f, &[globalWorkSizeX, globalWorkSizeY, globalWorkSizeZ, localWorkSizeX, localWorkSizeY, localWorkSizeZ])];
    fn hipLaunchByPtr(func: *mut c_void) [Legacy NO_STREAM, kernel(func, &[])];
    fn hipLaunchCooperativeKernel(f: *mut c_void, gridDim: Dim3, blockDimX: Dim3, kernelParams: *mut c_void, sharedMemBytes: c_uint, stream: hipStream_t) [Legacy stream, kernel(f, &shape(gridDim, blockDimX))];
    fn hipLaunchCooperativeKernelMultiDevice(launchParamsList: *mut c_void, numDevices: c_int, flags: c_uint) [Legacy first_stream(launchParamsList, numDevices), UNKNOWN];
    fn hipLaunchCooperativeKernel_spt(f: *mut c_void, gridDim: Dim3, blockDim: Dim3, kernelParams: *mut c_void, sharedMemBytes: c_uint, hStream: hipStream_t) [PerThread hStream, kernel(f, &shape(gridDim, blockDim))];
    fn hipLaunchKernel(function_address: *mut c_void, numBlocks: Dim3, dimBlocks: Dim3, args: *mut c_void, sharedMemBytes: usize, stream: hipStream_t) [Legacy stream, kernel(function_address, &shape(numBlocks, dimBlocks))];
    fn hipLaunchKernelExC(config: *mut c_void, fPtr: *mut c_void, args: *mut c_void) [Legacy stream_of(config), kernel(fPtr, &shape_of(config))];
    fn hipLaunchKernel_spt(function_address: *mut c_void, numBlocks: Dim3, dimBlocks: Dim3, args: *mut c_void, sharedMemBytes: usize, stream: hipStream_t) [PerThread stream, kernel(function_address, &shape(numBlocks, dimBlocks))];
    fn hipModuleLaunchCooperativeKernel(f: hipFunction_t, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, stream: hipStream_t, kernelParams: *mut c_void) [Legacy stream, kernel(f, &[gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ])];
    fn hipModuleLaunchCooperativeKernelMultiDevice(launchParamsList: *mut c_void, numDevices: c_uint, flags: c_uint) [Legacy first_module_stream(launchParamsList, numDevices), UNKNOWN];
    fn hipModuleLaunchKernel(f: hipFunction_t, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, stream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void) [Legacy stream, kernel(f, &[gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ])];
}

enqueues! {
    COPIES: Copy;
    fn hipDrvMemDiscardAndPrefetchBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipDrvMemDiscardBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, flags: u64, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipDrvMemcpy2DUnaligned(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn hipDrvMemcpy3D(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn hipDrvMemcpy3DAsync(pCopy: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(0)];
    fn hipGraphUpload(graphExec: hipGraphExec_t, stream: hipStream_t) [Legacy stream, transfer(0)];
    fn hipGraphicsMapResources(count: c_int, resources: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(count as usize)];
    fn hipGraphicsUnmapResources(count: c_int, resources: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(count as usize)];
    fn hipMemDiscardAndPrefetchBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipMemDiscardBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, flags: u64, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipMemMapArrayAsync(mapInfoList: *mut c_void, count: c_uint, stream: hipStream_t) [Legacy stream, transfer(count as usize)];
    fn hipMemPrefetchAsync(dev_ptr: *mut c_void, count: usize, device: c_int, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipMemPrefetchAsync_v2(dev_ptr: *mut c_void, count: usize, location: u64, flags: c_uint, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipMemPrefetchBatchAsync(dev_ptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetch_locs: *mut c_void, prefetch_loc_idxs: *mut c_void, num_prefetch_locs: usize, flags: u64, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipMemcpy(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, sizeBytes)];
    fn hipMemcpy2D(dst: *mut c_void, dpitch: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy2DArrayToArray(dst: *mut c_void, wOffsetDst: usize, hOffsetDst: usize, src: *mut c_void, wOffsetSrc: usize, hOffsetSrc: usize, width: usize, height: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy2DAsync(dst: *mut c_void, dpitch: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, transfer(area(width, height))];
    fn hipMemcpy2DAsync_spt(dst: *mut c_void, dpitch: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint, stream: hipStream_t) [PerThread stream, transfer(area(width, height))];
    fn hipMemcpy2DFromArray(dst: *mut c_void, dpitch: usize, src: *mut c_void, wOffset: usize, hOffset: usize, width: usize, height: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy2DFromArrayAsync(dst: *mut c_void, dpitch: usize, src: *mut c_void, wOffset: usize, hOffset: usize, width: usize, height: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, transfer(area(width, height))];
    fn hipMemcpy2DFromArrayAsync_spt(dst: *mut c_void, dpitch: usize, src: *mut c_void, wOffsetSrc: usize, hOffsetSrc: usize, width: usize, height: usize, kind: c_uint, stream: hipStream_t) [PerThread stream, transfer(area(width, height))];
    fn hipMemcpy2DFromArray_spt(dst: *mut c_void, dpitch: usize, src: *mut c_void, wOffset: usize, hOffset: usize, width: usize, height: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy2DToArray(dst: *mut c_void, wOffset: usize, hOffset: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy2DToArrayAsync(dst: *mut c_void, wOffset: usize, hOffset: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, transfer(area(width, height))];
    fn hipMemcpy2DToArrayAsync_spt(dst: *mut c_void, wOffset: usize, hOffset: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint, stream: hipStream_t) [PerThread stream, transfer(area(width, height))];
    fn hipMemcpy2DToArray_spt(dst: *mut c_void, wOffset: usize, hOffset: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy2D_spt(dst: *mut c_void, dpitch: usize, src: *mut c_void, spitch: usize, width: usize, height: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, area(width, height))];
    fn hipMemcpy3D(p: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn hipMemcpy3DAsync(p: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(0)];
    fn hipMemcpy3DAsync_spt(p: *mut c_void, stream: hipStream_t) [PerThread stream, transfer(0)];
    fn hipMemcpy3DBatchAsync(numOps: usize, opList: *mut c_void, failIdx: *mut c_void, flags: u64, stream: hipStream_t) [Legacy stream, transfer(0)];
    fn hipMemcpy3DPeer(p: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn hipMemcpy3DPeerAsync(p: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(0)];
    fn hipMemcpy3D_spt(p: *mut c_void) [PerThread NO_STREAM, transfer(0)];
    fn hipMemcpyAsync(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, transfer(sizeBytes)];
    fn hipMemcpyAsync_spt(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, kind: c_uint, stream: hipStream_t) [PerThread stream, transfer(sizeBytes)];
    fn hipMemcpyAtoA(dstArray: *mut c_void, dstOffset: usize, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn hipMemcpyAtoD(dstDevice: *mut c_void, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn hipMemcpyAtoH(dst: *mut c_void, srcArray: *mut c_void, srcOffset: usize, count: usize) [Legacy NO_STREAM, blocking_transfer(count)];
    fn hipMemcpyAtoHAsync(dstHost: *mut c_void, srcArray: *mut c_void, srcOffset: usize, ByteCount: usize, stream: hipStream_t) [Legacy stream, transfer(ByteCount)];
    fn hipMemcpyBatchAsync(dsts: *mut c_void, srcs: *mut c_void, sizes: *mut c_void, count: usize, attrs: *mut c_void, attrsIdxs: *mut c_void, numAttrs: usize, failIdx: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(count)];
    fn hipMemcpyDtoA(dstArray: *mut c_void, dstOffset: usize, srcDevice: *mut c_void, ByteCount: usize) [Legacy NO_STREAM, transfer(ByteCount)];
    fn hipMemcpyDtoD(dst: *mut c_void, src: *mut c_void, sizeBytes: usize) [Legacy NO_STREAM, transfer(sizeBytes)];
    fn hipMemcpyDtoDAsync(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, stream: hipStream_t) [Legacy stream, prequeueable(transfer(sizeBytes))];
    fn hipMemcpyDtoH(dst: *mut c_void, src: *mut c_void, sizeBytes: usize) [Legacy NO_STREAM, blocking_transfer(sizeBytes)];
    fn hipMemcpyDtoHAsync(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, stream: hipStream_t) [Legacy stream, transfer(sizeBytes)];
    fn hipMemcpyFromArray(dst: *mut c_void, srcArray: *mut c_void, wOffset: usize, hOffset: usize, count: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, count)];
    fn hipMemcpyFromArray_spt(dst: *mut c_void, src: *mut c_void, wOffsetSrc: usize, hOffset: usize, count: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, count)];
    fn hipMemcpyFromSymbol(dst: *mut c_void, symbol: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, sizeBytes)];
    fn hipMemcpyFromSymbolAsync(dst: *mut c_void, symbol: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, transfer(sizeBytes)];
    fn hipMemcpyFromSymbolAsync_spt(dst: *mut c_void, symbol: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint, stream: hipStream_t) [PerThread stream, transfer(sizeBytes)];
    fn hipMemcpyFromSymbol_spt(dst: *mut c_void, symbol: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, sizeBytes)];
    fn hipMemcpyHtoA(dstArray: *mut c_void, dstOffset: usize, srcHost: *mut c_void, count: usize) [Legacy NO_STREAM, transfer(count)];
    fn hipMemcpyHtoAAsync(dstArray: *mut c_void, dstOffset: usize, srcHost: *mut c_void, ByteCount: usize, stream: hipStream_t) [Legacy stream, transfer(ByteCount)];
    fn hipMemcpyHtoD(dst: *mut c_void, src: *mut c_void, sizeBytes: usize) [Legacy NO_STREAM, transfer(sizeBytes)];
    fn hipMemcpyHtoDAsync(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, stream: hipStream_t) [Legacy stream, transfer(sizeBytes)];
    fn hipMemcpyParam2D(pCopy: *mut c_void) [Legacy NO_STREAM, transfer(0)];
    fn hipMemcpyParam2DAsync(pCopy: *mut c_void, stream: hipStream_t) [Legacy stream, transfer(0)];
    fn hipMemcpyPeer(dst: *mut c_void, dstDeviceId: c_int, src: *mut c_void, srcDeviceId: c_int, sizeBytes: usize) [Legacy NO_STREAM, transfer(sizeBytes)];
    fn hipMemcpyPeerAsync(dst: *mut c_void, dstDeviceId: c_int, src: *mut c_void, srcDevice: c_int, sizeBytes: usize, stream: hipStream_t) [Legacy stream, transfer(sizeBytes)];
    fn hipMemcpyToArray(dst: *mut c_void, wOffset: usize, hOffset: usize, src: *mut c_void, count: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, count)];
    fn hipMemcpyToSymbol(symbol: *mut c_void, src: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint) [Legacy NO_STREAM, copy(kind, sizeBytes)];
    fn hipMemcpyToSymbolAsync(symbol: *mut c_void, src: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, transfer(sizeBytes)];
    fn hipMemcpyToSymbolAsync_spt(symbol: *mut c_void, src: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint, stream: hipStream_t) [PerThread stream, transfer(sizeBytes)];
    fn hipMemcpyToSymbol_spt(symbol: *mut c_void, src: *mut c_void, sizeBytes: usize, offset: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, sizeBytes)];
    fn hipMemcpyWithStream(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, kind: c_uint, stream: hipStream_t) [Legacy stream, blocking_transfer(sizeBytes)];
    fn hipMemcpy_spt(dst: *mut c_void, src: *mut c_void, sizeBytes: usize, kind: c_uint) [PerThread NO_STREAM, copy(kind, sizeBytes)];
    fn hipMemset(dst: *mut c_void, value: c_int, sizeBytes: usize) [Legacy NO_STREAM, memset(sizeBytes)];
    fn hipMemset2D(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) [Legacy NO_STREAM, memset(area(width, height))];
    fn hipMemset2DAsync(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(area(width, height)))];
    fn hipMemset2DAsync_spt(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: hipStream_t) [PerThread stream, prequeueable(memset(area(width, height)))];
    fn hipMemset2D_spt(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) [PerThread NO_STREAM, memset(area(width, height))];
    fn hipMemset3D(pitchedDevPtr: Words<4>, value: c_int, extent: Words<3>) [Legacy NO_STREAM, memset(0)];
    fn hipMemset3DAsync(pitchedDevPtr: Words<4>, value: c_int, extent: Words<3>, stream: hipStream_t) [Legacy stream, prequeueable(memset(0))];
    fn hipMemset3DAsync_spt(pitchedDevPtr: Words<4>, value: c_int, extent: Words<3>, stream: hipStream_t) [PerThread stream, prequeueable(memset(0))];
    fn hipMemset3D_spt(pitchedDevPtr: Words<4>, value: c_int, extent: Words<3>) [PerThread NO_STREAM, memset(0)];
    fn hipMemsetAsync(dst: *mut c_void, value: c_int, sizeBytes: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(sizeBytes))];
    fn hipMemsetAsync_spt(dst: *mut c_void, value: c_int, sizeBytes: usize, stream: hipStream_t) [PerThread stream, prequeueable(memset(sizeBytes))];
    fn hipMemsetD16(dest: *mut c_void, value: u16, count: usize) [Legacy NO_STREAM, memset(count)];
    fn hipMemsetD16Async(dest: *mut c_void, value: u16, count: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(count))];
    fn hipMemsetD2D16(dst: *mut c_void, dstPitch: usize, value: u16, width: usize, height: usize) [Legacy NO_STREAM, memset(area(width, height))];
    fn hipMemsetD2D16Async(dst: *mut c_void, dstPitch: usize, value: u16, width: usize, height: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(area(width, height)))];
    fn hipMemsetD2D32(dst: *mut c_void, dstPitch: usize, value: c_uint, width: usize, height: usize) [Legacy NO_STREAM, memset(area(width, height))];
    fn hipMemsetD2D32Async(dst: *mut c_void, dstPitch: usize, value: c_uint, width: usize, height: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(area(width, height)))];
    fn hipMemsetD2D8(dst: *mut c_void, dstPitch: usize, value: c_uchar, width: usize, height: usize) [Legacy NO_STREAM, memset(area(width, height))];
    fn hipMemsetD2D8Async(dst: *mut c_void, dstPitch: usize, value: c_uchar, width: usize, height: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(area(width, height)))];
    fn hipMemsetD32(dest: *mut c_void, value: c_int, count: usize) [Legacy NO_STREAM, memset(count)];
    fn hipMemsetD32Async(dst: *mut c_void, value: c_int, count: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(count))];
    fn hipMemsetD8(dest: *mut c_void, value: c_uchar, count: usize) [Legacy NO_STREAM, memset(count)];
    fn hipMemsetD8Async(dest: *mut c_void, value: c_uchar, count: usize, stream: hipStream_t) [Legacy stream, prequeueable(memset(count))];
    fn hipMemset_spt(dst: *mut c_void, value: c_int, sizeBytes: usize) [PerThread NO_STREAM, memset(sizeBytes)];
    fn hipStreamAttachMemAsync(stream: hipStream_t, dev_ptr: *mut c_void, length: usize, flags: c_uint) [Legacy stream, transfer(0)];
}

/// Launch function called by programs that an old hipcc compiled; it returns nothing.
unsafe extern "C" fn _ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv(
    function_address: usize,
    numBlocks: *const Dim3,
    dimBlocks: *const Dim3,
    sharedMemBytes: c_uint,
    stream: hipStream_t,
    kernarg: *mut c_void,
) {
    let real = behind(_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv::real(), || {
        &_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv::HOOK
    });
    if real.is_null() {
        return;
    }
    // SAFETY: the address of the real function of this name.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, sig::_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv>(
            real,
        )
    };
    let work = || {
        // SAFETY: references of the caller's.
        let (grid, block) = unsafe { (numBlocks.as_ref(), dimBlocks.as_ref()) };
        kernel(
            function_address as *const c_void,
            &shape(grid.copied().unwrap_or_default(), block.copied().unwrap_or_default()),
        )
    };
    enqueue::<Api>(real, stream, Legacy, work, move || {
        // SAFETY: the caller's own arguments.
        unsafe { function(function_address, numBlocks, dimBlocks, sharedMemBytes, stream, kernarg) };
        SUCCESS
    });
}

hooks! { HIP, OLD_LAUNCHES: Launch; _ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv }

orders! {
    ORDERS: Order;
    [join]
    fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint) [Legacy stream];
    fn hipStreamWaitEvent_spt(stream: hipStream_t, event: hipEvent_t, flags: c_uint) [PerThread stream];
    [order]
    fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) [Legacy stream];
    fn hipEventRecordWithFlags(event: hipEvent_t, stream: hipStream_t, flags: c_uint) [Legacy stream];
    fn hipEventRecord_spt(event: hipEvent_t, stream: hipStream_t) [PerThread stream];
    fn hipLaunchHostFunc(stream: hipStream_t, fn_: *mut c_void, userData: *mut c_void) [Legacy stream];
    fn hipLaunchHostFunc_spt(stream: hipStream_t, fn_: *mut c_void, userData: *mut c_void) [PerThread stream];
    fn hipSignalExternalSemaphoresAsync(extSemArray: *mut c_void, paramsArray: *mut c_void, numExtSems: c_uint, stream: hipStream_t) [Legacy stream];
    fn hipStreamAddCallback(stream: hipStream_t, callback: *mut c_void, userData: *mut c_void, flags: c_uint) [Legacy stream];
    fn hipStreamAddCallback_spt(stream: hipStream_t, callback: *mut c_void, userData: *mut c_void, flags: c_uint) [PerThread stream];
    fn hipStreamBatchMemOp(stream: hipStream_t, count: c_uint, paramArray: *mut c_void, flags: c_uint) [Legacy stream];
    fn hipStreamWaitValue32(stream: hipStream_t, ptr: *mut c_void, value: c_uint, flags: c_uint, mask: c_uint) [Legacy stream];
    fn hipStreamWaitValue64(stream: hipStream_t, ptr: *mut c_void, value: u64, flags: c_uint, mask: u64) [Legacy stream];
    fn hipStreamWriteValue32(stream: hipStream_t, ptr: *mut c_void, value: c_uint, flags: c_uint) [Legacy stream];
    fn hipStreamWriteValue64(stream: hipStream_t, ptr: *mut c_void, value: u64, flags: c_uint) [Legacy stream];
    fn hipWaitExternalSemaphoresAsync(extSemArray: *mut c_void, paramsArray: *mut c_void, numExtSems: c_uint, stream: hipStream_t) [Legacy stream];
}
