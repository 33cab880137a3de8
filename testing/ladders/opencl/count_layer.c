/*
 * An OpenCL ICD layer that counts what reaches the driver: an independent count to hold against the scheduler's own.
 *
 *     OPENCL_LAYERS=/path/count_layer.so CL_COUNT_OUT=/path/counts.jsonl program
 *
 * It sits below the ICD loader (and so below libxsched.so, which sits above it). Every process appends one line to
 * CL_COUNT_OUT when it exits, if it enqueued anything:
 *
 *     {"pid":123,"total":7,"calls":{"clEnqueueNDRangeKernel":5,...},"failed":{"clEnqueueReadBuffer":1}}
 *
 * `calls` are the calls that the driver saw, `failed` those of them that it refused. A process that leaves without
 * running destructors (_exit, a signal) writes nothing.
 */
#define _GNU_SOURCE
#include <CL/cl_layer.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cl_icd_dispatch *next;

#define WAIT_PARAMS cl_uint waits, const cl_event *wait_list, cl_event *event
#define WAIT_ARGS waits, wait_list, event

/* Every function that enqueues, as X(name, (parameters), (arguments)), all returning cl_int. */
#define ENQUEUES(X)                                                                                                    \
    X(clEnqueueReadBuffer,                                                                                             \
      (cl_command_queue q, cl_mem m, cl_bool b, size_t offset, size_t size, void *p, WAIT_PARAMS),                     \
      (q, m, b, offset, size, p, WAIT_ARGS))                                                                           \
    X(clEnqueueWriteBuffer,                                                                                            \
      (cl_command_queue q, cl_mem m, cl_bool b, size_t offset, size_t size, const void *p, WAIT_PARAMS),               \
      (q, m, b, offset, size, p, WAIT_ARGS))                                                                           \
    X(clEnqueueReadBufferRect,                                                                                         \
      (cl_command_queue q, cl_mem m, cl_bool b, const size_t *bo, const size_t *ho, const size_t *r, size_t brp,       \
       size_t bsp, size_t hrp, size_t hsp, void *p, WAIT_PARAMS),                                                      \
      (q, m, b, bo, ho, r, brp, bsp, hrp, hsp, p, WAIT_ARGS))                                                          \
    X(clEnqueueWriteBufferRect,                                                                                        \
      (cl_command_queue q, cl_mem m, cl_bool b, const size_t *bo, const size_t *ho, const size_t *r, size_t brp,       \
       size_t bsp, size_t hrp, size_t hsp, const void *p, WAIT_PARAMS),                                                \
      (q, m, b, bo, ho, r, brp, bsp, hrp, hsp, p, WAIT_ARGS))                                                          \
    X(clEnqueueFillBuffer,                                                                                             \
      (cl_command_queue q, cl_mem m, const void *pattern, size_t ps, size_t offset, size_t size, WAIT_PARAMS),         \
      (q, m, pattern, ps, offset, size, WAIT_ARGS))                                                                    \
    X(clEnqueueCopyBuffer,                                                                                             \
      (cl_command_queue q, cl_mem s, cl_mem d, size_t so, size_t dof, size_t size, WAIT_PARAMS),                       \
      (q, s, d, so, dof, size, WAIT_ARGS))                                                                             \
    X(clEnqueueCopyBufferRect,                                                                                         \
      (cl_command_queue q, cl_mem s, cl_mem d, const size_t *so, const size_t *dof, const size_t *r, size_t srp,       \
       size_t ssp, size_t drp, size_t dsp, WAIT_PARAMS),                                                               \
      (q, s, d, so, dof, r, srp, ssp, drp, dsp, WAIT_ARGS))                                                            \
    X(clEnqueueReadImage,                                                                                              \
      (cl_command_queue q, cl_mem m, cl_bool b, const size_t *o, const size_t *r, size_t rp, size_t sp, void *p,       \
       WAIT_PARAMS),                                                                                                   \
      (q, m, b, o, r, rp, sp, p, WAIT_ARGS))                                                                           \
    X(clEnqueueWriteImage,                                                                                             \
      (cl_command_queue q, cl_mem m, cl_bool b, const size_t *o, const size_t *r, size_t rp, size_t sp, const void *p, \
       WAIT_PARAMS),                                                                                                   \
      (q, m, b, o, r, rp, sp, p, WAIT_ARGS))                                                                           \
    X(clEnqueueFillImage,                                                                                              \
      (cl_command_queue q, cl_mem m, const void *color, const size_t *o, const size_t *r, WAIT_PARAMS),                \
      (q, m, color, o, r, WAIT_ARGS))                                                                                  \
    X(clEnqueueCopyImage,                                                                                              \
      (cl_command_queue q, cl_mem s, cl_mem d, const size_t *so, const size_t *dof, const size_t *r, WAIT_PARAMS),     \
      (q, s, d, so, dof, r, WAIT_ARGS))                                                                                \
    X(clEnqueueCopyImageToBuffer,                                                                                      \
      (cl_command_queue q, cl_mem s, cl_mem d, const size_t *so, const size_t *r, size_t dof, WAIT_PARAMS),            \
      (q, s, d, so, r, dof, WAIT_ARGS))                                                                                \
    X(clEnqueueCopyBufferToImage,                                                                                      \
      (cl_command_queue q, cl_mem s, cl_mem d, size_t so, const size_t *dof, const size_t *r, WAIT_PARAMS),            \
      (q, s, d, so, dof, r, WAIT_ARGS))                                                                                \
    X(clEnqueueUnmapMemObject, (cl_command_queue q, cl_mem m, void *p, WAIT_PARAMS), (q, m, p, WAIT_ARGS))             \
    X(clEnqueueMigrateMemObjects,                                                                                      \
      (cl_command_queue q, cl_uint n, const cl_mem *m, cl_mem_migration_flags f, WAIT_PARAMS),                         \
      (q, n, m, f, WAIT_ARGS))                                                                                         \
    X(clEnqueueNDRangeKernel,                                                                                          \
      (cl_command_queue q, cl_kernel k, cl_uint dim, const size_t *o, const size_t *g, const size_t *l, WAIT_PARAMS),  \
      (q, k, dim, o, g, l, WAIT_ARGS))                                                                                 \
    X(clEnqueueTask, (cl_command_queue q, cl_kernel k, WAIT_PARAMS), (q, k, WAIT_ARGS))                                \
    X(clEnqueueNativeKernel,                                                                                           \
      (cl_command_queue q, void(CL_CALLBACK * f)(void *), void *a, size_t as, cl_uint n, const cl_mem *m,              \
       const void **l, WAIT_PARAMS),                                                                                   \
      (q, f, a, as, n, m, l, WAIT_ARGS))                                                                               \
    X(clEnqueueMarkerWithWaitList, (cl_command_queue q, WAIT_PARAMS), (q, WAIT_ARGS))                                  \
    X(clEnqueueBarrierWithWaitList, (cl_command_queue q, WAIT_PARAMS), (q, WAIT_ARGS))                                 \
    X(clEnqueueMarker, (cl_command_queue q, cl_event * event), (q, event))                                             \
    X(clEnqueueWaitForEvents, (cl_command_queue q, cl_uint n, const cl_event *l), (q, n, l))                           \
    X(clEnqueueBarrier, (cl_command_queue q), (q))                                                                     \
    X(clEnqueueSVMFree,                                                                                                \
      (cl_command_queue q, cl_uint n, void **p, void(CL_CALLBACK * f)(cl_command_queue, cl_uint, void **, void *),     \
       void *user, WAIT_PARAMS),                                                                                       \
      (q, n, p, f, user, WAIT_ARGS))                                                                                   \
    X(clEnqueueSVMMemcpy, (cl_command_queue q, cl_bool b, void *d, const void *s, size_t size, WAIT_PARAMS),           \
      (q, b, d, s, size, WAIT_ARGS))                                                                                   \
    X(clEnqueueSVMMemFill, (cl_command_queue q, void *p, const void *pattern, size_t ps, size_t size, WAIT_PARAMS),    \
      (q, p, pattern, ps, size, WAIT_ARGS))                                                                            \
    X(clEnqueueSVMMap, (cl_command_queue q, cl_bool b, cl_map_flags f, void *p, size_t size, WAIT_PARAMS),             \
      (q, b, f, p, size, WAIT_ARGS))                                                                                   \
    X(clEnqueueSVMUnmap, (cl_command_queue q, void *p, WAIT_PARAMS), (q, p, WAIT_ARGS))                                \
    X(clEnqueueSVMMigrateMem,                                                                                          \
      (cl_command_queue q, cl_uint n, const void **p, const size_t *sizes, cl_mem_migration_flags f, WAIT_PARAMS),     \
      (q, n, p, sizes, f, WAIT_ARGS))                                                                                  \
    X(clEnqueueAcquireGLObjects, (cl_command_queue q, cl_uint n, const cl_mem *m, WAIT_PARAMS), (q, n, m, WAIT_ARGS))  \
    X(clEnqueueReleaseGLObjects, (cl_command_queue q, cl_uint n, const cl_mem *m, WAIT_PARAMS), (q, n, m, WAIT_ARGS))  \
    X(clEnqueueAcquireEGLObjectsKHR, (cl_command_queue q, cl_uint n, const cl_mem *m, WAIT_PARAMS),                    \
      (q, n, m, WAIT_ARGS))                                                                                            \
    X(clEnqueueReleaseEGLObjectsKHR, (cl_command_queue q, cl_uint n, const cl_mem *m, WAIT_PARAMS),                    \
      (q, n, m, WAIT_ARGS))

