/* The CUDA driver API for small test programs: own declarations, the driver opened by name, PTX for a few kernels.
 *
 * A program prints a line for each check, "ok WHAT" or "FAIL WHAT: …", and ends with CHECKS_DONE: exit status 0 if all
 * hold, 1 if not, 3 if there is no driver or device. The lines are the same on every device. */
#ifndef CU_H
#define CU_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../lib/checks.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevt *CUevent;
typedef struct CUmod *CUmodule;
typedef struct CUfun *CUfunction;
typedef struct CUlib *CUlibrary;
typedef struct CUker *CUkernel;
typedef struct CUgra *CUgraph;
typedef struct CUnod *CUgraphNode;
typedef struct CUexe *CUgraphExec;
typedef struct CUpoo *CUmemoryPool;
typedef struct CUarr *CUarray;
typedef void (*CUhostFn)(void *);
typedef void (*CUstreamCallback)(CUstream, CUresult, void *);

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600,
    ILLEGAL_ADDRESS = 700, CONTEXT_IS_DESTROYED = 709, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713,
    NOT_PERMITTED = 800, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908, GRAPH_UPDATE_FAILURE = 910
};
enum { NON_BLOCKING = 1 };                                        /* stream flags */
enum { DISABLE_TIMING = 2 };                                      /* event flags */
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
enum { WAIT_GEQ = 0, WAIT_EQ = 1, WAIT_AND = 2, WAIT_NOR = 3 };
enum { REGISTER_PORTABLE = 1, REGISTER_DEVICEMAP = 2 };

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType; /* 1 = host, 2 = device */
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS;

typedef struct {
    size_t Width, Height;
    int Format; /* 0x20 = floats */
    unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width, Height, Depth;
    int Format;
    unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    int type, id; /* 1 = the device of this number */
} CUmemLocation;

typedef struct {
    int type, requestedHandleTypes; /* 1 = pinned; 1 = a descriptor */
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    int allocType, handleTypes; /* 1 = pinned; 0 = none */
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize; /* 0 = as the driver likes */
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    CUmemLocation location;
    int flags; /* 0, 1 = read, 3 = read and write */
} CUmemAccessDesc;

