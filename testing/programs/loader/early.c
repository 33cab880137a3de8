/* A library whose constructor already works with the OpenCL library, directly, by look-up and from several threads. */
#define _GNU_SOURCE
#include "fakecl.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 8

static void *look_up(void *same)
{
    for (int i = 0; i < 200; i++) {
        if (dlsym(RTLD_DEFAULT, "clFinish") != same || !dlsym(RTLD_DEFAULT, "puts") ||
            dlsym(RTLD_DEFAULT, "clNoSuchFunction"))
            return same;
    }
    return NULL;
}

__attribute__((constructor)) static void early(void)
{
    void *queue = clCreateCommandQueue(NULL, NULL, 0, NULL);
    finish_fn found = (finish_fn)dlsym(RTLD_DEFAULT, "clFinish");
    printf("early: %s\n", found ? "found" : "not found");
    found(queue);
    clFinish(queue);
    clEnqueueNDRangeKernel(queue, NULL, 3, NULL, NULL, NULL, 0, NULL, NULL);
    fflush(stdout);
}

void early_threads(void)
{
    pthread_t threads[THREADS];
    void *bad = NULL, *result, *same = dlsym(RTLD_DEFAULT, "clFinish");
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, look_up, same);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &result);
        bad = bad ? bad : result;
    }
    printf("threads: %s\n", bad ? "differ" : "agree");
}
