/* Stands in for the CUDA driver in the tests of the benchmark scripts: the functions that the C programs here call, and
 * those that libxsched needs beside them. A stream is a thread that works in order; a kernel takes as long as it asks.
 * Nothing is shared with other processes: it shows that the scripts and the scheduler meet, not what a GPU does. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default"))) int

enum { STEPS_PER_US = 50, SMS = 4, THREADS_PER_SM = 2048, QUEUE = 4096 };
enum { ATTRIBUTE_SMS = 16, ATTRIBUTE_THREADS = 39, ATTRIBUTE_WAIT_VALUE = 123 };

struct op {
    enum { SPIN, STAMP, MARK, WRITE, WAIT, JOIN } kind;
    double issued;
    volatile uint32_t *word;
    uint32_t value;
    unsigned blocks;
    uint64_t *record;     /* of STAMP: the complement of its begin, and its end, in ns */
    struct stream *after; /* waits until that one has done so many */
    unsigned long count;
};
struct graph {
    struct op op;
    unsigned kernels;
};
struct stream {
    struct op ops[QUEUE];
    unsigned long issued, done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct graph *graph; /* while capturing */
};
struct event {
    struct stream *stream;
    unsigned long issued;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_until(double when) {
    struct timespec t = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {}
}

static int wait_done(struct stream *s, unsigned long count);

/* Gives when the operation ended. */
static double perform(const struct op *op, double free_since) {
    double begin = op->issued > free_since ? op->issued : free_since;
    uint32_t x = 1;
    switch (op->kind) {
    case STAMP:
        op->record[0] = ~(uint64_t)(begin * 1e9);
        __attribute__((fallthrough));
    case SPIN:
        for (uint32_t i = 0; i < op->value; i++) x = x * 1664525u + 1013904223u;
        for (unsigned b = 0; b < op->blocks; b++) op->word[b] += x;
        begin += (1 + (double)op->value / STEPS_PER_US) / 1e6;
        if (begin > now()) sleep_until(begin);
        if (op->kind == STAMP) op->record[1] = (uint64_t)(begin * 1e9);
        return begin;
    case WAIT:
        while (!(*op->word & op->value)) sleep_until(now() + 20e-6);
        return now();
    case JOIN:
        wait_done(op->after, op->count);
        return now();
    default:
        *op->word = op->value;
        return begin;
    }
}

static void *work(void *argument) {
    struct stream *s = argument;
    double free_since = 0;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->done == s->issued) pthread_cond_wait(&s->changed, &s->lock);
        struct op op = s->ops[s->done % QUEUE];
        pthread_mutex_unlock(&s->lock);
        free_since = perform(&op, free_since);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    return NULL;
}

static struct stream *new_stream(void) {
    struct stream *s = calloc(1, sizeof *s);
    pthread_t thread;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&thread, NULL, work, s);
    return s;
}

static struct stream *legacy;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_legacy(void) {
    legacy = new_stream();
}

static struct stream *real(struct stream *s) {
    pthread_once(&once, make_legacy);
    return (uintptr_t)s > 2 ? s : legacy;
}

