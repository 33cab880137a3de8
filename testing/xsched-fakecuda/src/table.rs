//! Every function of the driver: what is implemented, by which function and with what it needs; all others answer
//! `CUDA_ERROR_NOT_SUPPORTED` (made by the build script from the list of names).
//!
//! What hands out their addresses is in [`crate::lookup`].
//!
//! `driver a / b(...) => f` are two entry points for one: the second means the thread's default stream by null.

use crate::edge::{In, Need, Null, Out, Text, edge};
use crate::op::{Callback, HostFunction};
use crate::result::Error;
use crate::{
    calls, capture, context, counts, device, event, exec, graph, ipc, memops, memory, module, nodes, process, sequence,
    stream, teardown,
};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

/// An exported function.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) address: *const (),
}

// SAFETY: the address of a function is the same for all threads.
unsafe impl Sync for Entry {}

macro_rules! need {
    (always) => {
        Need::Nothing
    };
    (driver) => {
        Need::Driver
    };
}

macro_rules! entry {
    ($need:ident $name:ident ($($arg:ident: $ty:ty),*) => $path:path) => {
        /// See cuda.h.
        ///
        /// # Safety
        /// Arguments must be what cuda.h says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            edge(need!($need), &counts::$name, stringify!($name), || $path($($arg),*))
        }
    };
    ($need:ident $name:ident / $per_thread:ident ($($arg:ident: $ty:ty),*) => $path:path) => {
        /// See cuda.h.
        ///
        /// # Safety
        /// Arguments must be what cuda.h says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            edge(need!($need), &counts::$name, stringify!($name), || $path(Null::Legacy, $($arg),*))
        }

        /// See cuda.h.
        ///
        /// # Safety
        /// Arguments must be what cuda.h says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C" fn $per_thread($($arg: $ty),*) -> c_int {
            edge(need!($need), &counts::$per_thread, stringify!($per_thread), || $path(Null::PerThread, $($arg),*))
        }
    };
}

macro_rules! functions {
    ($($need:ident $name:ident $(/ $per_thread:ident)? ($($args:tt)*) => $path:path;)*) => {
        $(entry! { $need $name $(/ $per_thread)? ($($args)*) => $path })*

        /// What is implemented.
        pub(crate) static TABLE: &[Entry] = &[$(
            Entry { name: stringify!($name), address: $name as *const () },
            $(Entry {
                name: stringify!($per_thread),
                address: $per_thread as *const (),
            },)?
        )*];
    };
}

macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            /// See cuda.h. Not implemented.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub(crate) extern "C" fn $name() -> c_int {
                edge(Need::Driver, &counts::$name, stringify!($name), || Err(Error::NOT_SUPPORTED))
            }
        )*

        /// What is not.
        pub(crate) static UNSUPPORTED: &[Entry] =
            &[$(Entry { name: stringify!($name), address: $name as *const () },)*];
    };
}

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

type Context = usize;
type Stream = usize;
type Event = usize;
type Function = usize;
type Module = usize;
type Library = usize;
type Kernel = usize;
type Pool = usize;
type Graph = usize;
type Exec = usize;
type Node = usize;
type Pointer = *mut c_void;
type ConstPointer = *const c_void;

