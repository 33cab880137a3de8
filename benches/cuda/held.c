/* Commands that wait at a gate on the device, as those of a suspended program do, and what waits for them in turn: for what
 * that costs other programs.
 *
 *   held nothing | gate | event | barrier | load      stays until its input ends, then opens the gate
 *
 * gate: a few kernels behind one. event: another stream also waits for them. barrier: they are on a blocking stream, and the
 * default stream is used. load: a thread loads code meanwhile. Says {"ready":true,"returned":…}: whether the call that made
 * something else wait had returned a moment later. */
#include "gpu.h"
#include <pthread.h>

enum { COMMANDS = 4, STEPS = 1000, WAIT_AND = 2 };

static const char *what = "";
static volatile int returned;

static void *other(void *stream) {
    CUmodule module;
    CHECK(cuCtxSetCurrent(gpu.context));
    if (!strcmp(what, "load"))
        CHECK(cuModuleLoadData(&module, KERNELS));
    else if (strcmp(what, "nothing") && strcmp(what, "gate"))
        spin(stream, STEPS);
    returned = 1;
    return NULL;
}

int main(int argc, char **argv) {
    static const char *const kinds[] = {"nothing", "gate", "event", "barrier", "load"};
    int known = 0;
    for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(argv[1], kinds[i])) known = 1, what = kinds[i];
    if (!known) {
        fputs("usage: held nothing | gate | event | barrier | load\n", stderr);
        return 2;
    }
    gpu_open("held");
    CUstream stream, joining;
    CUevent event;
    CUdeviceptr gate;
    volatile uint32_t *word;
    pthread_t thread;
    int barrier = !strcmp(what, "barrier");
    CHECK(cuMemHostAlloc((void **)&word, sizeof *word, HOST_ALLOC_MAPPED));
    CHECK(cuMemHostGetDevicePointer_v2(&gate, (void *)word, 0));
    *word = 0;
    CHECK(cuStreamCreate(&stream, barrier ? 0 : STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&joining, STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, EVENT_DISABLE_TIMING));
    if (barrier) joining = NULL;
    spin(stream, STEPS);
    spin(joining, STEPS);
    CHECK(cuCtxSynchronize());
    if (strcmp(what, "nothing")) {
        CHECK(cuStreamWaitValue32_v2(stream, gate, 1, WAIT_AND));
        for (int i = 0; i < COMMANDS; i++) spin(stream, STEPS);
    }
    if (!strcmp(what, "event")) {
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(joining, event, 0));
    }
    if (pthread_create(&thread, NULL, other, joining)) fail("pthread_create", strerror(errno));
    sleep_until(now_s() + 0.3);
    printf("{\"ready\":true,\"returned\":%s}\n", returned ? "true" : "false");
    fflush(stdout);
    while (getchar() != EOF) {}
    *word = 1;
    pthread_join(thread, NULL);
    CHECK(cuCtxSynchronize());
    return 0;
}
