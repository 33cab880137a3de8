/*
 * An OpenCL ICD layer that lets calls fail, for what a library above it calls of its own.
 *
 *     OPENCL_LAYERS=/path/fail_layer.so FAIL_LAYER="N CODE HOW" FAIL_LAYER_SPARED="NAME NAME" FAIL_LAYER_OUT=FILE program
 *
 * The Nth call of those below answers CODE and does nothing else (0 = none). HOW is "once", or "on": so do all after it. The
 * functions named by FAIL_LAYER_SPARED, the program's own, are not counted. At the end a line of JSON is appended to FILE:
 *
 *     {"pid":123,"counted":40,"failed":"clSetEventCallback","calls":{"clFlush":3,...}}
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cl_icd_dispatch *next;
static long wanted, code;
static int goes_on;
static atomic_long counted;
static const char *_Atomic first_failed;

#define OWN(X)                                                                                                         \
    X(clFlush, (cl_command_queue q), (q))                                                                              \
    X(clRetainCommandQueue, (cl_command_queue q), (q))                                                                 \
    X(clReleaseCommandQueue, (cl_command_queue q), (q))                                                                \
    X(clGetCommandQueueInfo, (cl_command_queue q, cl_command_queue_info i, size_t s, void *v, size_t *r),              \
      (q, i, s, v, r))                                                                                                 \
    X(clGetDeviceInfo, (cl_device_id d, cl_device_info i, size_t s, void *v, size_t *r), (d, i, s, v, r))              \
    X(clGetEventInfo, (cl_event e, cl_event_info i, size_t s, void *v, size_t *r), (e, i, s, v, r))                    \
    X(clSetEventCallback, (cl_event e, cl_int t, void(CL_CALLBACK * f)(cl_event, cl_int, void *), void *d),            \
      (e, t, f, d))                                                                                                    \
    X(clReleaseEvent, (cl_event e), (e))                                                                               \
    X(clEnqueueMarkerWithWaitList, (cl_command_queue q, cl_uint n, const cl_event *l, cl_event *e), (q, n, l, e))

#define INDEX(name, params, args) I_##name,
enum { OWN(INDEX) FUNCTIONS };
#define NAME(name, params, args) #name,
static const char *const names[FUNCTIONS] = {OWN(NAME)};
static int spared[FUNCTIONS];
static atomic_long calls[FUNCTIONS];

/* What a call answers instead of being made; 0 = it is made. */
static cl_int fails(int function)
{
    atomic_fetch_add(&calls[function], 1);
    if (spared[function])
        return 0;
    long number = atomic_fetch_add(&counted, 1) + 1;
    if (!wanted || number < wanted || (number > wanted && !goes_on))
        return 0;
    const char *none = NULL;
    atomic_compare_exchange_strong(&first_failed, &none, names[function]);
    return (cl_int)code;
}

#define WRAPPER(name, params, args)                                                                                    \
    static cl_int CL_API_CALL fail_##name params                                                                       \
    {                                                                                                                  \
        cl_int answer = fails(I_##name);                                                                               \
        return answer ? answer : next->name args;                                                                      \
    }
OWN(WRAPPER)

static void read_wish(void)
{
    const char *wish = getenv("FAIL_LAYER"), *names_of = getenv("FAIL_LAYER_SPARED");
    char how[8] = "", *copy = strdup(names_of ? names_of : ""), *rest = copy, *name;
    if (!wish || sscanf(wish, "%ld %ld %7s", &wanted, &code, how) != 3 || (strcmp(how, "once") && strcmp(how, "on"))) {
        fprintf(stderr, "FAIL_LAYER=%s is not `N CODE once|on`\n", wish ? wish : "");
        exit(2);
    }
    goes_on = !strcmp(how, "on");
    while ((name = strsep(&rest, " ")))
        for (int i = 0; i < FUNCTIONS; i++)
            spared[i] |= !strcmp(name, names[i]);
    free(copy);
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAIL_LAYER_OUT"), *failed = atomic_load(&first_failed), *comma = "";
    char *line = NULL;
    size_t length = 0;
    if (!path || !next)
        return;
    FILE *out = open_memstream(&line, &length);
    fprintf(out, "{\"pid\":%d,\"counted\":%ld,\"failed\":", getpid(), atomic_load(&counted));
    fprintf(out, failed ? "\"%s\"" : "null", failed);
    fputs(",\"calls\":{", out);
    for (int i = 0; i < FUNCTIONS; i++) {
        if (calls[i]) {
            fprintf(out, "%s\"%s\":%ld", comma, names[i], atomic_load(&calls[i]));
            comma = ",";
        }
    }
    fputs("}}\n", out);
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
    static const char own_name[] = "fail_layer";
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (name != CL_LAYER_NAME && name != CL_LAYER_API_VERSION)
        return CL_INVALID_VALUE;
    const void *from = name == CL_LAYER_NAME ? (const void *)own_name : (const void *)&version;
    size_t length = name == CL_LAYER_NAME ? sizeof own_name : sizeof version;
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
    read_wish();
    next = target;
    /* An entry left NULL means that this layer does not take part in that function. */
#define SET(name, params, args) layer.name = fail_##name;
    OWN(SET)
    *num_entries_ret = sizeof layer / sizeof layer.clGetPlatformIDs;
    *layer_ret = &layer;
    return CL_SUCCESS;
}