static int issue(struct stream *stream, struct op op) {
    struct stream *s = real(stream);
    op.issued = now();
    pthread_mutex_lock(&s->lock);
    while (s->issued - s->done == QUEUE) pthread_cond_wait(&s->changed, &s->lock);
    s->ops[s->issued++ % QUEUE] = op;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int wait_done(struct stream *s, unsigned long count) {
    pthread_mutex_lock(&s->lock);
    while (s->done < count) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

API cuInit(unsigned flags) { return (int)flags; }
API cuDeviceGet(int *device, int ordinal) { return *device = 0, ordinal ? 101 : 0; }
API cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == ATTRIBUTE_SMS          ? SMS
             : attribute == ATTRIBUTE_THREADS    ? THREADS_PER_SM
             : attribute == ATTRIBUTE_WAIT_VALUE ? 1
                                                 : 0;
    return device;
}
API cuDeviceGetName(char *name, int size, int device) { return snprintf(name, (size_t)size, "stand-in"), device; }
API cuDeviceGetPCIBusId(char *name, int size, int device) {
    return snprintf(name, (size_t)size, "0000:ff:00.0"), device;
}
API cuDeviceGetUuid_v2(void *uuid, int device) { return memset(uuid, 7, 16), device; }
API cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &legacy, device; }
API cuDevicePrimaryCtxReset_v2(int device) { return device; }
API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = 1, device; }
API cuCtxSetCurrent(void *context) { return context != &legacy; }
API cuDeviceGetCount(int *count) { return *count = 1, 0; }
API cuCtxGetCurrent(void **context) { return *context = &legacy, 0; }
API cuCtxGetDevice(int *device) { return *device = 0; }
API cuCtxPushCurrent_v2(void *context) { return context != &legacy; }
API cuCtxPopCurrent_v2(void **context) { return *context = &legacy, 0; }
API cuCtxSynchronize(void) { return wait_done(real(NULL), real(NULL)->issued); }
API cuModuleLoadData(void **module, const void *image) { return *module = (void *)image, 0; }
API cuModuleGetFunction(const char **function, void *module, const char *name) {
    return *function = name, strstr(module, name) ? 0 : 500;
}
API cuLaunchKernel(const char *function, unsigned grid, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, struct stream *stream, void **parameters, void **extra) {
    (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    if (!strcmp(function, "nothing")) return 0;
    int stamps = !strcmp(function, "stamp"); /* has its record before what spin has */
    struct op op = {.kind = stamps ? STAMP : strcmp(function, "spin") ? MARK : SPIN, .blocks = grid};
    if (stamps) op.record = *(uint64_t **)parameters[0];
    op.word = *(uint32_t **)parameters[stamps];
    op.value = *(uint32_t *)parameters[stamps + 1];
    struct graph *graph = real(stream)->graph;
    if (!graph) return issue(stream, op);
    *graph = (struct graph){op, graph->kernels + 1};
    return 0;
}
API cuStreamCreate(struct stream **stream, unsigned flags) {
    (void)flags;
    return *stream = new_stream(), 0;
}
API cuStreamGetPriority(struct stream *stream, int *priority) { return *priority = stream ? 0 : 0; }
/* All that are made here are asked to be so. */
API cuStreamGetFlags(struct stream *stream, unsigned *flags) { return *flags = stream != NULL, 0; }
API cuStreamGetCtx(struct stream *stream, void **context) { (void)stream; return *context = &legacy, 0; }
API cuStreamIsCapturing(struct stream *stream, int *status) { return *status = real(stream)->graph != NULL, 0; }
API cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0; }
API cuStreamSynchronize(struct stream *stream) { return wait_done(real(stream), real(stream)->issued); }
API cuStreamWriteValue32_v2(struct stream *stream, uint32_t *word, uint32_t value, unsigned flags) {
    (void)flags;
    return issue(stream, (struct op){.kind = WRITE, .word = word, .value = value});
}
API cuStreamWaitValue32_v2(struct stream *stream, uint32_t *word, uint32_t value, unsigned flags) {
    return flags == 2 ? issue(stream, (struct op){.kind = WAIT, .word = word, .value = value}) : 801;
}
API cuEventCreate(struct event **event, unsigned flags) {
    (void)flags;
    return *event = calloc(1, sizeof **event), 0;
}
API cuEventRecord(struct event *event, struct stream *stream) {
    return *event = (struct event){real(stream), real(stream)->issued}, 0;
}
API cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
    (void)flags;
    return issue(stream, (struct op){.kind = JOIN, .after = event->stream, .count = event->issued});
}
API cuEventSynchronize(struct event *event) { return wait_done(event->stream, event->issued); }
API cuMemAlloc_v2(void **pointer, size_t bytes) { return *pointer = malloc(bytes), 0; }
API cuMemsetD32_v2(uint32_t *pointer, unsigned value, size_t count) {
    while (count--) *pointer++ = value;
    return 0;
}
API cuMemcpyDtoH_v2(void *host, void *device, size_t bytes) { return memcpy(host, device, bytes), 0; }
API cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    return *pointer = malloc(bytes), 0;
}
API cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) { return (void)host, (void)bytes, (void)flags, 0; }
API cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) { return *device = host, (int)flags; }
API cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    (void)mode;
    return stream->graph = calloc(1, sizeof *stream->graph), 0;
}
API cuStreamEndCapture(struct stream *stream, struct graph **graph) {
    *graph = stream->graph;
    return stream->graph = NULL, 0;
}
API cuGraphInstantiateWithFlags(struct graph **exec, struct graph *graph, unsigned long long flags) {
    return *exec = graph, (int)flags;
}
API cuGraphLaunch(struct graph *exec, struct stream *stream) {
    for (unsigned i = 0; i < exec->kernels; i++) issue(stream, exec->op);
    return 0;
}
API cuGetErrorName(int error, const char **name) { return *name = error == 500 ? "NOT_FOUND" : "SOME_ERROR", 0; }
