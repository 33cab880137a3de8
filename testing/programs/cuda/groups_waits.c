/* An urgent thread and one that is not, in one process, told what to do by lines on stdin.
 * The other thread gives kernels to a stream of the least priority, on and on ("low GIVEN" answers "count"). A line
 * that names something to wait for has the urgent thread do that once, with work of its own around it, and is answered by
 * "done NAME". "end", or the end of stdin, ends the program. */
#include "cu.h"
#include <stdatomic.h>

static CUstream high, low, low_too;
static CUevent event;
static CUdeviceptr at;
static atomic_long given;
static atomic_int ending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int locking;

static void works(CUstream s)
{
    OK(launch_spin(s, 100));
    OK(launch(empty, s, NULL));
}

static void *less_urgent(void *unused)
{
    OK(cuCtxSetCurrent(context));
    while (!atomic_load(&ending)) {
        int locks = atomic_load(&locking);
        if (locks) {
            pthread_mutex_lock(&lock);
        }
        works(low);
        if (locks) {
            pthread_mutex_unlock(&lock);
        }
        OK(cuStreamSynchronize(low));
        atomic_fetch_add(&given, 1);
    }
    return unused;
}

/* What waits for work of the less urgent group, or orders it. */
static void waits_event(void)
{
    works(low_too);
    OK(cuEventRecord(event, low_too));
    OK(cuEventSynchronize(event));
}

static void waits_on_device(void)
{
    works(low_too);
    OK(cuEventRecord(event, low_too));
    OK(cuStreamWaitEvent(high, event, 0));
}

static void waits_stream(void)
{
    works(low_too);
    OK(cuStreamSynchronize(low_too));
    OK(cuStreamSynchronize(low));
}

static void waits_context(void)
{
    works(low_too);
    OK(cuCtxSynchronize());
}

static void launches_legacy(void)
{
    works(low_too);
    works(NULL);
    OK(cuStreamSynchronize(NULL));
}

static void copies(void)
{
    float back;
    works(low_too);
    OK(cuMemcpyDtoH_v2(&back, at, sizeof back));
}

/* What may wait for the device on the way. */
static void frees(void)
{
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 1 << 16));
    OK(cuMemFree_v2(p));
}

static void frees_later(void)
{
    CUdeviceptr p, q;
    OK(cuMemAlloc_v2(&p, 1 << 16));
    OK(cuMemAlloc_v2(&q, 1 << 16));
    OK(cuMemFreeAsync(p, low_too));
    OK(cuMemFreeAsync(q, high));
}

static void loads(void)
{
    CUmodule other;
    CUfunction function;
    OK(cuModuleLoadData(&other, KERNELS));
    OK(cuModuleGetFunction(&function, other, "spin"));
    OK(cuModuleUnload(other));
}

static void changes_streams(void)
{
    CUstream s;
    OK(cuStreamCreateWithPriority(&s, 0, 0));
    OK(cuStreamDestroy_v2(s));
}

static void changes_contexts(void)
{
    CUcontext other;
    CUstream s;
    OK(cuCtxCreate_v2(&other, 0, device));
    OK(cuStreamCreateWithPriority(&s, 0, -5));
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(context));
}

/* On the host, for a lock that the other thread holds while it gives its kernels, from the first time on. */
static void waits_lock(void)
{
    atomic_store(&locking, 1);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static const struct { const char *name; void (*does)(void); } THINGS[] = {
    { "event", waits_event }, { "device", waits_on_device }, { "stream", waits_stream }, { "context", waits_context },
    { "legacy", launches_legacy }, { "copy", copies }, { "lock", waits_lock }, { "free", frees },
    { "freeasync", frees_later }, { "load", loads }, { "streams", changes_streams }, { "contexts", changes_contexts }
};
enum { COUNT = sizeof THINGS / sizeof *THINGS, TIMES = 5 };

static int thing(const char *name)
{
    for (int i = 0; i < COUNT; i++) {
        if (!strcmp(name, THINGS[i].name)) {
            return i;
        }
    }
    return -1;
}

static void *helper(void *does)
{
    OK(cuCtxSetCurrent(context));
    ((void (*)(void))does)();
    return NULL;
}

/* "other NAME": a thread that has used no stream does it, while this one works. "bare NAME": this one, without work. */
static void one_more_thread(int i)
{
    pthread_t thread;
    pthread_create(&thread, NULL, helper, (void *)THINGS[i].does);
    for (int n = 0; n < 50; n++) {
        works(high);
        OK(cuStreamSynchronize(high));
    }
    pthread_join(thread, NULL);
}

/* Answers "count", until the end; other lines go through a pipe to the urgent thread. */
static int pipes[2];

static void *listens(void *unused)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "count\n")) {
            printf("low %ld\n", atomic_load(&given));
            fflush(stdout);
        } else if (write(pipes[1], line, strlen(line)) < 0) {
            break;
        }
    }
    close(pipes[1]);
    return unused;
}

int main(void)
{
    pthread_t listener, thread;
    char line[64], name[32];
    cu_start();
    OK(cuStreamCreateWithPriority(&low, NON_BLOCKING, 0));
    OK(cuStreamCreateWithPriority(&low_too, 0, 0));
    OK(cuStreamCreateWithPriority(&high, 0, -2));
    OK(cuEventCreate(&event, DISABLE_TIMING));
    OK(cuMemAlloc_v2(&at, 4));
    works(high);
    works(low_too);
    OK(cuCtxSynchronize());
    if (pipe(pipes)) {
        return 3;
    }
    FILE *lines = fdopen(pipes[0], "r");
    pthread_create(&listener, NULL, listens, NULL);
    pthread_create(&thread, NULL, less_urgent, NULL);
    puts("ready");
    fflush(stdout);
    while (lines && fgets(line, sizeof line, lines)) {
        int other = sscanf(line, "other %31s", name) == 1, bare = sscanf(line, "bare %31s", name) == 1;
        if (!other && !bare) {
            sscanf(line, "%31s", name);
        }
        int i = thing(name);
        if (i < 0) {
            fprintf(stderr, "unknown: %s\n", name);
            return 2;
        }
        for (int n = 0; n < (other || bare ? 1 : TIMES); n++) {
            if (other) {
                one_more_thread(i);
            } else if (bare) {
                THINGS[i].does();
            } else {
                works(high);
                THINGS[i].does();
                works(high);
                OK(cuStreamSynchronize(high));
            }
        }
        printf("done %s\n", name);
        fflush(stdout);
    }
    atomic_store(&ending, 1);
    pthread_join(thread, NULL);
    pthread_join(listener, NULL);
    OK(cuCtxSynchronize());
    CHECKS_DONE;
}