/* Enqueues of extensions, not in the dispatch table: counted when their address is asked for. */
#define EXTENSIONS(X)                                                                                                  \
    X(clEnqueueCommandBufferKHR,                                                                                       \
      (cl_uint nq, cl_command_queue * qs, cl_command_buffer_khr c, WAIT_PARAMS), (nq, qs, c, WAIT_ARGS))               \
    X(clEnqueueSVMMemcpyARM, (cl_command_queue q, cl_bool b, void *d, const void *s, size_t size, WAIT_PARAMS),        \
      (q, b, d, s, size, WAIT_ARGS))                                                                                   \
    X(clEnqueueMemcpyINTEL, (cl_command_queue q, cl_bool b, void *d, const void *s, size_t size, WAIT_PARAMS),         \
      (q, b, d, s, size, WAIT_ARGS))                                                                                   \
    X(clEnqueueMemFillINTEL, (cl_command_queue q, void *p, const void *pattern, size_t ps, size_t size, WAIT_PARAMS),  \
      (q, p, pattern, ps, size, WAIT_ARGS))

#define INDEX(name, params, args) I_##name,
enum { ENQUEUES(INDEX) EXTENSIONS(INDEX) I_clEnqueueMapBuffer, I_clEnqueueMapImage, FUNCTIONS };

