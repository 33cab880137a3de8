/* Default streams of both kinds: the legacy one that all share, and one a thread through entry points that end in _ptsz
 * and _ptds, through cuGetProcAddress with the flag for them, and through the handles 1 and 2.
 *
 * Every thread runs chains of dependent kernels whose order shows in the result. Prints one line a check. */

#include <pthread.h>

#include "cuda_driver.h"

enum { WORDS = 4096, CHAIN = 200, THREADS = 4, PER_THREAD_FLAG = 2, CUDA_13_0 = 13000, CUDA_11_4 = 11040 };

static void *context, *kernel;

struct way {
    const char *name;
    launch_fn *launch;
    void *stream;
    int (*copy)(void *, device_ptr, size_t);
    int (*set)(device_ptr, unsigned, size_t);
    int (*synchronize)(void *);
};

struct work {
    const struct way *way;
    int wrong;
};

/* Chains on the thread's idea of the default stream; the copy comes after the chain without being told to. */
static void *thread(void *argument) {
    struct work *work = argument;
    const struct way *way = work->way;
    DRIVER(cuCtxSetCurrent, void *);
    DRIVER(cuMemAlloc_v2, device_ptr *, size_t);
    DRIVER(cuMemFree_v2, device_ptr);
    MUST(cuCtxSetCurrent(context));
    device_ptr data;
    unsigned words = WORDS;
    uint32_t *found = malloc(WORDS * sizeof *found);
    MUST(cuMemAlloc_v2(&data, WORDS * sizeof *found));
    MUST(way->set(data, 0, WORDS));
    for (unsigned factor = 1; factor <= CHAIN; factor++) {
        void *parameters[] = {&data, &words, &factor};
        MUST(way->launch(kernel, WORDS / 256, 1, 1, 256, 1, 1, 0, way->stream, parameters, NULL));
    }
    MUST(way->synchronize(way->stream));
    MUST(way->copy(found, data, WORDS * sizeof *found));
    for (unsigned i = 0; i < WORDS; i++)
        work->wrong += found[i] != stepped(i, 1, CHAIN);
    MUST(cuMemFree_v2(data));
    free(found);
    return NULL;
}

static int run(const struct way *way) {
    pthread_t threads[THREADS];
    struct work works[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        works[i] = (struct work){way, 0};
        if (pthread_create(&threads[i], NULL, thread, &works[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        wrong += works[i].wrong;
    }
    printf("%s %s\n", way->name, wrong ? "WRONG" : "right");
    return wrong != 0;
}

/* A function as cuGetProcAddress hands it out for the per-thread default stream. */
static void *asked(const char *name, int version) {
    DRIVER(cuGetProcAddress_v2, const char *, void **, int, uint64_t, int *);
    void *function = NULL;
    int status = 0;
    MUST(cuGetProcAddress_v2(name, &function, version, PER_THREAD_FLAG, &status));
    if (!function) {
        fprintf(stderr, "cuGetProcAddress has no %s\n", name);
        exit(1);
    }
    return function;
}

int main(void) {
    context = begin();
    kernel = load_kernel(STEP_PTX, "step");
    typedef int copy_fn(void *, device_ptr, size_t);
    typedef int set_fn(device_ptr, unsigned, size_t);
    typedef int sync_fn(void *);
    launch_fn *launch = (launch_fn *)driver_function("cuLaunchKernel");
    launch_fn *launch_ptsz = (launch_fn *)driver_function("cuLaunchKernel_ptsz");
    copy_fn *copy = (copy_fn *)driver_function("cuMemcpyDtoH_v2");
    copy_fn *copy_ptds = (copy_fn *)driver_function("cuMemcpyDtoH_v2_ptds");
    set_fn *set = (set_fn *)driver_function("cuMemsetD32_v2");
    set_fn *set_ptds = (set_fn *)driver_function("cuMemsetD32_v2_ptds");
    sync_fn *synchronize = (sync_fn *)driver_function("cuStreamSynchronize");
    sync_fn *synchronize_ptsz = (sync_fn *)driver_function("cuStreamSynchronize_ptsz");
    void *const handle_legacy = (void *)1, *const handle_per_thread = (void *)2;
    const struct way ways[] = {
        {"legacy", launch, NULL, copy, set, synchronize},
        {"legacy_by_handle", launch_ptsz, handle_legacy, copy, set, synchronize_ptsz},
        {"per_thread", launch_ptsz, NULL, copy_ptds, set_ptds, synchronize_ptsz},
        {"per_thread_by_handle", launch, handle_per_thread, copy_ptds, set_ptds, synchronize},
        {"per_thread_asked_11.4", (launch_fn *)asked("cuLaunchKernel", CUDA_11_4), NULL,
         (copy_fn *)asked("cuMemcpyDtoH", CUDA_11_4), (set_fn *)asked("cuMemsetD32", CUDA_11_4),
         (sync_fn *)asked("cuStreamSynchronize", CUDA_11_4)},
        {"per_thread_asked_13.0", (launch_fn *)asked("cuLaunchKernel", CUDA_13_0), NULL,
         (copy_fn *)asked("cuMemcpyDtoH", CUDA_13_0), (set_fn *)asked("cuMemsetD32", CUDA_13_0),
         (sync_fn *)asked("cuStreamSynchronize", CUDA_13_0)},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        failed |= run(&ways[i]);
    return failed;
}