typedef struct {
    int allocType, handleTypes, locationType, locationId; /* 1 = pinned, 0 = none; 1 = on the device of this number */
    uint64_t rest[9];
    const void *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    uint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
    int result; /* 0 = success, 2 = other topology, 3 = another type of node */
    CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

/* One operation of a batch; type 1, 2 = wait, write 32 bits; 4, 5 = 64 bits. */
typedef struct {
    uint64_t operation;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags, pad;
    uint64_t rest[2];
} CUstreamBatchMemOpParams;

#define CU_FUNCTIONS(F)                                                                                                \
    F(cuInit, (unsigned))                                                                                              \
    F(cuDriverGetVersion, (int *))                                                                                     \
    F(cuGetErrorName, (CUresult, const char **))                                                                       \
    F(cuGetErrorString, (CUresult, const char **))                                                                     \
    F(cuGetProcAddress, (const char *, void **, int, uint64_t))                                                        \
    F(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *))                                              \
    F(cuDeviceGetCount, (int *))                                                                                       \
    F(cuDeviceGet, (CUdevice *, int))                                                                                  \
    F(cuDeviceGetName, (char *, int, CUdevice))                                                                        \
    F(cuDeviceGetPCIBusId, (char *, int, CUdevice))                                                                    \
    F(cuDeviceGetByPCIBusId, (CUdevice *, const char *))                                                               \
    F(cuDeviceGetUuid_v2, (unsigned char *, CUdevice))                                                                 \
    F(cuDeviceGetAttribute, (int *, int, CUdevice))                                                                    \
    F(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                       \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                               \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                        \
    F(cuDevicePrimaryCtxReset_v2, (CUdevice))                                                                          \
    F(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                                                       \
    F(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))                                                               \
    F(cuCtxDestroy_v2, (CUcontext))                                                                                    \
    F(cuCtxPushCurrent_v2, (CUcontext))                                                                                \
    F(cuCtxPopCurrent_v2, (CUcontext *))                                                                               \
    F(cuCtxSetCurrent, (CUcontext))                                                                                    \
    F(cuCtxGetCurrent, (CUcontext *))                                                                                  \
    F(cuCtxGetDevice, (CUdevice *))                                                                                    \
    F(cuCtxGetId, (CUcontext, uint64_t *))                                                                             \
    F(cuCtxGetStreamPriorityRange, (int *, int *))                                                                     \
    F(cuCtxSynchronize, (void))                                                                                        \
    F(cuStreamCreate, (CUstream *, unsigned))                                                                          \
    F(cuStreamCreateWithPriority, (CUstream *, unsigned, int))                                                         \
    F(cuStreamDestroy_v2, (CUstream))                                                                                  \
    F(cuStreamQuery, (CUstream))                                                                                       \
    F(cuStreamSynchronize, (CUstream))                                                                                 \
    F(cuStreamSynchronize_ptsz, (CUstream))                                                                            \
    F(cuStreamGetPriority, (CUstream, int *))                                                                          \
    F(cuStreamGetFlags, (CUstream, unsigned *))                                                                        \
    F(cuStreamGetCtx, (CUstream, CUcontext *))                                                                         \
    F(cuStreamGetId, (CUstream, uint64_t *))                                                                           \
    F(cuStreamGetId_ptsz, (CUstream, uint64_t *))                                                                      \
    F(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                \
    F(cuStreamAddCallback, (CUstream, CUstreamCallback, void *, unsigned))                                             \
    F(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned))                                             \
    F(cuStreamWaitValue64_v2, (CUstream, CUdeviceptr, uint64_t, unsigned))                                             \
    F(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned))                                            \
    F(cuStreamWriteValue64_v2, (CUstream, CUdeviceptr, uint64_t, unsigned))                                            \
    F(cuStreamBatchMemOp_v2, (CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned))                               \
    F(cuStreamBeginCapture_v2, (CUstream, int))                                                                        \
    F(cuStreamEndCapture, (CUstream, CUgraph *))                                                                       \
    F(cuStreamIsCapturing, (CUstream, int *))                                                                          \
    F(cuStreamGetCaptureInfo_v2, (CUstream, int *, uint64_t *, CUgraph *, const CUgraphNode **, size_t *))             \
    F(cuThreadExchangeStreamCaptureMode, (int *))                                                                      \
    F(cuEventCreate, (CUevent *, unsigned))                                                                            \
    F(cuEventDestroy_v2, (CUevent))                                                                                    \
    F(cuEventRecord, (CUevent, CUstream))                                                                              \
    F(cuEventQuery, (CUevent))                                                                                         \
    F(cuEventSynchronize, (CUevent))                                                                                   \
    F(cuEventElapsedTime, (float *, CUevent, CUevent))                                                                 \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                          \
    F(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                                            \
    F(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))                                                    \
    F(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))                                                \
    F(cuArrayDestroy, (CUarray))                                                                                       \
    F(cuMipmappedArrayCreate, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned))                                  \
    F(cuMipmappedArrayDestroy, (CUarray))                                                                              \
    F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                         \
    F(cuMemFree_v2, (CUdeviceptr))                                                                                     \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                                              \
    F(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                                        \
    F(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice))                                                           \
    F(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice))                                                                  \
    F(cuDeviceSetMemPool, (CUdevice, CUmemoryPool))                                                                    \
    F(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *))                                                       \
    F(cuMemPoolDestroy, (CUmemoryPool))                                                                                \
    F(cuMemPoolTrimTo, (CUmemoryPool, size_t))                                                                         \
    F(cuMemPoolGetAttribute, (CUmemoryPool, int, void *))                                                              \
    F(cuMemPoolSetAttribute, (CUmemoryPool, int, void *))                                                              \
    F(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                         \
    F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t))                                     \
    F(cuMemAddressFree, (CUdeviceptr, size_t))                                                                         \
    F(cuMemCreate, (uint64_t *, size_t, const CUmemAllocationProp *, uint64_t))                                        \
    F(cuMemRelease, (uint64_t))                                                                                        \
    F(cuMemRetainAllocationHandle, (uint64_t *, void *))                                                               \
    F(cuMemMap, (CUdeviceptr, size_t, size_t, uint64_t, uint64_t))                                                     \
    F(cuMemUnmap, (CUdeviceptr, size_t))                                                                               \
    F(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                                          \
    F(cuMemGetAccess, (uint64_t *, const CUmemLocation *, CUdeviceptr))                                                \
    F(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, int))                                     \
    F(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp *, uint64_t))                                       \
    F(cuMemExportToShareableHandle, (void *, uint64_t, int, uint64_t))                                                 \
    F(cuMemImportFromShareableHandle, (uint64_t *, void *, int))                                                       \
    F(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                                               \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                                           \
    F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                                                 \
    F(cuMemHostAlloc, (void **, size_t, unsigned))                                                                     \
    F(cuMemFreeHost, (void *))                                                                                         \
    F(cuMemHostRegister_v2, (void *, size_t, unsigned))                                                                \
    F(cuMemHostUnregister, (void *))                                                                                   \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned))                                                 \
    F(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t))                                                                    \
    F(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                            \
    F(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                                  \
    F(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))                                                             \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                             \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                   \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                              \
    F(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *))                                                                          \
    F(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *, CUstream))                                                           \
    F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))                                                             \
    F(cuMemsetD16_v2, (CUdeviceptr, unsigned short, size_t))                                                           \
    F(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                                                                 \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                 \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                                                     \
    F(cuMemsetD2D8_v2, (CUdeviceptr, size_t, unsigned char, size_t, size_t))                                           \
    F(cuModuleLoadData, (CUmodule *, const void *))                                                                    \
    F(cuModuleUnload, (CUmodule))                                                                                      \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                     \
    F(cuLibraryLoadData, (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned))              \
    F(cuLibraryUnload, (CUlibrary))                                                                                    \
    F(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *))                                                       \
    F(cuKernelGetFunction, (CUfunction *, CUkernel))                                                                   \
    F(cuFuncGetAttribute, (int *, int, CUfunction))                                                                    \
    F(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,     \
                       void **, void **))                                                                              \
    F(cuLaunchKernel_ptsz, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,          \
                            CUstream, void **, void **))                                                               \
    F(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))                                        \
    F(cuLaunchCooperativeKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                                  CUstream, void **))                                                                  \
    F(cuLaunchHostFunc, (CUstream, CUhostFn, void *))                                                                  \
    F(cuGraphCreate, (CUgraph *, unsigned))                                                                            \
    F(cuGraphDestroy, (CUgraph))                                                                                       \
    F(cuGraphAddKernelNode_v2, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *)) \
    F(cuGraphAddEmptyNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t))                                      \
    F(cuGraphAddHostNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_HOST_NODE_PARAMS *))        \
    F(cuGraphAddChildGraphNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph))                        \
    F(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))                                                             \
    F(cuGraphNodeGetType, (CUgraphNode, int *))                                                                        \
    F(cuGraphAddMemAllocNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *))     \
    F(cuGraphAddMemFreeNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                       \
    F(cuDeviceGetGraphMemAttribute, (CUdevice, int, void *))                                                           \
    F(cuDeviceSetGraphMemAttribute, (CUdevice, int, void *))                                                           \
    F(cuDeviceGraphMemTrim, (CUdevice))                                                                                \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, uint64_t))                                                 \
    F(cuGraphInstantiateWithParams, (CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))                         \
    F(cuGraphExecDestroy, (CUgraphExec))                                                                               \
    F(cuGraphExecGetFlags, (CUgraphExec, uint64_t *))                                                                  \
    F(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *))                  \
    F(cuGraphExecHostNodeSetParams, (CUgraphExec, CUgraphNode, const CUDA_HOST_NODE_PARAMS *))                         \
    F(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *))                                     \
    F(cuGraphAddDependencies_v2, (CUgraph, const CUgraphNode *, const CUgraphNode *, const void *, size_t))            \
    F(cuGraphNodeSetEnabled, (CUgraphExec, CUgraphNode, unsigned))                                                     \
    F(cuGraphNodeGetEnabled, (CUgraphExec, CUgraphNode, unsigned *))                                                   \
    F(cuGraphUpload, (CUgraphExec, CUstream))                                                                          \
    F(cuGraphLaunch, (CUgraphExec, CUstream))