#define NAME(name, params, args) #name,
static const char *const names[FUNCTIONS] = {ENQUEUES(NAME) EXTENSIONS(NAME) "clEnqueueMapBuffer", "clEnqueueMapImage"};

static atomic_ulong calls[FUNCTIONS], failed[FUNCTIONS];

/* Counted before the call: a blocking one may outlive its process. */
static void begin(int function) { atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed); }

static cl_int end(int function, cl_int result)
{
    if (result != CL_SUCCESS)
        atomic_fetch_add_explicit(&failed[function], 1, memory_order_relaxed);
    return result;
}

#define WRAPPER(name, params, args)                                                                                    \
    static cl_int CL_API_CALL count_##name params                                                                      \
    {                                                                                                                  \
        begin(I_##name);                                                                                               \
        return end(I_##name, next->name args);                                                                         \
    }
ENQUEUES(WRAPPER)

#define EXTENSION(name, params, args)                                                                                  \
    static cl_int(CL_API_CALL *real_##name) params;                                                                    \
    static cl_int CL_API_CALL count_##name params                                                                      \
    {                                                                                                                  \
        begin(I_##name);                                                                                               \
        return end(I_##name, real_##name args);                                                                        \
    }
EXTENSIONS(EXTENSION)

static void *CL_API_CALL count_clEnqueueMapBuffer(
    cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t offset, size_t size, WAIT_PARAMS, cl_int *error)
{
    begin(I_clEnqueueMapBuffer);
    void *p = next->clEnqueueMapBuffer(q, m, b, f, offset, size, WAIT_ARGS, error);
    end(I_clEnqueueMapBuffer, p ? CL_SUCCESS : CL_MAP_FAILURE);
    return p;
}

static void *CL_API_CALL count_clEnqueueMapImage(
    cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, const size_t *o, const size_t *r, size_t *rp, size_t *sp,
    WAIT_PARAMS, cl_int *error)
{
    begin(I_clEnqueueMapImage);
    void *p = next->clEnqueueMapImage(q, m, b, f, o, r, rp, sp, WAIT_ARGS, error);
    end(I_clEnqueueMapImage, p ? CL_SUCCESS : CL_MAP_FAILURE);
    return p;
}

/* An extension's address is replaced by our wrapper's; one platform at a time is enough for tests. */
static void *counted_address(const char *name, void *real)
{
    if (!real)
        return NULL;
#define LOOKUP(function, params, args)                                                                                 \
    if (strcmp(name, #function) == 0) {                                                                                \
        *(void **)&real_##function = real;                                                                             \
        return (void *)count_##function;                                                                               \
    }
    EXTENSIONS(LOOKUP)
    return real;
}

static void *CL_API_CALL count_address(const char *name)
{
    return counted_address(name, next->clGetExtensionFunctionAddress(name));
}

static void *CL_API_CALL count_address_for_platform(cl_platform_id platform, const char *name)
{
    return counted_address(name, next->clGetExtensionFunctionAddressForPlatform(platform, name));
}

/* A forked child starts at zero: its parent reports what came before. */
static void in_child(void)
{
    memset(calls, 0, sizeof calls);
    memset(failed, 0, sizeof failed);
}

static void object(FILE *out, const char *key, atomic_ulong *values)
{
    const char *comma = "";
    fprintf(out, "\"%s\":{", key);
    for (int i = 0; i < FUNCTIONS; i++) {
        if (values[i]) {
            fprintf(out, "%s\"%s\":%lu", comma, names[i], values[i]);
            comma = ",";
        }
    }
    fputs("}", out);
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("CL_COUNT_OUT");
    unsigned long total = 0;
    for (int i = 0; i < FUNCTIONS; i++)
        total += calls[i];
    if (!path || !total)
        return;
    char *line = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&line, &length);
    fprintf(out, "{\"pid\":%d,\"total\":%lu,", getpid(), total);
    object(out, "calls", calls);
    fputs(",", out);
    object(out, "failed", failed);
    fputs("}\n", out);
    fclose(out);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, length) != (ssize_t)length)
        perror(path);
    if (fd >= 0)
        close(fd);
    free(line);
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret)
{
    static const char own_name[] = "count_layer";
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    const void *from = name == CL_LAYER_NAME ? (const void *)own_name : (const void *)&version;
    size_t length = name == CL_LAYER_NAME ? sizeof own_name : sizeof version;
    if (name != CL_LAYER_NAME && name != CL_LAYER_API_VERSION)
        return CL_INVALID_VALUE;
    if (value && size < length)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, from, length);
    if (size_ret)
        *size_ret = length;
    return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(
    cl_uint num_entries, const cl_icd_dispatch *target, cl_uint *num_entries_ret, const cl_icd_dispatch **layer_ret)
{
    static cl_icd_dispatch layer;
    if (!target || !num_entries_ret || !layer_ret || num_entries < sizeof layer / sizeof layer.clGetPlatformIDs)
        return CL_INVALID_VALUE;
    next = target;
    /* An entry left NULL means that this layer does not take part in that function. */
#define SET(name, params, args) layer.name = count_##name;
    ENQUEUES(SET)
    layer.clEnqueueMapBuffer = count_clEnqueueMapBuffer;
    layer.clEnqueueMapImage = count_clEnqueueMapImage;
    layer.clGetExtensionFunctionAddress = count_address;
    layer.clGetExtensionFunctionAddressForPlatform = count_address_for_platform;
    pthread_atfork(NULL, NULL, in_child);
    *num_entries_ret = sizeof layer / sizeof layer.clGetPlatformIDs;
    *layer_ret = &layer;
    return CL_SUCCESS;
}
