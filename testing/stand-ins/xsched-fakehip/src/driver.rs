//! Functions of CUDA's driver API, called by name: those of the built-in driver, or those of the machine's own.

use crate::result::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

pub(crate) mod params;

macro_rules! functions {
    ($($method:ident = $symbol:literal ($($arg:ident: $ty:ty),*);)*) => {
        /// The functions of the driver that this runtime calls.
        pub(crate) struct Driver {
            /// Set if this is the machine's own driver.
            pub(crate) is_real: bool,
            $($method: unsafe extern "C" fn($($ty),*) -> c_int,)*
        }

        impl Driver {
            /// `find` returns the function of exactly the name it is called with, or null.
            fn new(is_real: bool, find: impl Fn(&str) -> *const ()) -> std::result::Result<Self, &'static str> {
                Ok(Self {
                    is_real,
                    $($method: {
                        let address = find($symbol);
                        if address.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: the driver's function of this name, which has this signature.
                        unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn($($ty),*) -> c_int>(address) }
                    },)*
                })
            }

            $(
                #[allow(clippy::too_many_arguments)] // the driver's
                pub(crate) fn $method(&self, $($arg: $ty),*) -> Result<()> {
                    // SAFETY: pointers are this library's own, or the program's, which vouches for them.
                    match unsafe { (self.$method)($($arg),*) } {
                        0 => Ok(()),
                        error => Err(Error(error)),
                    }
                }
            )*
        }
    };
}

/// `CUhostFn`.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub(crate) type Callback = unsafe extern "C" fn(usize, c_int, *mut c_void);