#define CU_DECLARE(name, args) __attribute__((unused)) static CUresult(*name) args;
CU_FUNCTIONS(CU_DECLARE)

/* The kernels: empty(), axpy(n, a, x, y): y += a x; fill(n, v, p): p = v; reduce(n, in, out): out = sum of in, by one
 * thread; spin(ns); stamp(p): *p = time in ns; crash(): writes where nothing is. */
static const char KERNELS[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry axpy(.param .u32 pn, .param .f32 pa, .param .u64 px, .param .u64 py) {\n"
    ".reg .pred %p<2>; .reg .b32 %r<7>; .reg .f32 %f<5>; .reg .b64 %d<8>;\n"
    "ld.param.u32 %r1, [pn]; ld.param.f32 %f1, [pa]; ld.param.u64 %d1, [px]; ld.param.u64 %d2, [py];\n"
    "cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2;\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "mov.u32 %r6, %nctaid.x; mul.lo.u32 %r6, %r6, %r3;\n"
    "LOOP: setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "mul.wide.u32 %d3, %r5, 4; add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;\n"
    "ld.global.f32 %f2, [%d4]; ld.global.f32 %f3, [%d5];\n"
    "mul.rn.f32 %f4, %f1, %f2; add.rn.f32 %f3, %f3, %f4; st.global.f32 [%d5], %f3;\n"
    "add.u32 %r5, %r5, %r6; bra LOOP;\nDONE: ret; }\n"
    ".visible .entry fill(.param .u32 pn, .param .f32 pv, .param .u64 pp) {\n"
    ".reg .pred %p<2>; .reg .b32 %r<7>; .reg .f32 %f<2>; .reg .b64 %d<5>;\n"
    "ld.param.u32 %r1, [pn]; ld.param.f32 %f1, [pv]; ld.param.u64 %d1, [pp]; cvta.to.global.u64 %d1, %d1;\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "mov.u32 %r6, %nctaid.x; mul.lo.u32 %r6, %r6, %r3;\n"
    "LOOP: setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "mul.wide.u32 %d2, %r5, 4; add.u64 %d3, %d1, %d2; st.global.f32 [%d3], %f1;\n"
    "add.u32 %r5, %r5, %r6; bra LOOP;\nDONE: ret; }\n"
    ".visible .entry reduce(.param .u32 pn, .param .u64 pin, .param .u64 pout) {\n"
    ".reg .pred %p<3>; .reg .b32 %r<6>; .reg .f32 %f<3>; .reg .b64 %d<6>;\n"
    "ld.param.u32 %r1, [pn]; ld.param.u64 %d1, [pin]; ld.param.u64 %d2, [pout];\n"
    "cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2;\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; or.b32 %r4, %r2, %r3; setp.ne.u32 %p1, %r4, 0; @%p1 bra DONE;\n"
    "mov.f32 %f1, 0f00000000; mov.u32 %r5, 0;\n"
    "LOOP: setp.ge.u32 %p2, %r5, %r1; @%p2 bra STORE;\n"
    "mul.wide.u32 %d3, %r5, 4; add.u64 %d4, %d1, %d3; ld.global.f32 %f2, [%d4]; add.rn.f32 %f1, %f1, %f2;\n"
    "add.u32 %r5, %r5, 1; bra LOOP;\nSTORE: st.global.f32 [%d2], %f1;\nDONE: ret; }\n"
    ".visible .entry spin(.param .u64 pns) {\n"
    ".reg .pred %p<2>; .reg .b64 %d<5>;\n"
    "ld.param.u64 %d1, [pns]; mov.u64 %d2, %globaltimer;\n"
    "LOOP: mov.u64 %d3, %globaltimer; sub.u64 %d4, %d3, %d2; setp.lt.u64 %p1, %d4, %d1; @%p1 bra LOOP;\nret; }\n"
    ".visible .entry stamp(.param .u64 pp) {\n"
    ".reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<3>;\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; or.b32 %r3, %r1, %r2; setp.ne.u32 %p1, %r3, 0; @%p1 bra DONE;\n"
    "ld.param.u64 %d1, [pp]; cvta.to.global.u64 %d1, %d1; mov.u64 %d2, %globaltimer; st.volatile.global.u64 [%d1], %d2;\n"
    "membar.sys;\nDONE: ret; }\n"
    ".visible .entry crash() {\n"
    ".reg .b32 %r<2>; .reg .b64 %d<2>;\nmov.u64 %d1, 64; mov.u32 %r1, 1; st.global.u32 [%d1], %r1; ret; }\n";

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction axpy, fill, reduce, spin, stamp, empty;

__attribute__((unused)) static void cu_open(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "no driver: %s\n", dlerror());
        exit(3);
    }
#define CU_LOAD(name, args)                                                                                            \
    *(void **)&name = dlsym(library, #name);                                                                           \
    if (!name) {                                                                                                       \
        fprintf(stderr, "the driver has no %s\n", #name);                                                              \
        exit(3);                                                                                                       \
    }
    CU_FUNCTIONS(CU_LOAD)
}

__attribute__((unused)) static void cu_functions(void)
{
    OK(cuModuleLoadData(&module, KERNELS));
    OK(cuModuleGetFunction(&axpy, module, "axpy"));
    OK(cuModuleGetFunction(&fill, module, "fill"));
    OK(cuModuleGetFunction(&reduce, module, "reduce"));
    OK(cuModuleGetFunction(&spin, module, "spin"));
    OK(cuModuleGetFunction(&stamp, module, "stamp"));
    OK(cuModuleGetFunction(&empty, module, "empty"));
}

/* The first device's primary context, current, and the kernels in it. */
__attribute__((unused)) static void cu_start(void)
{
    int count = 0;
    cu_open();
    if (cuInit(0) != SUCCESS || cuDeviceGetCount(&count) != SUCCESS || count == 0) {
        fprintf(stderr, "no device\n");
        exit(3);
    }
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    cu_functions();
}

__attribute__((unused)) static CUresult launch(CUfunction function, CUstream stream, void **arguments)
{
    return cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, arguments, NULL);
}

__attribute__((unused)) static CUresult launch_fill(CUstream stream, CUdeviceptr p, unsigned n, float v)
{
    return launch(fill, stream, (void *[]){ &n, &v, &p });
}

__attribute__((unused)) static CUresult launch_axpy(CUstream stream, CUdeviceptr y, CUdeviceptr x, unsigned n, float a)
{
    return launch(axpy, stream, (void *[]){ &n, &a, &x, &y });
}

__attribute__((unused)) static CUresult launch_reduce(CUstream stream, CUdeviceptr out, CUdeviceptr in, unsigned n)
{
    return launch(reduce, stream, (void *[]){ &n, &in, &out });
}

/* One thread is enough to keep a stream busy. */
__attribute__((unused)) static CUresult launch_spin(CUstream stream, uint64_t us)
{
    uint64_t ns = us * 1000;
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){ &ns }, NULL);
}

