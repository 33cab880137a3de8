/* The HIP runtime API for small test programs: own declarations, linked against libamdhip64.so.N; kernels as hipcc would
 * register them, from a code object that holds only their names.
 *
 * A program prints a line for each check, "ok WHAT" or "FAIL WHAT: …", and ends with CHECKS_DONE: exit status 0 if all
 * hold, 1 if not, 3 if there is no device. The lines are the same on every device and for every major. */
#ifndef HIP_H
#define HIP_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lib/checks.h"

typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct { uint32_t x, y, z; } dim3;
typedef void (*hipStreamCallback_t)(hipStream_t, hipError_t, void *);
typedef void (*hipHostFn_t)(void *);

/* Whether the runtime stands on a CUDA driver, which is laxer or stricter here and there. */
static inline int on_cuda(void)
{
    const char *backend = getenv("FAKEHIP_BACKEND");
    return backend && !strcmp(backend, "cuda");
}

/* What nodes of graphs are made of. */
struct kernel_params { dim3 block; void **extra; void *function; dim3 grid; void **params; unsigned shared; };
struct set_params { void *to; unsigned unit; size_t height, pitch; unsigned value; size_t width; };
struct host_params { hipHostFn_t function; void *data; };

#define LEGACY ((hipStream_t)1)
#define PER_THREAD ((hipStream_t)2)

enum {
    SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONFIGURATION = 9, INVALID_PITCH = 12, INVALID_SYMBOL = 13, INVALID_DIRECTION = 21,
    INVALID_DEVICE_FUNCTION = 98, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, CONTEXT_IS_DESTROYED = 709, HOST_NOT_REGISTERED = 713, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904,
    CAPTURE_WRONG_THREAD = 908, GRAPH_UPDATE_FAILURE = 910
};
enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };
enum { WAIT_GTE, WAIT_EQ, WAIT_AND, WAIT_NOR };

hipError_t hipGetDeviceCount(int *);
hipError_t hipSetDevice(int);
hipError_t hipGetDevice(int *);
hipError_t hipGetDeviceProperties(void *, int);
hipError_t hipDeviceGetName(char *, int, int);
hipError_t hipDeviceGetPCIBusId(char *, int, int);
hipError_t hipDeviceGetAttribute(int *, int, int);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDeviceReset(void);
hipError_t hipRuntimeGetVersion(int *);
const char *hipGetErrorName(hipError_t);
const char *hipGetErrorString(hipError_t);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
hipError_t hipMalloc(void *, size_t);
hipError_t hipMallocPitch(void *, size_t *, size_t, size_t);
hipError_t hipFree(void *);
hipError_t hipHostMalloc(void *, size_t, unsigned);
hipError_t hipHostFree(void *);
hipError_t hipHostRegister(void *, size_t, unsigned);
hipError_t hipHostUnregister(void *);
hipError_t hipHostGetDevicePointer(void *, void *, unsigned);
hipError_t hipMallocManaged(void *, size_t, unsigned);
hipError_t hipMallocAsync(void *, size_t, hipStream_t);
hipError_t hipFreeAsync(void *, hipStream_t);
hipError_t hipMemcpy(void *, const void *, size_t, int);
hipError_t hipMemcpyAsync(void *, const void *, size_t, int, hipStream_t);
hipError_t hipMemcpyWithStream(void *, const void *, size_t, int, hipStream_t);
hipError_t hipMemcpyHtoD(void *, const void *, size_t);
hipError_t hipMemcpyDtoH(void *, const void *, size_t);
hipError_t hipMemcpyDtoD(void *, const void *, size_t);
hipError_t hipMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
hipError_t hipMemcpy_spt(void *, const void *, size_t, int);
hipError_t hipMemcpyAsync_spt(void *, const void *, size_t, int, hipStream_t);
hipError_t hipMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
hipError_t hipMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
hipError_t hipGetSymbolAddress(void *, const void *);
hipError_t hipGetSymbolSize(size_t *, const void *);
hipError_t hipMemPtrGetInfo(void *, size_t *);
hipError_t hipMemset(void *, int, size_t);
hipError_t hipMemset_spt(void *, int, size_t);
hipError_t hipMemsetAsync(void *, int, size_t, hipStream_t);
hipError_t hipMemsetD32Async(void *, int, size_t, hipStream_t);
hipError_t hipMemset2D(void *, size_t, int, size_t, size_t);
typedef struct { size_t width, height, depth; } hipExtent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } hipPitchedPtr;
typedef struct { size_t x, y, z; } hipPos;
typedef struct {
    void *srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    void *dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    hipExtent extent;
    int kind;
} hipMemcpy3DParms;
hipError_t hipMalloc3D(hipPitchedPtr *, hipExtent);
hipError_t hipMemcpy3D(const hipMemcpy3DParms *);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *, hipStream_t);
hipError_t hipMemset3DAsync(hipPitchedPtr, int, hipExtent, hipStream_t);
hipError_t hipStreamCreate(hipStream_t *);
hipError_t hipStreamCreateWithFlags(hipStream_t *, unsigned);
hipError_t hipStreamCreateWithPriority(hipStream_t *, unsigned, int);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipStreamSynchronize_spt(hipStream_t);
hipError_t hipStreamGetPriority(hipStream_t, int *);
hipError_t hipStreamGetFlags(hipStream_t, unsigned *);
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned);
hipError_t hipStreamAddCallback(hipStream_t, hipStreamCallback_t, void *, unsigned);
hipError_t hipDeviceGetStreamPriorityRange(int *, int *);
hipError_t hipStreamWaitValue32(hipStream_t, void *, uint32_t, unsigned, uint32_t);
hipError_t hipStreamWaitValue64(hipStream_t, void *, uint64_t, unsigned, uint64_t);
hipError_t hipStreamWriteValue32(hipStream_t, void *, uint32_t, unsigned);
hipError_t hipStreamWriteValue64(hipStream_t, void *, uint64_t, unsigned);
hipError_t hipEventCreate(hipEvent_t *);
hipError_t hipEventCreateWithFlags(hipEvent_t *, unsigned);
hipError_t hipEventDestroy(hipEvent_t);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventQuery(hipEvent_t);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipEventElapsedTime(float *, hipEvent_t, hipEvent_t);
typedef struct { char reserved[64]; } hipIpcMemHandle_t;
typedef struct { char reserved[64]; } hipIpcEventHandle_t;
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *, void *);
hipError_t hipIpcOpenMemHandle(void *, hipIpcMemHandle_t, unsigned);
hipError_t hipIpcCloseMemHandle(void *);
hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t *, hipEvent_t);
hipError_t hipIpcOpenEventHandle(hipEvent_t *, hipIpcEventHandle_t);
hipError_t hipModuleLoadData(hipModule_t *, const void *);
hipError_t hipModuleUnload(hipModule_t);
hipError_t hipModuleGetFunction(hipFunction_t *, hipModule_t, const char *);
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 hipStream_t, void **, void **);
hipError_t _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
    hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void **, void **,
    hipEvent_t, hipEvent_t, uint32_t);