functions! {
    init = "cuInit"(flags: c_uint);
    device_count = "cuDeviceGetCount"(out: *mut c_int);
    device_name = "cuDeviceGetName"(out: *mut c_char, room: c_int, device: c_int);
    device_pci = "cuDeviceGetPCIBusId"(out: *mut c_char, room: c_int, device: c_int);
    device_uuid = "cuDeviceGetUuid"(out: *mut [u8; 16], device: c_int);
    device_memory = "cuDeviceTotalMem_v2"(out: *mut usize, device: c_int);
    device_attribute = "cuDeviceGetAttribute"(out: *mut c_int, which: c_int, device: c_int);
    primary_retain = "cuDevicePrimaryCtxRetain"(out: *mut usize, device: c_int);
    primary_reset = "cuDevicePrimaryCtxReset_v2"(device: c_int);
    set_current = "cuCtxSetCurrent"(context: usize);
    synchronize = "cuCtxSynchronize"();
    priority_range = "cuCtxGetStreamPriorityRange"(least: *mut c_int, greatest: *mut c_int);

    stream_create = "cuStreamCreateWithPriority"(out: *mut usize, flags: c_uint, priority: c_int);
    stream_destroy = "cuStreamDestroy_v2"(stream: usize);
    stream_query = "cuStreamQuery"(stream: usize);
    stream_synchronize = "cuStreamSynchronize"(stream: usize);
    stream_wait_event = "cuStreamWaitEvent"(stream: usize, event: usize, flags: c_uint);
    stream_callback = "cuStreamAddCallback"(stream: usize, function: Callback, data: *mut c_void, flags: c_uint);
    host_function = "cuLaunchHostFunc"(stream: usize, function: HostFunction, data: *mut c_void);
    wait_32 = "cuStreamWaitValue32_v2"(stream: usize, address: u64, value: u32, flags: c_uint);
    wait_64 = "cuStreamWaitValue64_v2"(stream: usize, address: u64, value: u64, flags: c_uint);
    write_32 = "cuStreamWriteValue32_v2"(stream: usize, address: u64, value: u32, flags: c_uint);
    write_64 = "cuStreamWriteValue64_v2"(stream: usize, address: u64, value: u64, flags: c_uint);

    event_create = "cuEventCreate"(out: *mut usize, flags: c_uint);
    event_destroy = "cuEventDestroy_v2"(event: usize);
    event_record = "cuEventRecord"(event: usize, stream: usize);
    event_query = "cuEventQuery"(event: usize);
    event_synchronize = "cuEventSynchronize"(event: usize);
    event_elapsed = "cuEventElapsedTime"(out: *mut f32, start: usize, end: usize);

    alloc = "cuMemAlloc_v2"(out: *mut u64, bytes: usize);
    alloc_pitch = "cuMemAllocPitch_v2"(out: *mut u64, pitch: *mut usize, width: usize, rows: usize, unit: c_uint);
    free = "cuMemFree_v2"(address: u64);
    alloc_managed = "cuMemAllocManaged"(out: *mut u64, bytes: usize, flags: c_uint);
    host_alloc = "cuMemHostAlloc"(out: *mut u64, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(address: u64);
    host_register = "cuMemHostRegister_v2"(address: u64, bytes: usize, flags: c_uint);
    host_unregister = "cuMemHostUnregister"(address: u64);
    host_pointer = "cuMemHostGetDevicePointer_v2"(out: *mut u64, address: u64, flags: c_uint);
    memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    alloc_async = "cuMemAllocAsync"(out: *mut u64, bytes: usize, stream: usize);
    alloc_from_pool = "cuMemAllocFromPoolAsync"(out: *mut u64, bytes: usize, pool: usize, stream: usize);
    free_async = "cuMemFreeAsync"(address: u64, stream: usize);
    default_pool = "cuDeviceGetDefaultMemPool"(out: *mut usize, device: c_int);
    pool_trim = "cuMemPoolTrimTo"(pool: usize, keep: usize);
    pool_get = "cuMemPoolGetAttribute"(pool: usize, which: c_uint, value: *mut c_void);
    pool_set = "cuMemPoolSetAttribute"(pool: usize, which: c_uint, value: *mut c_void);

    address_range = "cuMemGetAddressRange_v2"(start: *mut u64, bytes: *mut usize, address: u64);
    ipc_get_memory = "cuIpcGetMemHandle"(out: *mut params::Handle, address: u64);
    ipc_open_memory = "cuIpcOpenMemHandle_v2"(out: *mut u64, handle: params::Handle, flags: c_uint);
    ipc_close_memory = "cuIpcCloseMemHandle"(address: u64);
    ipc_get_event = "cuIpcGetEventHandle"(out: *mut params::Handle, event: usize);
    ipc_open_event = "cuIpcOpenEventHandle"(out: *mut usize, handle: params::Handle);

    copy = "cuMemcpy"(dst: u64, src: u64, bytes: usize);
    copy_to_device = "cuMemcpyHtoD_v2"(dst: u64, src: u64, bytes: usize);
    copy_to_host = "cuMemcpyDtoH_v2"(dst: u64, src: u64, bytes: usize);
    copy_async = "cuMemcpyAsync"(dst: u64, src: u64, bytes: usize, stream: usize);
    copy_2d = "cuMemcpy2DUnaligned_v2"(copy: *const params::Copy2d);
    copy_2d_async = "cuMemcpy2DAsync_v2"(copy: *const params::Copy2d, stream: usize);
    set_8 = "cuMemsetD8Async"(address: u64, value: u8, count: usize, stream: usize);
    set_16 = "cuMemsetD16Async"(address: u64, value: u16, count: usize, stream: usize);
    set_32 = "cuMemsetD32Async"(address: u64, value: u32, count: usize, stream: usize);
    set_2d_8 = "cuMemsetD2D8Async"(address: u64, pitch: usize, value: u8, width: usize, rows: usize, stream: usize);
    set_2d_16 = "cuMemsetD2D16Async"(address: u64, pitch: usize, value: u16, width: usize, rows: usize, stream: usize);
    set_2d_32 = "cuMemsetD2D32Async"(address: u64, pitch: usize, value: u32, width: usize, rows: usize, stream: usize);

    module_load = "cuModuleLoadData"(out: *mut usize, image: *const c_char);
    module_function = "cuModuleGetFunction"(out: *mut usize, module: usize, name: *const c_char);
    launch = "cuLaunchKernel"(function: usize, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: usize, params: *const *const c_void, extra: *const *const c_void);

    capture_begin = "cuStreamBeginCapture_v2"(stream: usize, mode: c_int);
    capture_begin_to_graph = "cuStreamBeginCaptureToGraph"(stream: usize, graph: usize, after: *const usize,
        edges: *const c_void, count: usize, mode: c_int);
    capture_end = "cuStreamEndCapture"(stream: usize, graph: *mut usize);
    capture_status = "cuStreamIsCapturing"(stream: usize, status: *mut c_int);
    capture_info = "cuStreamGetCaptureInfo_v2"(stream: usize, status: *mut c_int, id: *mut u64, graph: *mut usize,
        nodes: *mut *const usize, count: *mut usize);
    capture_update = "cuStreamUpdateCaptureDependencies"(stream: usize, nodes: *const usize, count: usize,
        flags: c_uint);
    capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut c_int);

    graph_create = "cuGraphCreate"(out: *mut usize, flags: c_uint);
    graph_destroy = "cuGraphDestroy"(graph: usize);
    graph_clone = "cuGraphClone"(out: *mut usize, graph: usize);
    graph_add_kernel = "cuGraphAddKernelNode_v2"(out: *mut usize, graph: usize, after: *const usize, count: usize,
        params: *const params::DriverKernelParams);
    graph_set_kernel = "cuGraphKernelNodeSetParams_v2"(node: usize, params: *const params::DriverKernelParams);
    graph_add_copy = "cuGraphAddMemcpyNode"(out: *mut usize, graph: usize, after: *const usize, count: usize,
        params: *const params::DriverCopy3d, context: usize);
    graph_get_copy = "cuGraphMemcpyNodeGetParams"(node: usize, params: *mut params::DriverCopy3d);
    graph_set_copy = "cuGraphMemcpyNodeSetParams"(node: usize, params: *const params::DriverCopy3d);
    graph_add_set = "cuGraphAddMemsetNode"(out: *mut usize, graph: usize, after: *const usize, count: usize,
        params: *const params::DriverSetParams, context: usize);
    graph_get_set = "cuGraphMemsetNodeGetParams"(node: usize, params: *mut params::DriverSetParams);
    graph_set_set = "cuGraphMemsetNodeSetParams"(node: usize, params: *const params::DriverSetParams);
    graph_get_host = "cuGraphHostNodeGetParams"(node: usize, params: *mut params::HostParams);
    graph_set_host = "cuGraphHostNodeSetParams"(node: usize, params: *const params::HostParams);
    graph_add_empty = "cuGraphAddEmptyNode"(out: *mut usize, graph: usize, after: *const usize, count: usize);
    graph_add_host = "cuGraphAddHostNode"(out: *mut usize, graph: usize, after: *const usize, count: usize,
        params: *const params::HostParams);
    graph_add_child = "cuGraphAddChildGraphNode"(out: *mut usize, graph: usize, after: *const usize, count: usize,
        child: usize);
    graph_add_dependencies = "cuGraphAddDependencies"(graph: usize, from: *const usize, to: *const usize,
        count: usize);
    graph_remove_dependencies = "cuGraphRemoveDependencies"(graph: usize, from: *const usize, to: *const usize,
        count: usize);
    graph_find_in_clone = "cuGraphNodeFindInClone"(out: *mut usize, node: usize, clone: usize);
    graph_nodes = "cuGraphGetNodes"(graph: usize, nodes: *mut usize, count: *mut usize);
    graph_root_nodes = "cuGraphGetRootNodes"(graph: usize, nodes: *mut usize, count: *mut usize);
    graph_edges = "cuGraphGetEdges"(graph: usize, from: *mut usize, to: *mut usize, count: *mut usize);
    graph_node_type = "cuGraphNodeGetType"(node: usize, out: *mut c_int);
    graph_instantiate = "cuGraphInstantiateWithFlags"(out: *mut usize, graph: usize, flags: u64);
    graph_exec_destroy = "cuGraphExecDestroy"(exec: usize);
    graph_exec_set_kernel = "cuGraphExecKernelNodeSetParams_v2"(exec: usize, node: usize,
        params: *const params::DriverKernelParams);
    graph_exec_set_copy = "cuGraphExecMemcpyNodeSetParams"(exec: usize, node: usize,
        params: *const params::DriverCopy3d, context: usize);
    graph_exec_set_set = "cuGraphExecMemsetNodeSetParams"(exec: usize, node: usize,
        params: *const params::DriverSetParams, context: usize);
    graph_exec_set_host = "cuGraphExecHostNodeSetParams"(exec: usize, node: usize,
        params: *const params::HostParams);
    graph_set_enabled = "cuGraphNodeSetEnabled"(exec: usize, node: usize, enabled: c_uint);
    graph_get_enabled = "cuGraphNodeGetEnabled"(exec: usize, node: usize, out: *mut c_uint);
    graph_exec_update = "cuGraphExecUpdate_v2"(exec: usize, graph: usize, info: *mut params::UpdateResult);
    graph_launch = "cuGraphLaunch"(exec: usize, stream: usize);
    graph_upload = "cuGraphUpload"(exec: usize, stream: usize);
}

