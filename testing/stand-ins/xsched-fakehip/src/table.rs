//! Table of the implemented functions: the Rust function behind each, and the condition it checks. The linked library
//! exports `X` for each `fakehip_X` here, and returns `hipErrorNotSupported` for all other names of its major.
//!
//! `device a / a_spt(…) => f` defines two entry points for one function: for the second, a null stream is the thread's
//! default stream.

use crate::driver::HostFunction;
use crate::driver::params::{Copy2d, Handle, HostParams};
use crate::edge::{Counts, Need, Null, edge, last_error};
use crate::memory::PointerAttributes;
use crate::note::SetParams;
use crate::register::{self, Dim3, Wrapper};
use crate::volume::{Copy3d, Extent, Pitched};
use crate::{
    capture, context, copy, device, event, graph, ipc, launch, lookup, memops, memory, module, node, rtc, stream,
    volume,
};
use fakecuda::{In, Out, Text};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// An implemented function.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static Counts,
}

macro_rules! need {
    (always) => {
        Need::Nothing
    };
    (device) => {
        Need::Device
    };
}

macro_rules! entry {
    ($need:ident $name:ident ($($arg:ident: $ty:ty),*) => $path:path) => {
        /// See hip_runtime_api.h.
        ///
        /// # Safety
        /// Arguments must be what hip_runtime_api.h says.
        #[unsafe(export_name = concat!("fakehip_", stringify!($name)))]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            edge(need!($need), &counts::$name, stringify!($name), || $path($($arg),*))
        }
    };
    ($need:ident $name:ident / $per_thread:ident ($($arg:ident: $ty:ty),*) => $path:path) => {
        /// See hip_runtime_api.h.
        ///
        /// # Safety
        /// Arguments must be what hip_runtime_api.h says.
        #[unsafe(export_name = concat!("fakehip_", stringify!($name)))]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            edge(need!($need), &counts::$name, stringify!($name), || $path(Null::Legacy, $($arg),*))
        }

        /// See hip_runtime_api.h.
        ///
        /// # Safety
        /// Arguments must be what hip_runtime_api.h says.
        #[unsafe(export_name = concat!("fakehip_", stringify!($per_thread)))]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) unsafe extern "C" fn $per_thread($($arg: $ty),*) -> c_int {
            edge(need!($need), &counts::$per_thread, stringify!($per_thread), || $path(Null::PerThread, $($arg),*))
        }
    };
}

macro_rules! functions {
    (also: $($other:ident)*; $($need:ident $name:ident $(/ $per_thread:ident)? ($($args:tt)*) => $path:path;)*) => {
        $(entry! { $need $name $(/ $per_thread)? ($($args)*) => $path })*

        /// Numbers of calls of each function.
        #[allow(non_upper_case_globals)] // vendor names
        mod counts {
            use super::Counts;
            $(
                pub(super) static $name: Counts = Counts::new();
                $(pub(super) static $per_thread: Counts = Counts::new();)?
            )*
            $(pub(super) static $other: Counts = Counts::new();)*
        }

        /// All implemented functions.
        pub(crate) static TABLE: &[Entry] = &[
            $(
                Entry { name: stringify!($name), counts: &counts::$name },
                $(Entry { name: stringify!($per_thread), counts: &counts::$per_thread },)?
            )*
            $(Entry { name: stringify!($other), counts: &counts::$other },)*
        ];
    };
}

type Stream = usize;
type Event = usize;
type Function = usize;
type Module = usize;
type Context = usize;
type Pool = usize;
type Graph = usize;
type Exec = usize;
type Node = usize;
type Address = u64;
type Symbol = usize;
type Pointer = *mut c_void;
type Args = In<*const c_void>;
type Callback = unsafe extern "C" fn(usize, c_int, *mut c_void);