functions! {
    always cuInit(flags: c_uint) => process::init;
    always cuDriverGetVersion(out: Out<c_int>) => device::version;
    always cuGetErrorName(result: c_int, out: Out<*const c_char>) => device::error_name;
    always cuGetErrorString(result: c_int, out: Out<*const c_char>) => device::error_string;
    always cuGetExportTable(out: Out<*const c_void>, id: In<[u8; 16]>) => device::export_table;

    driver cuDeviceGetCount(out: Out<c_int>) => device::count;
    driver cuDeviceGet(out: Out<c_int>, ordinal: c_int) => device::get;
    driver cuDeviceGetName(out: Out<c_char>, room: c_int, device: c_int) => device::name;
    driver cuDeviceGetPCIBusId(out: Out<c_char>, room: c_int, device: c_int) => device::pci_bus_id;
    driver cuDeviceGetByPCIBusId(out: Out<c_int>, text: Text) => device::by_pci_bus_id;
    driver cuDeviceGetUuid(out: Out<[u8; 16]>, device: c_int) => device::uuid;
    driver cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: c_int) => device::uuid;
    driver cuDeviceTotalMem_v2(out: Out<usize>, device: c_int) => device::total_memory;
    driver cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int)
        => device::compute_capability;
    driver cuDeviceGetAttribute(out: Out<c_int>, which: c_int, device: c_int) => device::attribute;
    driver cuDeviceGetP2PAttribute(out: Out<c_int>, which: c_int, one: c_int, other: c_int) => device::p2p_attribute;
    driver cuDeviceCanAccessPeer(out: Out<c_int>, one: c_int, other: c_int) => context::can_access_peer;

    driver cuDevicePrimaryCtxRetain(out: Out<Context>, device: c_int) => context::primary_retain;
    driver cuDevicePrimaryCtxRelease(device: c_int) => teardown::primary_release;
    driver cuDevicePrimaryCtxRelease_v2(device: c_int) => teardown::primary_release;
    driver cuDevicePrimaryCtxReset(device: c_int) => teardown::primary_reset;
    driver cuDevicePrimaryCtxReset_v2(device: c_int) => teardown::primary_reset;
    driver cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>)
        => context::primary_state;
    driver cuDevicePrimaryCtxSetFlags(device: c_int, flags: c_uint) => context::primary_set_flags;
    driver cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) => context::primary_set_flags;
    driver cuCtxCreate(out: Out<Context>, flags: c_uint, device: c_int) => context::create;
    driver cuCtxCreate_v2(out: Out<Context>, flags: c_uint, device: c_int) => context::create;
    driver cuCtxCreate_v3(out: Out<Context>, params: In<u8>, count: c_int, flags: c_uint, device: c_int)
        => context::create_v3;
    driver cuCtxCreate_v4(out: Out<Context>, params: In<u8>, flags: c_uint, device: c_int) => context::create_v4;
    driver cuCtxDestroy(context: Context) => teardown::destroy;
    driver cuCtxDestroy_v2(context: Context) => teardown::destroy;
    driver cuCtxPushCurrent(context: Context) => context::push;
    driver cuCtxPushCurrent_v2(context: Context) => context::push;
    driver cuCtxPopCurrent(out: Out<Context>) => context::pop;
    driver cuCtxPopCurrent_v2(out: Out<Context>) => context::pop;
    driver cuCtxSetCurrent(context: Context) => context::set_current;
    driver cuCtxGetCurrent(out: Out<Context>) => context::get_current;
    driver cuCtxGetDevice(out: Out<c_int>) => context::get_device;
    driver cuCtxGetDevice_v2(out: Out<c_int>, context: Context) => context::get_device_of;
    driver cuCtxGetId(context: Context, out: Out<u64>) => context::get_id;
    driver cuCtxGetFlags(out: Out<c_uint>) => context::get_flags;
    driver cuCtxSetFlags(flags: c_uint) => context::set_flags;
    driver cuCtxGetApiVersion(context: Context, out: Out<c_uint>) => context::get_api_version;
    driver cuCtxGetLimit(out: Out<usize>, limit: c_uint) => context::get_limit;
    driver cuCtxSetLimit(limit: c_uint, value: usize) => context::set_limit;
    driver cuCtxGetCacheConfig(out: Out<c_int>) => context::get_config;
    driver cuCtxSetCacheConfig(config: c_uint) => context::set_config;
    driver cuCtxGetSharedMemConfig(out: Out<c_int>) => context::get_config;
    driver cuCtxSetSharedMemConfig(config: c_uint) => context::set_config;
    driver cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) => context::priority_range;
    driver cuCtxSynchronize() => context::synchronize;
    driver cuCtxSynchronize_v2(context: Context) => context::synchronize_given;

    driver cuStreamCreate(out: Out<Stream>, flags: c_uint) => stream::create;
    driver cuStreamCreateWithPriority(out: Out<Stream>, flags: c_uint, priority: c_int)
        => stream::create_with_priority;
    driver cuStreamDestroy(stream: Stream) => stream::destroy;
    driver cuStreamDestroy_v2(stream: Stream) => stream::destroy;
    driver cuStreamQuery / cuStreamQuery_ptsz(stream: Stream) => stream::query;
    driver cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: Stream) => stream::synchronize;
    driver cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: Stream, out: Out<c_int>) => stream::get_priority;
    driver cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: Stream, out: Out<c_uint>) => stream::get_flags;
    driver cuStreamGetId / cuStreamGetId_ptsz(stream: Stream, out: Out<u64>) => stream::get_id;
    driver cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: Stream, out: Out<Context>) => stream::get_ctx;
    driver cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz(stream: Stream, out: Out<Context>, green: Out<usize>)
        => stream::get_ctx_v2;
    driver cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: Stream, out: Out<c_int>) => stream::get_device;
    driver cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: Stream, event: Event, flags: c_uint) => calls::event::wait;
    driver cuStreamAddCallback / cuStreamAddCallback_ptsz(
        stream: Stream, function: Option<Callback>, data: Pointer, flags: c_uint) => calls::host::add_callback;
    driver cuLaunchHostFunc / cuLaunchHostFunc_ptsz(stream: Stream, function: Option<HostFunction>, data: Pointer)
        => calls::host::launch_host_function;
    driver cuLaunchHostFunc_v2 / cuLaunchHostFunc_v2_ptsz(
        stream: Stream, function: Option<HostFunction>, data: Pointer, mode: c_uint) => calls::host::launch_host_function_v2;

    driver cuStreamWaitValue32 / cuStreamWaitValue32_ptsz(stream: Stream, at: u64, value: u32, flags: c_uint)
        => calls::memops::wait_32;
    driver cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz(stream: Stream, at: u64, value: u32, flags: c_uint)
        => calls::memops::wait_32;
    driver cuStreamWaitValue64 / cuStreamWaitValue64_ptsz(stream: Stream, at: u64, value: u64, flags: c_uint)
        => calls::memops::wait_64;
    driver cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz(stream: Stream, at: u64, value: u64, flags: c_uint)
        => calls::memops::wait_64;
    driver cuStreamWriteValue32 / cuStreamWriteValue32_ptsz(stream: Stream, at: u64, value: u32, flags: c_uint)
        => calls::memops::write_32;
    driver cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(stream: Stream, at: u64, value: u32, flags: c_uint)
        => calls::memops::write_32;
    driver cuStreamWriteValue64 / cuStreamWriteValue64_ptsz(stream: Stream, at: u64, value: u64, flags: c_uint)
        => calls::memops::write_64;
    driver cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz(stream: Stream, at: u64, value: u64, flags: c_uint)
        => calls::memops::write_64;
    driver cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz(
        stream: Stream, count: c_uint, params: In<memops::Params>, flags: c_uint) => calls::memops::batch;
    driver cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz(
        stream: Stream, count: c_uint, params: In<memops::Params>, flags: c_uint) => calls::memops::batch;

    driver cuEventCreate(out: Out<Event>, flags: c_uint) => event::create;
    driver cuEventDestroy(event: Event) => event::destroy;
    driver cuEventDestroy_v2(event: Event) => event::destroy;
    driver cuEventRecord / cuEventRecord_ptsz(event: Event, stream: Stream) => calls::event::record;
    driver cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: Event, stream: Stream, flags: c_uint)
        => calls::event::record_with_flags;
    driver cuEventQuery(event: Event) => event::query;
    driver cuEventSynchronize(event: Event) => event::synchronize;
    driver cuEventElapsedTime(out: Out<f32>, start: Event, end: Event) => event::elapsed;
    driver cuEventElapsedTime_v2(out: Out<f32>, start: Event, end: Event) => event::elapsed;

    driver cuMemAlloc_v2(out: Out<u64>, bytes: usize) => memory::alloc;
    driver cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, rows: usize, unit: c_uint)
        => memory::alloc_pitch;
    driver cuMemFree_v2(at: u64) => memory::free;
    driver cuMemAllocHost(out: Out<Pointer>, bytes: usize) => memory::alloc_host;
    driver cuMemAllocHost_v2(out: Out<Pointer>, bytes: usize) => memory::alloc_host;
    driver cuMemHostAlloc(out: Out<Pointer>, bytes: usize, flags: c_uint) => memory::host_alloc;
    driver cuMemFreeHost(at: Pointer) => memory::host_free;
    driver cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: c_uint) => memory::alloc_managed;
    driver cuMemHostRegister(at: Pointer, bytes: usize, flags: c_uint) => memory::host_register;
    driver cuMemHostRegister_v2(at: Pointer, bytes: usize, flags: c_uint) => memory::host_register;
    driver cuMemHostUnregister(at: Pointer) => memory::host_unregister;
    driver cuMemHostGetDevicePointer_v2(out: Out<u64>, at: Pointer, flags: c_uint) => memory::host_device_pointer;
    driver cuMemHostGetFlags(out: Out<c_uint>, at: Pointer) => memory::host_flags;
    driver cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) => memory::info;
    driver cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, at: u64) => memory::address_range;
    driver cuPointerGetAttribute(out: Out<c_void>, which: c_uint, at: u64) => memory::pointer_attribute;
    driver cuMemAllocAsync / cuMemAllocAsync_ptsz(out: Out<u64>, bytes: usize, stream: Stream) => memory::alloc_async;
    driver cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        out: Out<u64>, bytes: usize, pool: Pool, stream: Stream) => memory::alloc_from_pool;
    driver cuMemFreeAsync / cuMemFreeAsync_ptsz(at: u64, stream: Stream) => memory::free_async;
    driver cuDeviceGetDefaultMemPool(out: Out<Pool>, device: c_int) => memory::device_pool;
    driver cuDeviceGetMemPool(out: Out<Pool>, device: c_int) => memory::device_pool;
    driver cuMemPoolTrimTo(pool: Pool, keep: usize) => memory::pool_trim;
    driver cuMemPoolGetAttribute(pool: Pool, which: c_uint, value: Out<u64>) => memory::pool_attribute;
    driver cuMemPoolSetAttribute(pool: Pool, which: c_uint, value: In<u64>) => memory::pool_set_attribute;

    driver cuIpcGetMemHandle(out: Out<ipc::Handle>, at: u64) => ipc::get_memory;
    driver cuIpcOpenMemHandle_v2(out: Out<u64>, handle: ipc::Handle, flags: c_uint) => ipc::open_memory;
    driver cuIpcCloseMemHandle(at: u64) => ipc::close_memory;
    driver cuIpcGetEventHandle(out: Out<ipc::Handle>, event: Event) => ipc::get_event;
    driver cuIpcOpenEventHandle(out: Out<Event>, handle: ipc::Handle) => ipc::open_event;

    driver cuMemcpy / cuMemcpy_ptds(dst: u64, src: u64, bytes: usize) => calls::copy::any;
    driver cuMemcpyAsync / cuMemcpyAsync_ptsz(dst: u64, src: u64, bytes: usize, stream: Stream) => calls::copy::any_async;
    driver cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(dst: u64, src: ConstPointer, bytes: usize) => calls::copy::to_device;
    driver cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(dst: Pointer, src: u64, bytes: usize) => calls::copy::to_host;
    driver cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(dst: u64, src: u64, bytes: usize) => calls::copy::on_device;
    driver cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(
        dst: u64, src: ConstPointer, bytes: usize, stream: Stream) => calls::copy::to_device_async;
    driver cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(dst: Pointer, src: u64, bytes: usize, stream: Stream)
        => calls::copy::to_host_async;
    driver cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: Stream)
        => calls::copy::on_device_async;
    driver cuMemcpyPeer / cuMemcpyPeer_ptds(dst: u64, to: Context, src: u64, from: Context, bytes: usize)
        => calls::copy::peer;
    driver cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        dst: u64, to: Context, src: u64, from: Context, bytes: usize, stream: Stream) => calls::copy::peer_async;
    driver cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: In<calls::copy::Copy2d>) => calls::copy::sync_2d;
    driver cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: In<calls::copy::Copy2d>) => calls::copy::sync_2d;
    driver cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: In<calls::copy::Copy2d>, stream: Stream) => calls::copy::async_2d;
    driver cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz(
        dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize,
        attributes: In<u8>, indices: In<usize>, attribute_count: usize, failed: Out<usize>, stream: Stream)
        => calls::copy::batch;
    driver cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz(
        dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize,
        attributes: In<u8>, indices: In<usize>, attribute_count: usize, stream: Stream) => calls::copy::batch_v2;
    driver cuMemsetD8_v2 / cuMemsetD8_v2_ptds(at: u64, value: c_uchar, count: usize) => calls::copy::set_8;
    driver cuMemsetD16_v2 / cuMemsetD16_v2_ptds(at: u64, value: c_ushort, count: usize) => calls::copy::set_16;
    driver cuMemsetD32_v2 / cuMemsetD32_v2_ptds(at: u64, value: c_uint, count: usize) => calls::copy::set_32;
    driver cuMemsetD8Async / cuMemsetD8Async_ptsz(at: u64, value: c_uchar, count: usize, stream: Stream)
        => calls::copy::set_8_async;
    driver cuMemsetD16Async / cuMemsetD16Async_ptsz(at: u64, value: c_ushort, count: usize, stream: Stream)
        => calls::copy::set_16_async;
    driver cuMemsetD32Async / cuMemsetD32Async_ptsz(at: u64, value: c_uint, count: usize, stream: Stream)
        => calls::copy::set_32_async;
    driver cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(at: u64, pitch: usize, value: c_uchar, w: usize, h: usize)
        => calls::copy::set_2d_8;
    driver cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(at: u64, pitch: usize, value: c_ushort, w: usize, h: usize)
        => calls::copy::set_2d_16;
    driver cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(at: u64, pitch: usize, value: c_uint, w: usize, h: usize)
        => calls::copy::set_2d_32;
    driver cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        at: u64, pitch: usize, value: c_uchar, w: usize, h: usize, stream: Stream) => calls::copy::set_2d_8_async;
    driver cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
        at: u64, pitch: usize, value: c_ushort, w: usize, h: usize, stream: Stream) => calls::copy::set_2d_16_async;
    driver cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        at: u64, pitch: usize, value: c_uint, w: usize, h: usize, stream: Stream) => calls::copy::set_2d_32_async;

    driver cuModuleLoad(out: Out<Module>, path: Text) => module::module_load;
    driver cuModuleLoadData(out: Out<Module>, image: Text) => module::module_load_data;
    driver cuModuleLoadDataEx(
        out: Out<Module>, image: Text, count: c_uint, options: In<c_int>, values: In<Pointer>)
        => module::module_load_data_ex;
    driver cuModuleLoadFatBinary(out: Out<Module>, image: Text) => module::module_load_data;
    driver cuModuleUnload(module: Module) => module::module_unload;
    driver cuModuleGetFunction(out: Out<Function>, module: Module, name: Text) => module::module_get_function;
    driver cuModuleGetFunctionCount(out: Out<c_uint>, module: Module) => module::module_function_count;
    driver cuModuleEnumerateFunctions(out: Out<Function>, room: c_uint, module: Module) => module::module_functions;
    driver cuModuleGetLoadingMode(out: Out<c_int>) => module::loading_mode;
    driver cuLibraryLoadData(
        out: Out<Library>, image: Text, jit: In<c_int>, jit_values: In<Pointer>, jit_count: c_uint,
        options: In<c_int>, values: In<Pointer>, count: c_uint) => module::library_load_data;
    driver cuLibraryUnload(library: Library) => module::library_unload;
    driver cuLibraryGetKernel(out: Out<Kernel>, library: Library, name: Text) => module::library_get_kernel;
    driver cuLibraryGetKernelCount(out: Out<c_uint>, library: Library) => module::library_kernel_count;
    driver cuLibraryEnumerateKernels(out: Out<Kernel>, room: c_uint, library: Library) => module::library_kernels;
    driver cuLibraryGetModule(out: Out<Module>, library: Library) => module::library_get_module;
    driver cuKernelGetFunction(out: Out<Function>, kernel: Kernel) => module::kernel_get_function;
    driver cuKernelGetLibrary(out: Out<Library>, kernel: Kernel) => module::get_module;
    driver cuKernelGetName(out: Out<*const c_char>, kernel: Kernel) => module::get_name;
    driver cuKernelGetAttribute(out: Out<c_int>, which: c_int, kernel: Kernel, device: c_int)
        => module::kernel_attribute;
    driver cuKernelGetParamCount(kernel: Kernel, out: Out<usize>) => module::param_count;
    driver cuKernelGetParamInfo(kernel: Kernel, index: usize, offset: Out<usize>, size: Out<usize>)
        => module::param_info;
    driver cuFuncGetModule(out: Out<Module>, function: Function) => module::get_module;
    driver cuFuncGetName(out: Out<*const c_char>, function: Function) => module::get_name;
    driver cuFuncGetAttribute(out: Out<c_int>, which: c_int, function: Function) => module::function_attribute;
    driver cuFuncSetAttribute(function: Function, which: c_int, value: c_int) => module::set_attribute;
    driver cuFuncSetCacheConfig(function: Function, config: c_int) => module::set_cache_config;
    driver cuFuncGetParamCount(function: Function, out: Out<usize>) => module::param_count;
    driver cuFuncGetParamInfo(function: Function, index: usize, offset: Out<usize>, size: Out<usize>)
        => module::param_info;
    driver cuFuncIsLoaded(out: Out<c_int>, function: Function) => module::is_loaded;
    driver cuFuncLoad(function: Function) => module::function_load;
    driver cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<c_int>, function: Function, block: c_int, shared: usize) => module::occupancy;
    driver cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, function: Function, block: c_int, shared: usize, flags: c_uint)
        => module::occupancy_with_flags;

    driver cuLaunchKernel / cuLaunchKernel_ptsz(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Stream, params: In<In<u8>>, extra: In<usize>) => calls::launch::kernel;
    driver cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: In<calls::launch::Config>, function: Function, params: In<In<u8>>, extra: In<usize>) => calls::launch::kernel_ex;
    driver cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Stream, params: In<In<u8>>) => calls::launch::cooperative;

    driver cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: Stream) => capture::begin;
    driver cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: Stream, mode: c_int)
        => capture::begin_in_mode;
    driver cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz(
        stream: Stream, graph: Graph, after: In<Node>, edges: In<u8>, count: usize, mode: c_int)
        => capture::begin_to_graph;
    driver cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: Stream, out: Out<Graph>) => capture::end;
    driver cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: Stream, out: Out<c_int>) => capture::is_capturing;
    driver cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(stream: Stream, status: Out<c_int>, id: Out<u64>)
        => capture::get_info;
    driver cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, nodes: Out<*const Node>,
        count: Out<usize>) => capture::get_info_v2;
    driver cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, nodes: Out<*const Node>,
        edges: Out<*const u8>, count: Out<usize>) => capture::get_info_v3;
    driver cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz(
        stream: Stream, nodes: In<Node>, count: usize, flags: c_uint) => capture::update_dependencies;
    driver cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: Stream, nodes: In<Node>, edges: In<u8>, count: usize, flags: c_uint)
        => capture::update_dependencies_v2;
    driver cuThreadExchangeStreamCaptureMode(mode: sequence::InOut) => sequence::exchange_mode;

    driver cuGraphCreate(out: Out<Graph>, flags: c_uint) => graph::create;
    driver cuGraphDestroy(graph: Graph) => graph::destroy;
    driver cuGraphClone(out: Out<Graph>, graph: Graph) => graph::clone;
    driver cuGraphAddKernelNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<graph::KernelParams>)
        => graph::add_kernel;
    driver cuGraphAddKernelNode_v2(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<graph::KernelParamsV2>)
        => graph::add_kernel_v2;
    driver cuGraphAddEmptyNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize) => graph::add_empty;
    driver cuGraphAddHostNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<graph::HostParams>)
        => graph::add_host;
    driver cuGraphAddChildGraphNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, child: Graph)
        => graph::add_child;
    driver cuGraphAddDependencies(graph: Graph, from: In<Node>, to: In<Node>, count: usize)
        => graph::add_dependencies;
    driver cuGraphAddDependencies_v2(graph: Graph, from: In<Node>, to: In<Node>, data: In<graph::EdgeData>, count: usize)
        => graph::add_dependencies_v2;
    driver cuGraphGetNodes(graph: Graph, nodes: Out<Node>, count: graph::InOutCount) => graph::get_nodes;
    driver cuGraphGetRootNodes(graph: Graph, nodes: Out<Node>, count: graph::InOutCount) => graph::get_root_nodes;
    driver cuGraphGetEdges(graph: Graph, from: Out<Node>, to: Out<Node>, count: graph::InOutCount)
        => graph::get_edges;
    driver cuGraphGetEdges_v2(
        graph: Graph, from: Out<Node>, to: Out<Node>, data: Out<graph::EdgeData>, count: graph::InOutCount)
        => graph::get_edges_v2;
    driver cuGraphNodeGetType(node: Node, out: Out<c_int>) => graph::node_type;
    driver cuGraphNodeFindInClone(out: Out<Node>, node: Node, clone: Graph) => graph::find_in_clone;
    driver cuGraphKernelNodeGetParams_v2(node: Node, out: Out<graph::KernelParamsV2>) => graph::kernel_params_v2;
    driver cuGraphKernelNodeSetParams(node: Node, params: In<graph::KernelParams>) => nodes::set_kernel;
    driver cuGraphKernelNodeSetParams_v2(node: Node, params: In<graph::KernelParamsV2>) => nodes::set_kernel_v2;
    driver cuGraphAddMemcpyNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<nodes::CopyParams>, context: Context)
        => nodes::add_copy;
    driver cuGraphMemcpyNodeGetParams(node: Node, out: Out<nodes::CopyParams>) => nodes::get_copy;
    driver cuGraphMemcpyNodeSetParams(node: Node, params: In<nodes::CopyParams>) => nodes::set_copy;
    driver cuGraphExecMemcpyNodeSetParams(exec: Exec, node: Node, params: In<nodes::CopyParams>, context: Context)
        => nodes::exec_set_copy;
    driver cuGraphAddMemsetNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<nodes::SetParams>, context: Context)
        => nodes::add_set;
    driver cuGraphMemsetNodeGetParams(node: Node, out: Out<nodes::SetParams>) => nodes::get_set;
    driver cuGraphMemsetNodeSetParams(node: Node, params: In<nodes::SetParams>) => nodes::set_set;
    driver cuGraphExecMemsetNodeSetParams(exec: Exec, node: Node, params: In<nodes::SetParams>, context: Context)
        => nodes::exec_set_set;
    driver cuGraphHostNodeGetParams(node: Node, out: Out<graph::HostParams>) => nodes::get_host;
    driver cuGraphHostNodeSetParams(node: Node, params: In<graph::HostParams>) => nodes::set_host;
    driver cuGraphAddBatchMemOpNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<graph::BatchParams>)
        => graph::add_batch;
    driver cuGraphAddMemAllocNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: Out<graph::AllocParams>)
        => graph::add_alloc;
    driver cuGraphAddMemFreeNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, at: u64)
        => graph::add_free;
    driver cuGraphRemoveDependencies(graph: Graph, from: In<Node>, to: In<Node>, count: usize)
        => graph::remove_dependencies;
    driver cuGraphRemoveDependencies_v2(graph: Graph, from: In<Node>, to: In<Node>, data: In<graph::EdgeData>, count: usize)
        => graph::remove_dependencies_v2;

    driver cuGraphInstantiate(out: Out<Exec>, graph: Graph, node: Out<Node>, log: Out<c_char>, room: usize)
        => exec::instantiate;
    driver cuGraphInstantiate_v2(out: Out<Exec>, graph: Graph, node: Out<Node>, log: Out<c_char>, room: usize)
        => exec::instantiate;
    driver cuGraphInstantiateWithFlags(out: Out<Exec>, graph: Graph, flags: u64) => exec::instantiate_with_flags;
    driver cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        out: Out<Exec>, graph: Graph, params: Out<exec::Params>) => exec::instantiate_with_params;
    driver cuGraphExecDestroy(exec: Exec) => exec::destroy;
    driver cuGraphExecGetFlags(exec: Exec, out: Out<u64>) => exec::get_flags;
    driver cuGraphExecUpdate(exec: Exec, graph: Graph, node: Out<Node>, result: Out<c_int>) => exec::exec_update;
    driver cuGraphExecUpdate_v2(exec: Exec, graph: Graph, info: Out<exec::Outcome>) => exec::exec_update_v2;
    driver cuGraphExecKernelNodeSetParams(exec: Exec, node: Node, params: In<graph::KernelParams>) => exec::set_kernel;
    driver cuGraphExecKernelNodeSetParams_v2(exec: Exec, node: Node, params: In<graph::KernelParamsV2>)
        => exec::set_kernel_v2;
    driver cuGraphExecHostNodeSetParams(exec: Exec, node: Node, params: In<graph::HostParams>)
        => nodes::exec_set_host;
    driver cuGraphExecBatchMemOpNodeSetParams(exec: Exec, node: Node, params: In<graph::BatchParams>)
        => exec::set_batch;
    driver cuGraphNodeSetEnabled(exec: Exec, node: Node, enabled: c_uint) => exec::set_enabled;
    driver cuGraphNodeGetEnabled(exec: Exec, node: Node, out: Out<c_uint>) => exec::get_enabled;
    driver cuGraphLaunch / cuGraphLaunch_ptsz(exec: Exec, stream: Stream) => exec::launch;
    driver cuGraphUpload / cuGraphUpload_ptsz(exec: Exec, stream: Stream) => exec::upload;
}
