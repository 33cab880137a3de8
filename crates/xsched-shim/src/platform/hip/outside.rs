//! Signatures of hooked functions that the header of `signatures.rs` lacks: libraries export them, or later releases
//! declare them. `outside_signatures!(callback)` calls `callback!` with the list. (All other exports:
//! `no_device_work.txt`.)

macro_rules! outside_signatures {
    ($callback:ident) => {
        $callback! {
            // Of every release: called by hipcc's output, declared nowhere.
            fn __hipUnregisterFatBinary(modules: *mut c_void) -> ();
            // Of hip_ext.h. Two of its functions are C++ up to ROCm 5.2, and exported under either name.
            fn _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t, flags: c_uint);
            fn _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t);
            fn hipExtModuleLaunchKernel(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t, flags: c_uint);
            fn hipHccModuleLaunchKernel(f: hipFunction_t, globalWorkSizeX: c_uint, globalWorkSizeY: c_uint, globalWorkSizeZ: c_uint, localWorkSizeX: c_uint, localWorkSizeY: c_uint, localWorkSizeZ: c_uint, sharedMemBytes: usize, hStream: hipStream_t, kernelParams: *mut c_void, extra: *mut c_void, startEvent: hipEvent_t, stopEvent: hipEvent_t);
            // hip_impl::hipLaunchKernelGGLImpl of ROCm 5.2; the two shapes are references.
            fn _ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv(function_address: usize, numBlocks: *const Dim3, dimBlocks: *const Dim3, sharedMemBytes: c_uint, stream: hipStream_t, kernarg: *mut c_void) -> ();
            // Up to ROCm 5, and under both names since then.
            fn hipGetDeviceProperties(prop: *mut c_void, deviceId: c_int);
            fn hipGetDevicePropertiesR0000(prop: *mut c_void, deviceId: c_int);
            // ROCm 6.3.
            fn hipExtHostAlloc(ptr: *mut c_void, size: usize, flags: c_uint);
            // ROCm 7.2 and later.
            fn hipDrvMemDiscardAndPrefetchBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, stream: hipStream_t);
            fn hipDrvMemDiscardBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, flags: u64, stream: hipStream_t);
            fn hipExecutionCtxDestroy(ctx: *mut c_void);
            fn hipExecutionCtxStreamCreate(stream: *mut c_void, greenctx: *mut c_void, flags: c_uint, priority: c_int);
            fn hipExecutionCtxSynchronize(ctx: *mut c_void);
            fn hipGetProcAddress_spt(symbol: *mut c_void, pfn: *mut c_void, hipVersion: c_int, flags: u64, symbolStatus: *mut c_void);
            fn hipKernelGetFunction(pFunc: *mut c_void, kernel: *mut c_void);
            fn hipLibraryEnumerateKernels(kernels: *mut c_void, numKernels: c_uint, library: *mut c_void);
            fn hipLibraryGetGlobal(dptr: *mut c_void, bytes: *mut c_void, library: *mut c_void, name: *mut c_void);
            fn hipLibraryGetManaged(dptr: *mut c_void, bytes: *mut c_void, library: *mut c_void, name: *mut c_void);
            fn hipMemDiscardAndPrefetchBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetchLocs: *mut c_void, prefetchLocIdxs: *mut c_void, numPrefetchLocs: usize, flags: u64, stream: hipStream_t);
            fn hipMemDiscardBatchAsync(dptrs: *mut c_void, sizes: *mut c_void, count: usize, flags: u64, stream: hipStream_t);
            fn hipMemPrefetchBatchAsync(dev_ptrs: *mut c_void, sizes: *mut c_void, count: usize, prefetch_locs: *mut c_void, prefetch_loc_idxs: *mut c_void, num_prefetch_locs: usize, flags: u64, stream: hipStream_t);
        }
    };
}
pub(crate) use outside_signatures;