functions! {
    also: __hipRegisterFatBinary __hipUnregisterFatBinary __hipRegisterFunction __hipRegisterVar
        __hipRegisterManagedVar hipGetLastError hipPeekAtLastError hipExtGetLastError hipGetErrorName
        hipGetErrorString hipKernelNameRef hipKernelNameRefByPtr hipGetStreamDeviceId hiprtcVersion
        hiprtcCreateProgram hiprtcAddNameExpression hiprtcCompileProgram hiprtcGetLoweredName hiprtcGetProgramLogSize
        hiprtcGetProgramLog hiprtcGetCodeSize hiprtcGetCode hiprtcGetBitcodeSize hiprtcGetBitcode hiprtcDestroyProgram
        hiprtcLinkCreate hiprtcLinkAddFile hiprtcLinkAddData hiprtcLinkComplete hiprtcLinkDestroy
        hiprtcGetErrorString;

    always __hipPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Stream) => register::push;
    always __hipPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Stream>)
        => register::pop;
    always hipConfigureCall(grid: Dim3, block: Dim3, shared: usize, stream: Stream) => register::push;
    always hipSetupArgument(value: *const c_void, size: usize, offset: usize) => register::setup_argument;

    device hipInit(flags: c_uint) => device::init;
    always hipDriverGetVersion(out: Out<c_int>) => device::version;
    always hipRuntimeGetVersion(out: Out<c_int>) => device::version;
    always hipDrvGetErrorName(result: c_int, out: Out<*const c_char>) => device::put_error_name;
    always hipDrvGetErrorString(result: c_int, out: Out<*const c_char>) => device::put_error_string;
    always hipGetProcAddress(name: Text, out: Out<*const c_void>, version: c_int, flags: u64, status: Out<c_int>)
        => lookup::proc_address;
    always hipGetDriverEntryPoint(name: Text, out: Out<*const c_void>, flags: c_uint, status: Out<c_int>)
        => lookup::driver_entry_point;
    always hipGetDriverEntryPoint_spt(name: Text, out: Out<*const c_void>, flags: c_uint, status: Out<c_int>)
        => lookup::driver_entry_point_spt;

    always hipGetDeviceCount(out: Out<c_int>) => device::count;
    device hipSetDevice(number: c_int) => device::set;
    device hipGetDevice(out: Out<c_int>) => device::get;
    device hipDeviceGet(out: Out<c_int>, ordinal: c_int) => device::by_ordinal;
    device hipDeviceGetName(out: Out<c_char>, room: c_int, number: c_int) => device::name;
    device hipDeviceGetPCIBusId(out: Out<c_char>, room: c_int, number: c_int) => device::pci_bus_id;
    device hipDeviceGetByPCIBusId(out: Out<c_int>, text: Text) => device::by_pci_bus_id;
    device hipDeviceGetUuid(out: Out<[u8; 16]>, number: c_int) => device::uuid;
    device hipDeviceTotalMem(out: Out<usize>, number: c_int) => device::total_memory;
    device hipDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, number: c_int)
        => device::compute_capability;
    device hipDeviceGetAttribute(out: Out<c_int>, which: c_int, number: c_int) => device::attribute;
    device hipDeviceGetP2PAttribute(out: Out<c_int>, which: c_int, one: c_int, other: c_int)
        => device::p2p_attribute;
    device hipDeviceCanAccessPeer(out: Out<c_int>, one: c_int, other: c_int) => device::can_access_peer;
    device hipDeviceEnablePeerAccess(other: c_int, flags: c_uint) => device::enable_peer_access;
    device hipDeviceDisablePeerAccess(other: c_int) => device::disable_peer_access;
    device hipGetDeviceProperties(out: Out<u8>, number: c_int) => device::properties_r0000;
    device hipGetDevicePropertiesR0000(out: Out<u8>, number: c_int) => device::properties_r0000;
    device hipGetDevicePropertiesR0600(out: Out<u8>, number: c_int) => device::properties_r0600;
    device hipChooseDevice(out: Out<c_int>, properties: In<u8>) => device::choose_device;
    device hipChooseDeviceR0000(out: Out<c_int>, properties: In<u8>) => device::choose_device;
    device hipChooseDeviceR0600(out: Out<c_int>, properties: In<u8>) => device::choose_device;
    device hipDeviceSynchronize() => stream::device_synchronize;
    device hipDeviceReset() => device::reset;
    device hipSetDeviceFlags(flags: c_uint) => device::set_flags;
    device hipGetDeviceFlags(out: Out<c_uint>) => device::get_flags;
    device hipDeviceGetLimit(out: Out<usize>, which: c_int) => device::get_limit;
    device hipDeviceSetLimit(which: c_int, value: usize) => device::set_limit;
    device hipDeviceGetCacheConfig(out: Out<c_int>) => device::get_config;
    device hipDeviceSetCacheConfig(config: c_int) => device::set_config;
    device hipDeviceGetSharedMemConfig(out: Out<c_int>) => device::get_config;
    device hipDeviceSetSharedMemConfig(config: c_int) => device::set_config;
    device hipDeviceGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) => stream::priority_range;

    device hipCtxCreate(out: Out<Context>, flags: c_uint, number: c_int) => context::create;
    device hipCtxDestroy(context: Context) => context::destroy;
    device hipCtxPushCurrent(context: Context) => context::push;
    device hipCtxPopCurrent(out: Out<Context>) => context::pop;
    device hipCtxSetCurrent(context: Context) => context::set_current;
    device hipCtxGetCurrent(out: Out<Context>) => context::get_current;
    device hipCtxGetDevice(out: Out<c_int>) => context::get_device;
    device hipCtxGetApiVersion(context: Context, out: Out<c_int>) => context::api_version;
    device hipCtxGetFlags(out: Out<c_uint>) => context::get_flags;
    device hipCtxGetCacheConfig(out: Out<c_int>) => device::get_config;
    device hipCtxSetCacheConfig(config: c_int) => device::set_config;
    device hipCtxGetSharedMemConfig(out: Out<c_int>) => device::get_config;
    device hipCtxSetSharedMemConfig(config: c_int) => device::set_config;
    device hipCtxSynchronize() => stream::device_synchronize;
    device hipDevicePrimaryCtxRetain(out: Out<Context>, number: c_int) => context::primary_retain;
    device hipDevicePrimaryCtxRelease(number: c_int) => context::primary_release;
    device hipDevicePrimaryCtxReset(number: c_int) => context::primary_reset;
    device hipDevicePrimaryCtxSetFlags(number: c_int, flags: c_uint) => context::primary_set_flags;
    device hipDevicePrimaryCtxGetState(number: c_int, flags: Out<c_uint>, active: Out<c_int>)
        => context::primary_state;

    device hipStreamCreate(out: Out<Stream>) => stream::create;
    device hipStreamCreateWithFlags(out: Out<Stream>, flags: c_uint) => stream::create_with_flags;
    device hipStreamCreateWithPriority(out: Out<Stream>, flags: c_uint, priority: c_int)
        => stream::create_with_priority;
    device hipExtStreamCreateWithCUMask(out: Out<Stream>, words: u32, mask: In<u32>) => stream::create_with_cu_mask;
    device hipExtStreamGetCUMask(stream: Stream, words: u32, out: Out<u32>) => stream::get_cu_mask;
    device hipStreamDestroy(stream: Stream) => stream::destroy;
    device hipStreamQuery / hipStreamQuery_spt(stream: Stream) => stream::query;
    device hipStreamSynchronize / hipStreamSynchronize_spt(stream: Stream) => stream::synchronize;
    device hipStreamGetFlags / hipStreamGetFlags_spt(stream: Stream, out: Out<c_uint>) => stream::get_flags;
    device hipStreamGetPriority / hipStreamGetPriority_spt(stream: Stream, out: Out<c_int>) => stream::get_priority;
    device hipStreamGetDevice(stream: Stream, out: Out<c_int>) => stream::get_device;
    device hipStreamGetId(stream: Stream, out: Out<u64>) => stream::get_id;
    device hipStreamWaitEvent / hipStreamWaitEvent_spt(stream: Stream, event: Event, flags: c_uint)
        => event::wait;
    device hipStreamAddCallback / hipStreamAddCallback_spt(
        stream: Stream, function: Option<Callback>, data: Pointer, flags: c_uint) => stream::add_callback;
    device hipLaunchHostFunc / hipLaunchHostFunc_spt(stream: Stream, function: Option<HostFunction>, data: Pointer)
        => stream::launch_host_function;
    device hipStreamWaitValue32(stream: Stream, at: Address, value: u32, flags: c_uint, mask: u32) => memops::wait_32;
    device hipStreamWaitValue64(stream: Stream, at: Address, value: u64, flags: c_uint, mask: u64) => memops::wait_64;
    device hipStreamWriteValue32(stream: Stream, at: Address, value: u32, flags: c_uint) => memops::write_32;
    device hipStreamWriteValue64(stream: Stream, at: Address, value: u64, flags: c_uint) => memops::write_64;
    device hipStreamBatchMemOp(stream: Stream, count: c_uint, params: In<memops::Params>, flags: c_uint)
        => memops::batch;

    device hipEventCreate(out: Out<Event>) => event::create;
    device hipEventCreateWithFlags(out: Out<Event>, flags: c_uint) => event::create_with_flags;
    device hipEventDestroy(event: Event) => event::destroy;
    device hipEventRecord / hipEventRecord_spt(event: Event, stream: Stream) => event::record;
    device hipEventRecordWithFlags(event: Event, stream: Stream, flags: c_uint) => event::record_with_flags;
    device hipEventQuery(event: Event) => event::query;
    device hipEventSynchronize(event: Event) => event::synchronize;
    device hipEventElapsedTime(out: Out<f32>, start: Event, stop: Event) => event::elapsed;

    device hipMalloc(out: Out<Address>, bytes: usize) => memory::alloc;
    device hipExtMallocWithFlags(out: Out<Address>, bytes: usize, flags: c_uint) => memory::ext_alloc;
    device hipMallocPitch(out: Out<Address>, pitch: Out<usize>, width: usize, height: usize) => memory::alloc_pitch;
    device hipMemAllocPitch(out: Out<Address>, pitch: Out<usize>, width: usize, height: usize, unit: c_uint)
        => memory::mem_alloc_pitch;
    device hipFree(at: Address) => memory::free;
    device hipHostMalloc(out: Out<Address>, bytes: usize, flags: c_uint) => memory::host_alloc;
    device hipHostAlloc(out: Out<Address>, bytes: usize, flags: c_uint) => memory::host_alloc;
    device hipExtHostAlloc(out: Out<Address>, bytes: usize, flags: c_uint) => memory::host_alloc;
    device hipMallocHost(out: Out<Address>, bytes: usize) => memory::host_alloc_plain;
    device hipMemAllocHost(out: Out<Address>, bytes: usize) => memory::host_alloc_plain;
    device hipHostFree(at: Address) => memory::host_free;
    device hipFreeHost(at: Address) => memory::host_free;
    device hipMallocManaged(out: Out<Address>, bytes: usize, flags: c_uint) => memory::alloc_managed;
    device hipHostRegister(at: Address, bytes: usize, flags: c_uint) => memory::host_register;
    device hipHostUnregister(at: Address) => memory::host_unregister;
    device hipHostGetDevicePointer(out: Out<Address>, at: Address, flags: c_uint) => memory::host_device_pointer;
    device hipHostGetFlags(out: Out<c_uint>, at: Address) => memory::host_flags;
    device hipMemGetInfo(free: Out<usize>, total: Out<usize>) => memory::info;
    device hipMemGetAddressRange(base: Out<Address>, size: Out<usize>, at: Address) => memory::address_range;
    device hipMemPtrGetInfo(at: Address, size: Out<usize>) => memory::pointer_size;
    device hipPointerGetAttributes(out: Out<PointerAttributes>, at: Address) => memory::pointer_attributes;
    device hipPointerGetAttribute(out: Out<c_void>, which: c_int, at: Address) => memory::pointer_attribute;
    device hipMallocAsync(out: Out<Address>, bytes: usize, stream: Stream) => memory::alloc_async;
    device hipMallocFromPoolAsync(out: Out<Address>, bytes: usize, pool: Pool, stream: Stream)
        => memory::alloc_from_pool;
    device hipFreeAsync(at: Address, stream: Stream) => memory::free_async;
    device hipDeviceGetDefaultMemPool(out: Out<Pool>, number: c_int) => memory::device_pool;
    device hipDeviceGetMemPool(out: Out<Pool>, number: c_int) => memory::device_pool;
    device hipMemPoolCreate(out: Out<Pool>, props: In<memory::PoolProps>) => memory::pool_create;
    device hipMemPoolDestroy(pool: Pool) => memory::pool_destroy;
    device hipMemPoolTrimTo(pool: Pool, keep: usize) => memory::pool_trim;
    device hipMemPoolGetAttribute(pool: Pool, which: c_uint, value: Pointer) => memory::pool_get;
    device hipMemPoolSetAttribute(pool: Pool, which: c_uint, value: Pointer) => memory::pool_set;
    device hipMemAdvise(at: Address, bytes: usize, advice: c_int, number: c_int) => memory::advise;
    device hipMemPrefetchAsync(at: Address, bytes: usize, number: c_int, stream: Stream) => memory::prefetch;

    device hipIpcGetMemHandle(out: Out<Handle>, at: Address) => ipc::get_memory;
    device hipIpcOpenMemHandle(out: Out<Address>, handle: Handle, flags: c_uint) => ipc::open_memory;
    device hipIpcCloseMemHandle(at: Address) => ipc::close_memory;
    device hipIpcGetEventHandle(out: Out<Handle>, event: Event) => ipc::get_event;
    device hipIpcOpenEventHandle(out: Out<Event>, handle: Handle) => ipc::open_event;

    device hipMemcpy / hipMemcpy_spt(dst: Address, src: Address, bytes: usize, kind: c_int) => copy::copy;
    device hipMemcpyAsync / hipMemcpyAsync_spt(dst: Address, src: Address, bytes: usize, kind: c_int, stream: Stream)
        => copy::copy_async;
    device hipMemcpyWithStream(dst: Address, src: Address, bytes: usize, kind: c_int, stream: Stream)
        => copy::with_stream;
    device hipMemcpyHtoD(dst: Address, src: Address, bytes: usize) => copy::to_device;
    device hipMemcpyDtoH(dst: Address, src: Address, bytes: usize) => copy::to_host;
    device hipMemcpyDtoD(dst: Address, src: Address, bytes: usize) => copy::on_device;
    device hipMemcpyHtoDAsync(dst: Address, src: Address, bytes: usize, stream: Stream) => copy::to_device_async;
    device hipMemcpyDtoHAsync(dst: Address, src: Address, bytes: usize, stream: Stream) => copy::to_host_async;
    device hipMemcpyDtoDAsync(dst: Address, src: Address, bytes: usize, stream: Stream) => copy::on_device_async;
    device hipMemcpyPeer(dst: Address, to: c_int, src: Address, from: c_int, bytes: usize) => copy::peer;
    device hipMemcpyPeerAsync(dst: Address, to: c_int, src: Address, from: c_int, bytes: usize, stream: Stream)
        => copy::peer_async;
    device hipMemcpyToSymbol / hipMemcpyToSymbol_spt(
        symbol: Symbol, src: Address, bytes: usize, offset: usize, kind: c_int) => copy::to_symbol;
    device hipMemcpyFromSymbol / hipMemcpyFromSymbol_spt(
        dst: Address, symbol: Symbol, bytes: usize, offset: usize, kind: c_int) => copy::from_symbol;
    device hipMemcpyToSymbolAsync / hipMemcpyToSymbolAsync_spt(
        symbol: Symbol, src: Address, bytes: usize, offset: usize, kind: c_int, stream: Stream)
        => copy::to_symbol_async;
    device hipMemcpyFromSymbolAsync / hipMemcpyFromSymbolAsync_spt(
        dst: Address, symbol: Symbol, bytes: usize, offset: usize, kind: c_int, stream: Stream)
        => copy::from_symbol_async;
    device hipMemcpy2D / hipMemcpy2D_spt(
        dst: Address, dst_pitch: usize, src: Address, src_pitch: usize, width: usize, height: usize, kind: c_int)
        => copy::copy_2d;
    device hipMemcpy2DAsync / hipMemcpy2DAsync_spt(
        dst: Address, dst_pitch: usize, src: Address, src_pitch: usize, width: usize, height: usize, kind: c_int,
        stream: Stream) => copy::copy_2d_async;
    device hipMemcpyParam2D(copy: In<Copy2d>) => copy::param_2d;
    device hipDrvMemcpy2DUnaligned(copy: In<Copy2d>) => copy::param_2d;
    device hipMemcpyParam2DAsync(copy: In<Copy2d>, stream: Stream) => copy::param_2d_async;
    device hipMemcpyBatchAsync(
        dsts: In<Address>, srcs: In<Address>, sizes: In<usize>, count: usize, attributes: In<u8>,
        indices: In<usize>, attribute_count: usize, failed: Out<usize>, stream: Stream) => copy::batch;
    device hipMemset / hipMemset_spt(at: Address, value: c_int, bytes: usize) => copy::set_bytes;
    device hipMemsetAsync / hipMemsetAsync_spt(at: Address, value: c_int, bytes: usize, stream: Stream)
        => copy::set_bytes_async;
    device hipMemsetD8(at: Address, value: c_uchar, count: usize) => copy::set_8;
    device hipMemsetD16(at: Address, value: c_ushort, count: usize) => copy::set_16;
    device hipMemsetD32(at: Address, value: c_int, count: usize) => copy::set_32;
    device hipMemsetD8Async(at: Address, value: c_uchar, count: usize, stream: Stream) => copy::set_8_async;
    device hipMemsetD16Async(at: Address, value: c_ushort, count: usize, stream: Stream) => copy::set_16_async;
    device hipMemsetD32Async(at: Address, value: c_int, count: usize, stream: Stream) => copy::set_32_async;
    device hipMemset2D / hipMemset2D_spt(at: Address, pitch: usize, value: c_int, width: usize, height: usize)
        => copy::set_2d;
    device hipMemset2DAsync / hipMemset2DAsync_spt(
        at: Address, pitch: usize, value: c_int, width: usize, height: usize, stream: Stream) => copy::set_2d_async;
    device hipMemsetD2D8Async(at: Address, pitch: usize, value: c_uchar, w: usize, h: usize, stream: Stream)
        => copy::set_2d_8;
    device hipMemsetD2D16Async(at: Address, pitch: usize, value: c_ushort, w: usize, h: usize, stream: Stream)
        => copy::set_2d_16;
    device hipMemsetD2D32Async(at: Address, pitch: usize, value: c_uint, w: usize, h: usize, stream: Stream)
        => copy::set_2d_32;

    device hipMalloc3D(out: Out<Pitched>, extent: Extent) => volume::alloc;
    device hipMemcpy3D / hipMemcpy3D_spt(copy: In<Copy3d>) => volume::copy;
    device hipMemcpy3DAsync / hipMemcpy3DAsync_spt(copy: In<Copy3d>, stream: Stream) => volume::copy_async;
    device hipMemset3D / hipMemset3D_spt(to: Pitched, value: c_int, extent: Extent) => volume::set;
    device hipMemset3DAsync / hipMemset3DAsync_spt(to: Pitched, value: c_int, extent: Extent, stream: Stream)
        => volume::set_async;

    device hipGetSymbolAddress(out: Out<Address>, symbol: Symbol) => register::symbol_address;
    device hipGetSymbolSize(out: Out<usize>, symbol: Symbol) => register::symbol_size;
    device hipGetFuncBySymbol(out: Out<Function>, symbol: Symbol) => register::by_symbol;

    device hipModuleLoad(out: Out<Module>, path: Text) => module::load;
    device hipModuleLoadData(out: Out<Module>, image: *const c_void) => module::load_data;
    device hipModuleLoadDataEx(
        out: Out<Module>, image: *const c_void, count: c_uint, options: In<c_int>, values: In<Pointer>)
        => module::load_data_ex;
    device hipModuleLoadFatBinary(out: Out<Module>, image: *const c_void) => module::load_data;
    device hipModuleUnload(module: Module) => module::unload;
    device hipModuleGetFunction(out: Out<Function>, module: Module, name: Text) => module::get_function;
    device hipModuleGetFunctionCount(out: Out<c_uint>, module: Module) => module::function_count;
    device hipModuleGetGlobal(out: Out<Address>, size: Out<usize>, module: Module, name: Text) => module::get_global;
    device hipLibraryLoadData(
        out: Out<Module>, image: *const c_void, options: In<c_int>, values: In<Pointer>, count: c_uint,
        library_options: In<c_int>, library_values: In<Pointer>, library_count: c_uint) => module::library_load_data;
    device hipLibraryLoadFromFile(
        out: Out<Module>, path: Text, options: In<c_int>, values: In<Pointer>, count: c_uint,
        library_options: In<c_int>, library_values: In<Pointer>, library_count: c_uint) => module::library_load;
    device hipLibraryUnload(library: Module) => module::unload;
    device hipLibraryGetKernel(out: Out<Function>, library: Module, name: Text) => module::get_function;
    device hipLibraryGetKernelCount(out: Out<c_uint>, library: Module) => module::function_count;
    device hipKernelGetFunction(out: Out<Function>, kernel: Function) => module::of_kernel;
    device hipKernelGetLibrary(out: Out<Module>, kernel: Function) => module::library_of_kernel;
    device hipLibraryEnumerateKernels(out: Out<Function>, room: c_uint, library: Module) => module::kernels;
    device hipKernelGetName(out: Out<*const c_char>, kernel: Function) => module::kernel_name;
    device hipKernelGetParamInfo(kernel: Function, index: usize, offset: Out<usize>, size: Out<usize>)
        => module::kernel_parameter;
    device hipKernelGetAttribute(out: Out<c_int>, which: c_int, kernel: Function, number: c_int)
        => module::kernel_attribute;
    device hipKernelSetAttribute(which: c_int, value: c_int, kernel: Function, number: c_int)
        => module::set_kernel_attribute;
    device hipFuncGetAttribute(out: Out<c_int>, which: c_int, function: Function) => module::attribute;
    device hipFuncGetAttributes(out: Out<register::Attributes>, function: Symbol) => register::attributes;
    device hipFuncSetAttribute(function: Symbol, which: c_int, value: c_int) => register::set_attribute;
    device hipFuncSetCacheConfig(function: Symbol, config: c_int) => register::set_config;
    device hipFuncSetSharedMemConfig(function: Symbol, config: c_int) => register::set_config;
    device hipOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<c_int>, function: Symbol, threads: c_int, shared: usize) => register::occupancy;
    device hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, function: Symbol, threads: c_int, shared: usize, flags: c_uint)
        => register::occupancy_with_flags;
    device hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<c_int>, function: Function, threads: c_int, shared: usize) => module::module_occupancy;
    device hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, function: Function, threads: c_int, shared: usize, flags: c_uint)
        => module::module_occupancy_with_flags;
    device hipModuleOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: Function, shared: usize, limit: c_int)
        => module::module_best_block;
    device hipModuleOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, function: Function, shared: usize, limit: c_int, flags: c_uint)
        => module::module_best_block_with_flags;
    device hipOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: Symbol, shared: usize, limit: c_int) => register::best_block;

    device hipLaunchKernel / hipLaunchKernel_spt(
        function: Symbol, grid: Dim3, block: Dim3, params: Args, shared: usize, stream: Stream) => launch::host;
    device hipExtLaunchKernel(
        function: Symbol, grid: Dim3, block: Dim3, params: Args, shared: usize, stream: Stream, start: Event,
        stop: Event, flags: c_int) => launch::host_ext;
    device hipLaunchCooperativeKernel / hipLaunchCooperativeKernel_spt(
        function: Symbol, grid: Dim3, block: Dim3, params: Args, shared: c_uint, stream: Stream)
        => launch::cooperative;
    device hipLaunchByPtr(function: Symbol) => launch::by_pointer;
    device _ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv(
        function: Symbol, grid: In<Dim3>, block: In<Dim3>, shared: c_uint, stream: Stream, params: Args)
        => launch::ggl;
    device hipLaunchKernelExC(config: In<launch::Config>, function: Symbol, params: Args) => launch::host_ex;
    device hipDrvLaunchKernelEx(
        config: In<launch::DriverConfig>, function: Function, params: Args, extra: In<usize>)
        => launch::of_module_ex;
    device hipModuleLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Stream, params: Args, extra: In<usize>) => launch::of_module;
    device hipModuleLaunchCooperativeKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Stream, params: Args) => launch::of_module_cooperative;
    device _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: usize, stream: Stream, params: Args, extra: In<usize>, start: Event, stop: Event, flags: c_uint)
        => launch::of_module_in_threads_flags;
    device hipExtModuleLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: usize, stream: Stream, params: Args, extra: In<usize>, start: Event, stop: Event, flags: c_uint)
        => launch::of_module_in_threads_flags;
    device _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: usize, stream: Stream, params: Args, extra: In<usize>, start: Event, stop: Event)
        => launch::of_module_in_threads;
    device hipHccModuleLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: usize, stream: Stream, params: Args, extra: In<usize>, start: Event, stop: Event)
        => launch::of_module_in_threads;
    device hipLaunchCooperativeKernelMultiDevice(list: In<launch::Several>, count: c_int, flags: c_uint)
        => launch::several;
    device hipExtLaunchMultiKernelMultiDevice(list: In<launch::Several>, count: c_int, flags: c_uint)
        => launch::several;

    device hipStreamBeginCapture / hipStreamBeginCapture_spt(stream: Stream, mode: c_int) => capture::begin;
    device hipStreamBeginCaptureToGraph(
        stream: Stream, graph: Graph, after: In<Node>, edges: In<u8>, count: usize, mode: c_int)
        => capture::begin_to_graph;
    device hipStreamEndCapture / hipStreamEndCapture_spt(stream: Stream, out: Out<Graph>) => capture::end;
    device hipStreamIsCapturing / hipStreamIsCapturing_spt(stream: Stream, out: Out<c_int>) => capture::is_capturing;
    device hipStreamGetCaptureInfo / hipStreamGetCaptureInfo_spt(stream: Stream, status: Out<c_int>, id: Out<u64>)
        => capture::info;
    device hipStreamGetCaptureInfo_v2 / hipStreamGetCaptureInfo_v2_spt(
        stream: Stream, status: Out<c_int>, id: Out<u64>, graph: Out<Graph>, nodes: Out<*const Node>,
        count: Out<usize>) => capture::info_v2;
    device hipStreamUpdateCaptureDependencies(stream: Stream, nodes: In<Node>, count: usize, flags: c_uint)
        => capture::update;
    device hipThreadExchangeStreamCaptureMode(mode: Out<c_int>) => capture::exchange_mode;

    device hipGraphCreate(out: Out<Graph>, flags: c_uint) => graph::create;
    device hipGraphDestroy(graph: Graph) => graph::destroy;
    device hipGraphClone(out: Out<Graph>, graph: Graph) => graph::clone;
    device hipGraphAddKernelNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<node::KernelParams>)
        => node::add_kernel;
    device hipGraphKernelNodeGetParams(node: Node, out: Out<node::KernelParams>) => node::get_kernel;
    device hipGraphKernelNodeSetParams(node: Node, params: In<node::KernelParams>) => node::set_kernel;
    device hipGraphAddMemcpyNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<Copy3d>) => node::add_copy;
    device hipGraphMemcpyNodeGetParams(node: Node, out: Out<Copy3d>) => node::get_copy;
    device hipGraphMemcpyNodeSetParams(node: Node, params: In<Copy3d>) => node::set_copy;
    device hipGraphAddMemcpyNode1D(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, dst: Address, src: Address, bytes: usize,
        kind: c_int) => node::add_copy_1d;
    device hipGraphMemcpyNodeSetParams1D(node: Node, dst: Address, src: Address, bytes: usize, kind: c_int)
        => node::set_copy_1d;
    device hipGraphAddMemcpyNodeFromSymbol(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, dst: Address, symbol: Symbol, bytes: usize,
        offset: usize, kind: c_int) => node::add_copy_from_symbol;
    device hipGraphMemcpyNodeSetParamsFromSymbol(
        node: Node, dst: Address, symbol: Symbol, bytes: usize, offset: usize, kind: c_int)
        => node::set_copy_from_symbol;
    device hipGraphAddMemcpyNodeToSymbol(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, symbol: Symbol, src: Address, bytes: usize,
        offset: usize, kind: c_int) => node::add_copy_to_symbol;
    device hipGraphMemcpyNodeSetParamsToSymbol(
        node: Node, symbol: Symbol, src: Address, bytes: usize, offset: usize, kind: c_int)
        => node::set_copy_to_symbol;
    device hipGraphAddMemsetNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<SetParams>) => node::add_set;
    device hipGraphMemsetNodeGetParams(node: Node, out: Out<SetParams>) => node::get_set;
    device hipGraphMemsetNodeSetParams(node: Node, params: In<SetParams>) => node::set_set;
    device hipGraphAddEmptyNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize) => graph::add_empty;
    device hipGraphAddHostNode(
        out: Out<Node>, graph: Graph, after: In<Node>, count: usize, params: In<HostParams>)
        => node::add_host;
    device hipGraphHostNodeGetParams(node: Node, out: Out<HostParams>) => node::get_host;
    device hipGraphHostNodeSetParams(node: Node, params: In<HostParams>) => node::set_host;
    device hipGraphAddChildGraphNode(out: Out<Node>, graph: Graph, after: In<Node>, count: usize, child: Graph)
        => graph::add_child;
    device hipGraphAddDependencies(graph: Graph, from: In<Node>, to: In<Node>, count: usize)
        => graph::add_dependencies;
    device hipGraphRemoveDependencies(graph: Graph, from: In<Node>, to: In<Node>, count: usize)
        => graph::remove_dependencies;
    device hipGraphNodeGetDependencies(node: Node, nodes: Out<Node>, count: Out<usize>) => graph::get_dependencies;
    device hipGraphNodeGetDependentNodes(node: Node, nodes: Out<Node>, count: Out<usize>)
        => graph::get_dependent_nodes;
    device hipGraphNodeFindInClone(out: Out<Node>, node: Node, clone: Graph) => graph::find_in_clone;
    device hipGraphGetNodes(graph: Graph, nodes: Out<Node>, count: Out<usize>) => graph::get_nodes;
    device hipGraphGetRootNodes(graph: Graph, nodes: Out<Node>, count: Out<usize>) => graph::get_root_nodes;
    device hipGraphGetEdges(graph: Graph, from: Out<Node>, to: Out<Node>, count: Out<usize>) => graph::get_edges;
    device hipGraphNodeGetType(node: Node, out: Out<c_int>) => graph::node_type;
    device hipGraphInstantiate(out: Out<Exec>, graph: Graph, node: Out<Node>, log: Out<c_char>, room: usize)
        => graph::instantiate;
    device hipGraphInstantiateWithFlags(out: Out<Exec>, graph: Graph, flags: u64) => graph::instantiate_with_flags;
    device hipGraphExecDestroy(exec: Exec) => graph::exec_destroy;
    device hipGraphExecKernelNodeSetParams(exec: Exec, node: Node, params: In<node::KernelParams>)
        => node::exec_set_kernel;
    device hipGraphExecMemcpyNodeSetParams(exec: Exec, node: Node, params: In<Copy3d>) => node::exec_set_copy;
    device hipGraphExecMemcpyNodeSetParams1D(
        exec: Exec, node: Node, dst: Address, src: Address, bytes: usize, kind: c_int) => node::exec_set_copy_1d;
    device hipGraphExecMemcpyNodeSetParamsFromSymbol(
        exec: Exec, node: Node, dst: Address, symbol: Symbol, bytes: usize, offset: usize, kind: c_int)
        => node::exec_set_copy_from_symbol;
    device hipGraphExecMemcpyNodeSetParamsToSymbol(
        exec: Exec, node: Node, symbol: Symbol, src: Address, bytes: usize, offset: usize, kind: c_int)
        => node::exec_set_copy_to_symbol;
    device hipGraphExecMemsetNodeSetParams(exec: Exec, node: Node, params: In<SetParams>)
        => node::exec_set_set;
    device hipGraphExecHostNodeSetParams(exec: Exec, node: Node, params: In<HostParams>)
        => node::exec_set_host;
    device hipGraphNodeSetEnabled(exec: Exec, node: Node, enabled: c_uint) => node::set_enabled;
    device hipGraphNodeGetEnabled(exec: Exec, node: Node, out: Out<c_uint>) => node::get_enabled;
    device hipGraphExecUpdate(exec: Exec, graph: Graph, node: Out<Node>, result: Out<c_int>) => graph::exec_update;
    device hipGraphLaunch / hipGraphLaunch_spt(exec: Exec, stream: Stream) => graph::launch;
    device hipGraphUpload(exec: Exec, stream: Stream) => graph::upload;
}

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident ($($arg:ident: $ty:ty),*) $(-> $out:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Arguments must be what the compiler or hip_runtime_api.h says.
            #[unsafe(export_name = concat!("fakehip_", stringify!($name)))]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) $(-> $out)? {
                counts::$name.calls.fetch_add(1, Relaxed);
                $body
            }
        )*
    };
}