impl Driver {
    /// Opens and initialises the driver that FAKEHIP_BACKEND names.
    pub(crate) fn open() -> Result<Self> {
        let driver = match std::env::var("FAKEHIP_BACKEND").as_deref() {
            Err(_) | Ok("" | "cpu") => Self::built_in(),
            Ok("cuda") => Self::of_the_machine(),
            Ok(other) => {
                eprintln!("fakehip: FAKEHIP_BACKEND={other} is neither cpu nor cuda");
                return Err(Error::NO_DEVICE);
            }
        };
        let driver = driver.map_err(|what| {
            eprintln!("fakehip: {what}");
            Error::NO_DEVICE
        })?;
        driver.init(0)?;
        Ok(driver)
    }

    fn built_in() -> std::result::Result<Self, String> {
        fakecuda::without_channel_groups();
        Self::new(false, fakecuda::entry_point).map_err(|name| format!("the driver built in has no {name}"))
    }

    fn of_the_machine() -> std::result::Result<Self, String> {
        // SAFETY: opens a library; its constructors are the driver's own affair.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: after a failed call it gives a C string, which lives until the next call of this thread.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            return Err(format!("FAKEHIP_BACKEND=cuda needs libcuda.so.1: {why}"));
        }
        let find = |name: &str| {
            let Ok(name) = CString::new(name) else { return std::ptr::null() };
            // SAFETY: a handle that is open for good, and a C string.
            unsafe { libc::dlsym(library, name.as_ptr()) }.cast_const().cast::<()>()
        };
        Self::new(true, find).map_err(|name| format!("libcuda.so.1 has no {name}: the driver is too old"))
    }
}
