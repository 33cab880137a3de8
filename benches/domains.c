/* Loads for `domains.py`: a program with a vendor's library, and one that does without. Built with -DSIM, -DOPENCL or -DCUDA;
 * with -DVENDOR it is the library, which launches by itself.
 *
 *     domains calibrate                       prints how many iterations of OpenCL's kernel take a microsecond
 *     domains library SECS RATE               a request to the library each 10 ms: 4 kernels of 250 us, waited for; meanwhile
 *                                             another thread keeps a stream of its own full of kernels of 200 us
 *     domains paced SECS RATE                 a request of its own each 17 ms: 5 kernels of 1 ms, waited for
 *
 * Prints {"latency_ms": [...], "own_per_s": N}; a request's latency runs from when it was due. */
#ifdef OPENCL
#include "../testing/programs/opencl/check.h"
#elif defined CUDA
#include "../testing/programs/cuda/cu.h"
#else
#include "../testing/programs/hazards/hazard.h"
#endif
#include <errno.h>
#include <pthread.h>
#include <time.h>

/* What one kernel needs. */
struct kernel {
    void *stream, *function;
    long us;
};

#ifdef OPENCL
enum { ITEMS = 64 };

static int give(const struct kernel *k)
{
    size_t items = ITEMS, local = 8;
    return clEnqueueNDRangeKernel(k->stream, k->function, 1, NULL, &items, &local, 0, NULL, NULL);
}
#elif defined CUDA
static int give(const struct kernel *k)
{
    uint64_t ns = (uint64_t)k->us * 1000;
    if (!cuLaunchKernel)
        cu_open();
    return cuLaunchKernel(k->function, 1, 1, 1, 1, 1, 1, 0, k->stream, (void *[]){ &ns }, NULL);
}
#else
static int give(const struct kernel *k)
{
    simKernel spin = { .op = simOpAddIndex, .count = 1, .duration_ns = (uint64_t)k->us * 1000, .y = k->function, .a = 1 };
    return simLaunchKernel(&spin, k->stream);
}
#endif

#ifdef VENDOR
int vendor_multiply(const struct kernel *k);

int vendor_multiply(const struct kernel *k)
{
    volatile int error = give(k);
    return error;
}
#else
int vendor_multiply(const struct kernel *k);

enum { MOST = 100000 };

static volatile int over;
static long own;
static double rate;

static void need(int error, const char *what)
{
    if (error != 0) {
        fprintf(stderr, "domains: %s gave %d\n", what, error);
        exit(3);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_until(double when)
{
    struct timespec t = { (time_t)when, (long)((when - (double)(time_t)when) * 1e9) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) { }
}

#ifdef OPENCL
static const char *const SOURCE =
    "kernel void spin(global uint *out, uint iterations) {\n"
    "    uint i = get_global_id(0), x = i;\n"
    "    for (uint n = 0; n < iterations; n++) x = x * 1664525u + 1013904223u;\n"
    "    out[i] += x;\n"
    "}\n";

static struct kernel made(long us)
{
    cl_uint iterations = (cl_uint)((double)us * rate);
    cl_kernel function = kernel_from(SOURCE, "spin");
    cl_mem out = buffer_of(ITEMS * sizeof(cl_uint), NULL);
    OK(clSetKernelArg(function, 0, sizeof out, &out));
    OK(clSetKernelArg(function, 1, sizeof iterations, &iterations));
    return (struct kernel){ queue_with(0), function, us };
}

static void wait_for(const struct kernel *k)
{
    OK(clFinish(k->stream));
}

/* By the fastest of several kernels: others' work only ever slows. */
static void calibrate(void)
{
    double least = 1e9;
    rate = 2000;
    struct kernel k = made(1000);
    for (int i = 0; i < 50; i++) {
        double begin = seconds();
        OK(give(&k));
        OK(clFinish(k.stream));
        least = seconds() - begin < least ? seconds() - begin : least;
    }
    printf("%.3f\n", 1000 * rate / (least * 1e6));
}
#elif defined CUDA
static void setup(void)
{
    cu_start();
}

static struct kernel made(long us)
{
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    return (struct kernel){ stream, spin, us };
}

static void wait_for(const struct kernel *k)
{
    OK(cuStreamSynchronize(k->stream));
}

static void calibrate(void)
{
    puts("1");
}
#else
static void setup(void)
{
}

static struct kernel made(long us)
{
    simStream stream;
    void *y;
    SIM(simStreamCreate(&stream));
    SIM(simMalloc(&y, sizeof(float)));
    return (struct kernel){ stream, y, us };
}

static void wait_for(const struct kernel *k)
{
    SIM(simStreamSynchronize(k->stream));
}

static void calibrate(void)
{
    puts("1");
}
#endif

static void *bulk(void *none)
{
    struct kernel k = made(200);
    while (!over) {
        for (int i = 0; i < 16; i++)
            need(give(&k), "a kernel of its own");
        wait_for(&k);
        own += 16;
    }
    return none;
}

static void requests(int (*launch)(const struct kernel *), int kernels, long us, double period, double secs)
{
    static double latency[MOST];
    struct kernel k = made(us);
    long n = 0;
    need(launch(&k), "a first kernel");
    wait_for(&k);
    for (double begin = seconds(), due = begin; due < begin + secs && n < MOST; due += period) {
        sleep_until(due);
        for (int i = 0; i < kernels; i++)
            need(launch(&k), "a kernel of a request");
        wait_for(&k);
        latency[n++] = (seconds() - due) * 1e3;
    }
    printf("{\"latency_ms\": [");
    for (long i = 0; i < n; i++)
        printf("%s%.3f", i ? ", " : "", latency[i]);
    printf("], ");
}

int main(int argc, char **argv)
{
    double secs = argc > 2 ? atof(argv[2]) : 0;
    pthread_t thread;
    setup();
    if (argc == 2 && !strcmp(argv[1], "calibrate")) {
        calibrate();
        return 0;
    }
    if (argc != 4 || secs <= 0 || (strcmp(argv[1], "library") && strcmp(argv[1], "paced")))
        return 2;
    rate = atof(argv[3]);
    int is_library = !strcmp(argv[1], "library");
    if (is_library)
        need(pthread_create(&thread, NULL, bulk, NULL), "pthread_create");
    if (is_library)
        requests(vendor_multiply, 4, 250, 0.010, secs);
    else
        requests(give, 5, 1000, 0.017, secs);
    over = 1;
    if (is_library)
        pthread_join(thread, NULL);
    printf("\"own_per_s\": %.1f}\n", (double)own / secs);
    return 0;
}
#endif