plain! {
    /// Registers a program's code object.
    __hipRegisterFatBinary(wrapper: *const Wrapper) -> *mut c_void {
        register::fat_binary(wrapper)
    }

    /// Removes a code object.
    __hipUnregisterFatBinary(binary: usize) {
        register::unregister(binary);
    }

    /// Registers a kernel by the host address that names it in launches.
    __hipRegisterFunction(
        binary: usize, host: usize, _device: Pointer, name: Text, _limit: c_uint, _thread: Pointer, _block_id: Pointer,
        _block: Pointer, _grid: Pointer, _wave: Pointer
    ) {
        register::register_function(binary, host, name);
    }

    /// Registers a variable.
    __hipRegisterVar(
        binary: usize, host: usize, _host_name: Pointer, name: Text, _external: c_int, size: usize, _constant: c_int,
        _global: c_int
    ) {
        register::register_variable(binary, host, name, size);
    }

    /// Registers a managed variable.
    __hipRegisterManagedVar(
        binary: usize, pointer: *mut u64, init: *const c_void, name: Text, size: usize, _align: c_uint
    ) {
        register::register_managed(binary, pointer, init, name, size);
    }

    /// Returns this thread's last error and clears it.
    hipGetLastError() -> c_int {
        last_error(true)
    }

    /// Returns this thread's last error and clears it, as `hipGetLastError` does.
    hipExtGetLastError() -> c_int {
        last_error(true)
    }

    /// Returns this thread's last error.
    hipPeekAtLastError() -> c_int {
        last_error(false)
    }

    /// Symbol of a result.
    hipGetErrorName(result: c_int) -> *const c_char {
        device::error_name(result)
    }

    /// Text of a result.
    hipGetErrorString(result: c_int) -> *const c_char {
        device::error_string(result)
    }

    /// Name of a module's function.
    hipKernelNameRef(function: Function) -> *const c_char {
        module::name_of_function(function)
    }

    /// Name of a registered kernel.
    hipKernelNameRefByPtr(host: Symbol, _stream: Stream) -> *const c_char {
        register::name_of_host(host)
    }

    /// Number of a stream's device.
    hipGetStreamDeviceId(stream: Stream) -> c_int {
        stream::device_id(stream)
    }

    /// Text of a result of the compiler.
    hiprtcGetErrorString(result: c_int) -> *const c_char {
        rtc::error_string(result)
    }
}