#define hipExtModuleLaunchKernel \
    _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipLaunchKernel_spt(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipExtLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t, hipEvent_t, hipEvent_t, int);
hipError_t hipLaunchCooperativeKernel(const void *, dim3, dim3, void **, unsigned, hipStream_t);
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, hipStream_t *);
void **__hipRegisterFatBinary(const void *);
void __hipRegisterFunction(void **, const void *, char *, const char *, unsigned, void *, void *, dim3 *, dim3 *, int *);
void __hipRegisterVar(void **, void *, char *, char *, int, size_t, int, int);
void __hipUnregisterFatBinary(void **);
hipError_t hipStreamBeginCapture(hipStream_t, int);
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t *);
hipError_t hipStreamIsCapturing(hipStream_t, int *);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t, int *, unsigned long long *, hipGraph_t *,
                                      const hipGraphNode_t **, size_t *);
hipError_t hipStreamBeginCaptureToGraph(hipStream_t, hipGraph_t, const hipGraphNode_t *, const void *, size_t, int);
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t, hipGraphNode_t *, size_t, unsigned);
hipError_t hipThreadExchangeStreamCaptureMode(int *);
hipError_t hipGraphCreate(hipGraph_t *, unsigned);
hipError_t hipGraphDestroy(hipGraph_t);
hipError_t hipGraphGetNodes(hipGraph_t, hipGraphNode_t *, size_t *);
hipError_t hipGraphNodeGetType(hipGraphNode_t, int *);
hipError_t hipGraphAddKernelNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const void *);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, void *, const void *,
                                   size_t, int);
hipError_t hipGraphAddMemsetNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const void *);
hipError_t hipGraphAddHostNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const void *);
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, hipGraph_t);
hipError_t hipGraphInstantiate(hipGraphExec_t *, hipGraph_t, hipGraphNode_t *, char *, size_t);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *, hipGraph_t, unsigned long long);
hipError_t hipGraphExecDestroy(hipGraphExec_t);
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t, hipGraphNode_t, const void *);
hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t, void *);
hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t, const void *);
hipError_t hipGraphAddMemcpyNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t,
                                 const hipMemcpy3DParms *);
hipError_t hipGraphMemcpyNodeGetParams(hipGraphNode_t, hipMemcpy3DParms *);
hipError_t hipGraphMemcpyNodeSetParams(hipGraphNode_t, const hipMemcpy3DParms *);
hipError_t hipGraphExecMemcpyNodeSetParams(hipGraphExec_t, hipGraphNode_t, const hipMemcpy3DParms *);
hipError_t hipGraphMemcpyNodeSetParams1D(hipGraphNode_t, void *, const void *, size_t, int);
hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t, hipGraphNode_t, void *, const void *, size_t, int);
hipError_t hipGraphAddMemcpyNodeToSymbol(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const void *,
                                         const void *, size_t, size_t, int);