__attribute__((unused)) static CUresult launch_stamp(CUstream stream, CUdeviceptr p)
{
    return cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){ &p }, NULL);
}

/* Host memory that the device writes to. */
__attribute__((unused)) static void *pinned(size_t bytes, CUdeviceptr *at)
{
    void *memory;
    OK(cuMemHostAlloc(&memory, bytes, REGISTER_DEVICEMAP));
    memset(memory, 0, bytes);
    OK(cuMemHostGetDevicePointer_v2(at, memory, 0));
    return memory;
}

/* A page that other processes can share, registered. */
__attribute__((unused)) static volatile uint64_t *shared_page(CUdeviceptr *at)
{
    int fd = memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *page = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (page == MAP_FAILED) {
        perror("memfd");
        exit(3);
    }
    OK(cuMemHostRegister_v2(page, 4096, REGISTER_PORTABLE | REGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer_v2(at, page, 0));
    return page;
}

__attribute__((unused)) static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

/* Every element of device memory is this. */
__attribute__((unused)) static int all_are(CUdeviceptr p, unsigned n, float wanted)
{
    float *copy = malloc(n * sizeof *copy);
    int same = copy && cuMemcpyDtoH_v2(copy, p, n * sizeof *copy) == SUCCESS;
    for (unsigned i = 0; same && i < n; i++) {
        same = copy[i] == wanted;
    }
    free(copy);
    return same;
}

#endif