/// Functions of the runtime compiler, which runtimes before 7 export besides its own library. They are forwarded to
/// that.
macro_rules! compiler {
    ($($name:ident ($($arg:ident: $ty:ty),*);)*) => {
        $(
            /// See hiprtc.h.
            ///
            /// # Safety
            /// Arguments must be what hiprtc.h says.
            #[unsafe(export_name = concat!("fakehip_", stringify!($name)))]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                counts::$name.calls.fetch_add(1, Relaxed);
                let Some(address) = rtc::function(stringify!($name)) else { return rtc::INTERNAL_ERROR };
                // SAFETY: the function of that name, called as the program calls it.
                unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> c_int>(address)($($arg),*) }
            }
        )*
    };
}

compiler! {
    hiprtcVersion(major: Pointer, minor: Pointer);
    hiprtcCreateProgram(
        out: Pointer, source: Pointer, name: Pointer, count: c_int, headers: Pointer, names: Pointer);
    hiprtcAddNameExpression(program: Pointer, name: Pointer);
    hiprtcCompileProgram(program: Pointer, count: c_int, options: Pointer);
    hiprtcGetLoweredName(program: Pointer, name: Pointer, out: Pointer);
    hiprtcGetProgramLogSize(program: Pointer, out: Pointer);
    hiprtcGetProgramLog(program: Pointer, out: Pointer);
    hiprtcGetCodeSize(program: Pointer, out: Pointer);
    hiprtcGetCode(program: Pointer, out: Pointer);
    hiprtcGetBitcodeSize(program: Pointer, out: Pointer);
    hiprtcGetBitcode(program: Pointer, out: Pointer);
    hiprtcDestroyProgram(program: Pointer);
    hiprtcLinkCreate(count: c_uint, options: Pointer, values: Pointer, out: Pointer);
    hiprtcLinkAddFile(
        link: Pointer, kind: c_int, path: Pointer, count: c_uint, options: Pointer, values: Pointer);
    hiprtcLinkAddData(
        link: Pointer, kind: c_int, image: Pointer, bytes: usize, name: Pointer, count: c_uint, options: Pointer,
        values: Pointer);
    hiprtcLinkComplete(link: Pointer, out: Pointer, bytes: Pointer);
    hiprtcLinkDestroy(link: Pointer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_real_names_are_implemented() {
        let all = include_str!("../../../ladders/hip/symbols.txt");
        let names = all.lines().filter_map(|line| line.split_whitespace().nth(1));
        let names: BTreeSet<&str> = names.collect();
        let unknown: Vec<&str> = TABLE.iter().map(|entry| entry.name).filter(|name| !names.contains(name)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }
}
