/* What a scheduler adds to streams while a thread of the program waits for its turn: late_fences default | alone |
 * blocking | destroy | context. Each line on stdin is done by a thread of its own, which first prints "NAME TID" and in
 * the end "done NAME": launch (one kernel), synchronize or destroy (the first stream, or its context), release (what
 * the first stream waits for). "end" waits for them all, and for the device.
 * default: a kernel in the legacy stream; then a blocking stream waits for what the kernel in another one will write.
 * alone: a kernel in the legacy stream, and no blocking stream.
 * blocking: a kernel in a blocking stream; then the legacy stream waits to be released.
 * destroy, context: a stream that waits to be released and has room for no more; the kernel is for another stream. */
#include "cu.h"
#include <sys/syscall.h>

enum { FULL = 1024 }; /* commands of a stream that the driver takes */

static CUstream first, other;
static CUcontext ending;
static CUdeviceptr stamped, released;
static volatile uint64_t *word;

static void launches(void) { OK(launch_stamp(other, stamped)); }

static void synchronizes(void) { OK(cuStreamSynchronize(first)); }

static void destroys(void)
{
    if (ending) {
        OK(cuCtxDestroy_v2(ending));
    } else {
        OK(cuStreamDestroy_v2(first));
    }
}

static void releases(void) { *word = 1; }

static const struct { const char *name; void (*does)(void); } THINGS[] = {
    { "launch", launches }, { "synchronize", synchronizes }, { "destroy", destroys }, { "release", releases }
};
enum { COUNT = sizeof THINGS / sizeof *THINGS };

static void *one(void *number)
{
    int i = (int)(intptr_t)number;
    OK(cuCtxSetCurrent(context));
    printf("%s %ld\n", THINGS[i].name, (long)syscall(SYS_gettid));
    fflush(stdout);
    THINGS[i].does();
    printf("done %s\n", THINGS[i].name);
    fflush(stdout);
    return NULL;
}

static void told(void)
{
    pthread_t threads[COUNT];
    int count = 0;
    char line[32];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        line[strcspn(line, "\n")] = 0;
        for (intptr_t i = 0; i < COUNT && count < COUNT; i++) {
            if (!strcmp(line, THINGS[i].name)) {
                pthread_create(&threads[count++], NULL, one, (void *)i);
            }
        }
    }
    while (count) {
        pthread_join(threads[--count], NULL);
    }
}

static void fill_up(void)
{
    OK(cuStreamWaitValue64_v2(first, released, 1, WAIT_GEQ));
    for (int i = 1; i < FULL; i++) {
        OK(launch(empty, first, NULL));
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    cu_start();
    if (!strcmp(mode, "context")) {
        CUcontext primary = context;
        OK(cuCtxCreate_v2(&ending, 0, device));
        cu_functions();
        word = pinned(8, &released);
        OK(cuStreamCreate(&first, NON_BLOCKING));
        fill_up();
        OK(cuCtxSetCurrent(primary));
        cu_functions();
    } else {
        word = pinned(8, &released);
    }
    pinned(8, &stamped);
    OK(cuStreamCreate(&other, strcmp(mode, "default") ? NON_BLOCKING : 0));
    if (!strcmp(mode, "default")) {
        OK(cuStreamCreate(&first, 0));
        OK(launch(empty, LEGACY, NULL));
        OK(cuStreamWaitValue64_v2(first, stamped, 1, WAIT_GEQ));
    } else if (!strcmp(mode, "alone")) {
        OK(launch(empty, LEGACY, NULL));
    } else if (!strcmp(mode, "blocking")) {
        OK(cuStreamCreate(&first, 0));
        OK(launch(empty, first, NULL));
        OK(cuStreamWaitValue64_v2(LEGACY, released, 1, WAIT_GEQ));
    } else if (!strcmp(mode, "destroy")) {
        OK(cuStreamCreate(&first, NON_BLOCKING));
        fill_up();
    } else if (!ending) {
        fprintf(stderr, "late_fences default | alone | blocking | destroy | context\n");
        return 2;
    }
    told();
    OK(cuCtxSynchronize());
    CHECK("all is done", 1);
    CHECKS_DONE;
}