hipError_t hipGraphMemcpyNodeSetParamsFromSymbol(hipGraphNode_t, void *, const void *, size_t, size_t, int);
hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t, void *);
hipError_t hipGraphMemsetNodeSetParams(hipGraphNode_t, const void *);
hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t, hipGraphNode_t, const void *);
hipError_t hipGraphHostNodeGetParams(hipGraphNode_t, void *);
hipError_t hipGraphHostNodeSetParams(hipGraphNode_t, const void *);
hipError_t hipGraphExecHostNodeSetParams(hipGraphExec_t, hipGraphNode_t, const void *);
hipError_t hipGraphClone(hipGraph_t *, hipGraph_t);
hipError_t hipGraphNodeFindInClone(hipGraphNode_t *, hipGraphNode_t, hipGraph_t);
hipError_t hipGraphNodeGetDependencies(hipGraphNode_t, hipGraphNode_t *, size_t *);
hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t, hipGraphNode_t *, size_t *);
hipError_t hipGraphRemoveDependencies(hipGraph_t, const hipGraphNode_t *, const hipGraphNode_t *, size_t);
hipError_t hipGraphNodeSetEnabled(hipGraphExec_t, hipGraphNode_t, unsigned);
hipError_t hipGraphNodeGetEnabled(hipGraphExec_t, hipGraphNode_t, unsigned *);
hipError_t hipGraphExecUpdate(hipGraphExec_t, hipGraph_t, hipGraphNode_t *, int *);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);

/* The kernels: what a launch names is the address of a variable each. */
static const char kernel_names[] = "fakehip kernels: axpy fill reduce copy gemm conv2d spin stamp empty nobody";
static char axpy, fill, reduce, copy, gemm, conv2d, spin, stamp, empty, nobody;
static const struct { const char *name; void *handle; } kernels[] = {
    {"axpy", &axpy}, {"fill", &fill}, {"reduce", &reduce}, {"_Z4copyjPKfPf", &copy}, {"gemm", &gemm},
    {"conv2d", &conv2d}, {"spin", &spin}, {"stamp", &stamp}, {"empty", &empty}, {"nobody", &nobody},
};
static const struct { uint32_t magic, version; const void *binary; void *unused; } fat_binary = {
    0x48495046, 1, kernel_names, 0};
static void **fat_handle;

__attribute__((constructor, unused)) static void register_kernels(void)
{
    fat_handle = __hipRegisterFatBinary(&fat_binary);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        __hipRegisterFunction(fat_handle, kernels[i].handle, (char *)kernels[i].name, kernels[i].name, -1, 0, 0, 0, 0, 0);
    }
}

__attribute__((destructor, unused)) static void unregister_kernels(void)
{
    __hipUnregisterFatBinary(fat_handle);
}

/* kernel<<<blocks, threads, 0, stream>>>(…), as the compiler makes it. */
__attribute__((unused)) static hipError_t launch_as_compiled(void *kernel, unsigned blocks, unsigned threads,
                                                             hipStream_t stream, void **args)
{
    dim3 grid = {blocks, 1, 1}, block = {threads, 1, 1};
    size_t shared = 0;
    hipError_t pushed = __hipPushCallConfiguration(grid, block, 0, stream);
    hipError_t popped = __hipPopCallConfiguration(&grid, &block, &shared, &stream);
    return pushed ? pushed : popped ? popped : hipLaunchKernel(kernel, grid, block, args, shared, stream);
}

#define ARGS(...) ((void *[]){__VA_ARGS__})
#define BLOCKS(n) (((n) + 255) / 256)

__attribute__((unused)) static hipError_t run_fill(float *to, unsigned n, float value, hipStream_t stream)
{
    return launch_as_compiled(&fill, BLOCKS(n), 256, stream, ARGS(&n, &value, &to));
}

__attribute__((unused)) static hipError_t run_axpy(float a, float *x, float *y, unsigned n, hipStream_t stream)
{
    return launch_as_compiled(&axpy, BLOCKS(n), 256, stream, ARGS(&n, &a, &x, &y));
}

__attribute__((unused)) static hipError_t run_spin(uint64_t ns, hipStream_t stream)
{
    return launch_as_compiled(&spin, 1, 1, stream, ARGS(&ns));
}

__attribute__((unused)) static int all_are(const float *values, unsigned n, float wanted)
{
    for (unsigned i = 0; i < n; i++) {
        if (values[i] != wanted) {
            return 0;
        }
    }
    return 1;
}

/* Ends with status 3 where there is no device. */
__attribute__((unused)) static void need_device(void)
{
    int count = 0;
    if (hipGetDeviceCount(&count) != SUCCESS || count < 1) {
        puts("skip: no HIP device");
        exit(3);
    }
}

#endif
