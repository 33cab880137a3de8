/* Counts what a program really puts on a CUDA device, by CUPTI, below any library that stands before the driver.
 *
 *   CUDA_INJECTION64_PATH=count.so  COUNT_CUPTI=/path/of/libcupti.so.13  COUNT_OUT=FILE  program
 *
 * The driver loads this library at cuInit. At exit each process appends one line of JSON to COUNT_OUT:
 *
 *   {"pid":1,"total":3,"launches":2,"copies":1,"calls":{"cuLaunchKernel":2,...},"recorded":{...},"failed":{...}}
 *
 * calls: succeeded and went to the device. recorded: succeeded, but into a stream capture. failed: the driver refused.
 * A call made inside another one that is counted belongs to that one. What CUPTI shows needs no header: the few
 * declarations below are those of cupti_callbacks.h and have not changed since CUDA 4. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "functions.h"

enum { DRIVER_API = 1, ENTER = 0, EXIT = 1, MAX_IDS = 4096 };
enum { CUDA_SUCCESS = 0, CAPTURE_NONE = 0, STREAM_PER_THREAD = 2, CONFIG_STREAM = 32 };

/* Start of CUpti_CallbackData. */
struct callback_data {
    int site;
    const char *function;
    const void *parameters;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *correlation;
};
_Static_assert(offsetof(struct callback_data, correlation) == 56, "as in cupti_callbacks.h");

typedef void (*callback_fn)(void *user, int domain, uint32_t id, const struct callback_data *data);

typedef int subscribe_fn(void **subscriber, callback_fn function, void *user);
typedef int enable_fn(uint32_t enable, void *subscriber, int domain, uint32_t id);
typedef int name_fn(int domain, uint32_t id, const char **name);

/* What is kept between entering and leaving a call. */
enum state { NESTED = 1, RECORDED = 2, REAL = 3 };

enum { TO_DEVICE, INTO_CAPTURE, REFUSED, OUTCOMES };

static atomic_ullong counts[OUTCOMES][FUNCTION_COUNT];
static int16_t function_of[MAX_IDS]; /* callback id -> index into FUNCTIONS plus one */
static __thread int depth;
static int (*is_capturing)(void *stream, int *status);

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether this call is only recorded into a capture. */
static int recorded(const struct function *function, const void *parameters) {
    const void *stream = NULL;
    int status = CAPTURE_NONE;
    if (!is_capturing || function->stream == NO_STREAM)
        return 0;
    if (function->stream == IN_CONFIG) {
        const char *config = *(const char *const *)parameters;
        if (!config)
            return 0;
        memcpy(&stream, config + CONFIG_STREAM, sizeof stream);
    } else {
        memcpy(&stream, (const char *)parameters + function->stream, sizeof stream);
    }
    if (!stream && ends_with(function->name, "_ptsz"))
        stream = (const void *)(intptr_t)STREAM_PER_THREAD;
    return is_capturing((void *)stream, &status) == CUDA_SUCCESS && status != CAPTURE_NONE;
}

static void on_call(void *user, int domain, uint32_t id, const struct callback_data *data) {
    (void)user;
    if (domain != DRIVER_API || id >= MAX_IDS || !function_of[id])
        return;
    int index = function_of[id] - 1;
    if (data->site == ENTER) {
        *data->correlation = depth++ ? NESTED : recorded(&FUNCTIONS[index], data->parameters) ? RECORDED : REAL;
        return;
    }
    depth--;
    if (*data->correlation == NESTED)
        return;
    int failed = *(const int *)data->result != CUDA_SUCCESS;
    int outcome = failed ? REFUSED : *data->correlation == RECORDED ? INTO_CAPTURE : TO_DEVICE;
    atomic_fetch_add_explicit(&counts[outcome][index], 1, memory_order_relaxed);
}

static unsigned long long sum(int kind) {
    unsigned long long total = 0;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if ((int)FUNCTIONS[i].kind == kind)
            total += counts[TO_DEVICE][i];
    return total;
}

static void list(FILE *out, const char *name, int outcome) {
    const char *comma = "";
    fprintf(out, ",\"%s\":{", name);
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        unsigned long long n = counts[outcome][i];
        if (n) {
            fprintf(out, "%s\"%s\":%llu", comma, FUNCTIONS[i].name, n);
            comma = ",";
        }
    }
    fputs("}", out);
}

static void report(void) {
    char *line = NULL;
    size_t length = 0;
    const char *path = getenv("COUNT_OUT");
    FILE *out = path ? open_memstream(&line, &length) : NULL;
    if (!out)
        return;
    unsigned long long launches = sum(LAUNCH), copies = sum(COPY);
    fprintf(out, "{\"pid\":%d,\"total\":%llu,\"launches\":%llu,\"copies\":%llu", (int)getpid(), launches + copies,
            launches, copies);
    list(out, "calls", TO_DEVICE);
    list(out, "recorded", INTO_CAPTURE);
    list(out, "failed", REFUSED);
    fputs("}\n", out);
    fclose(out);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, length) != (ssize_t)length)
        fprintf(stderr, "count: cannot write %s\n", path);
    if (fd >= 0)
        close(fd);
    free(line);
}

/* A forked child has done nothing yet. */
static void forget(void) {
    memset(counts, 0, sizeof counts);
}

static int fail(const char *what, const char *why) {
    fprintf(stderr, "count: %s: %s\n", what, why ? why : "failed");
    return 0;
}

/* Fills `function_of`; gives how many functions of the list this CUPTI knows. */
static int learn(name_fn *name_of) {
    int known = 0;
    for (uint32_t id = 1; id < MAX_IDS; id++) {
        const char *name = NULL;
        if (name_of(DRIVER_API, id, &name) != 0 || !name)
            continue;
        for (int i = 0; i < FUNCTION_COUNT; i++) {
            if (strcmp(FUNCTIONS[i].name, name) == 0) {
                function_of[id] = (int16_t)(i + 1);
                known++;
            }
        }
    }
    return known;
}

/* The driver calls this at cuInit; 1 is success. */
int InitializeInjection(void) {
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&begun))
        return 1;
    const char *path = getenv("COUNT_CUPTI");
    void *cupti = dlopen(path ? path : "libcupti.so", RTLD_NOW);
    if (!cupti)
        return fail("CUPTI", dlerror());
    subscribe_fn *subscribe = (subscribe_fn *)dlsym(cupti, "cuptiSubscribe");
    enable_fn *enable = (enable_fn *)dlsym(cupti, "cuptiEnableCallback");
    name_fn *name_of = (name_fn *)dlsym(cupti, "cuptiGetCallbackName");
    if (!subscribe || !enable || !name_of)
        return fail("CUPTI", "a function is missing");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver)
        is_capturing = (int (*)(void *, int *))dlsym(driver, "cuStreamIsCapturing");
    if (!is_capturing)
        return fail("libcuda.so.1", "no cuStreamIsCapturing");
    if (!learn(name_of))
        return fail("CUPTI", "knows no function by name");
    void *subscriber = NULL;
    int rc = subscribe(&subscriber, on_call, NULL);
    for (uint32_t id = 1; rc == 0 && id < MAX_IDS; id++)
        if (function_of[id])
            rc = enable(1, subscriber, DRIVER_API, id);
    if (rc != 0) {
        fprintf(stderr, "count: CUPTI refuses: error %d\n", rc);
        return 0;
    }
    pthread_atfork(NULL, NULL, forget);
    atexit(report);
    return 1;
}
