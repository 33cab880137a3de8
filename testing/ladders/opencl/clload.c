/*
 * Load programs for measurements, of the two kinds that share a device:
 *
 *     clload calibrate --calibrate-file F
 *     clload lc --kernels 5 --us 1000 --period-us 20000 --requests 500 [--calibrate-file F]
 *     clload be --us 200 --batch 64 --secs 10 [--calibrate-file F]
 *
 * `lc` is latency-critical: a request of some kernels arrives every period, whether or not the one before is done; its
 * latency runs from that moment, so a late start counts. It prints {"n","p50_ms","p99_ms","max_ms","enqueues",...}.
 * `be` is best-effort: batch after batch of kernels, waiting for each batch, until the time is over (`--secs 0`: until
 * SIGTERM). It prints {"done","per_s","enqueues",...}.
 *
 * A kernel computes for about `--us` microseconds on all compute units. How many iterations that takes is measured once
 * and kept in the calibration file, so that runs to be compared do the same work. Results are checked.
 * `clload: ready` on stderr says that the load begins now; SIGTERM ends it early with the figures so far.
 * Exit codes: 1 a wrong result or a failed call, 2 bad arguments, 3 no device.
 */
#include "../../programs/opencl/check.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <time.h>

/* out[i] gains the i-th value of a chain that no compiler shortens; the host knows it in closed form. */
static const char *const source =
    "kernel void spin(global uint *out, uint iterations) {\n"
    "    uint i = get_global_id(0);\n"
    "    uint x = i;\n"
    "    for (uint n = 0; n < iterations; n++) x = x * 1664525u + 1013904223u;\n"
    "    out[i] += x;\n"
    "}\n";

enum { LOCAL = 8, GROUPS_A_UNIT = 8, WARM_UP = 10 };

struct options {
    long kernels, us, period_us, requests, batch;
    double secs;
    const char *file;
};

static size_t items;
static cl_uint iterations;
static cl_uint launches; /* of the kernel, all with the same `iterations` */
static unsigned long enqueues;
static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem out;
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void launch(void)
{
    size_t local = LOCAL;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &local, 0, NULL, NULL));
    launches++;
    enqueues++;
}

static void clear(cl_uint with_iterations)
{
    cl_uint zero = 0;
    iterations = with_iterations;
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    OK(clSetKernelArg(kernel, 1, sizeof iterations, &iterations));
    OK(clEnqueueFillBuffer(queue, out, &zero, sizeof zero, 0, items * sizeof zero, 0, NULL, NULL));
    OK(clFinish(queue));
    enqueues++;
    launches = 0;
}

/* Holds the device's sums against the closed form: `iterations` steps are one affine map, found by squaring. */
static void verify(void)
{
    cl_uint a = 1, b = 0, step_a = 1664525u, step_b = 1013904223u;
    for (cl_uint n = iterations; n; n >>= 1) {
        if (n & 1) {
            b = b * step_a + step_b;
            a = a * step_a;
        }
        step_b = step_b * step_a + step_b;
        step_a = step_a * step_a;
    }
    cl_uint *sums = malloc(items * sizeof *sums);
    CHECK(sums);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, items * sizeof *sums, sums, 0, NULL, NULL));
    enqueues++;
    for (size_t i = 0; i < items; i++)
        CHECK(sums[i] == launches * (a * (cl_uint)i + b));
    free(sums);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Iterations per microsecond, from the fastest of several kernels of a few milliseconds: others' work only ever slows. */
static double measure(void)
{
    enum { ROUNDS = 40 };
    double times[ROUNDS];
    cl_uint count = 1000;
    for (;;) {
        clear(count);
        double begin = now_us();
        launch();
        OK(clFinish(queue));
        if (now_us() - begin > 5000 || count > 1u << 30)
            break;
        count *= 2;
    }
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_us();
        launch();
        OK(clFinish(queue));
        times[i] = now_us() - begin;
    }
    verify();
    qsort(times, ROUNDS, sizeof *times, ascending);
    return count / times[1];
}

static double calibration(const char *path)
{
    double per_us = 0;
    FILE *in = path ? fopen(path, "r") : NULL;
    if (in) {
        int read = fscanf(in, "{\"iterations_per_us\":%lf}", &per_us);
        fclose(in);
        if (read == 1 && per_us > 0)
            return per_us;
        fprintf(stderr, "clload: %s is no calibration file; remove it to calibrate anew\n", path);
        exit(2);
    }
    per_us = measure();
    if (path) {
        FILE *to = fopen(path, "w");
        if (!to || fprintf(to, "{\"iterations_per_us\":%.6f}\n", per_us) < 0 || fclose(to) != 0) {
            fprintf(stderr, "clload: %s: %s\n", path, strerror(errno));
            exit(3);
        }
    }
    return per_us;
}

static void sleep_until(double us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1e6)};
    t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR && !stop)
        ;
}

/* The value below which a share of the sorted values lies (nearest rank). */
static double quantile(const double *sorted, long n, double share)
{
    long rank = (long)ceil(share * (double)n);
    return sorted[rank < 1 ? 0 : rank - 1];
}

static void latency_critical(const struct options *o)
{
    double *latency = malloc((size_t)o->requests * sizeof *latency);
    CHECK(latency);
    double start = now_us() + (double)o->period_us;
    long n = 0;
    for (long i = -WARM_UP; i < o->requests && !stop; i++) {
        double arrival = start + (double)(i + WARM_UP) * (double)o->period_us;
        sleep_until(arrival);
        for (long k = 0; k < o->kernels; k++)
            launch();
        OK(clFinish(queue));
        if (i >= 0)
            latency[n++] = (now_us() - arrival) / 1e3;
    }
    verify();
    if (n == 0) { /* ended by a signal during the warm-up */
        printf("{\"n\":0,\"p50_ms\":null,\"p99_ms\":null,\"max_ms\":null,\"enqueues\":%lu}\n", enqueues);
        free(latency);
        return;
    }
    qsort(latency, (size_t)n, sizeof *latency, ascending);
    printf(
        "{\"n\":%ld,\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"max_ms\":%.4f,\"enqueues\":%lu,\"kernels\":%ld,\"us\":%ld,"
        "\"period_us\":%ld,\"iterations\":%u}\n",
        n, quantile(latency, n, 0.5), quantile(latency, n, 0.99), latency[n - 1], enqueues, o->kernels, o->us,
        o->period_us, iterations);
    free(latency);
}

static void best_effort(const struct options *o)
{
    unsigned long done = 0;
    for (long k = 0; k < o->batch; k++) /* warm-up */
        launch();
    OK(clFinish(queue));
    double start = now_us(), end = start;
    while (!stop && (o->secs == 0 || end - start < o->secs * 1e6)) {
        for (long k = 0; k < o->batch; k++)
            launch();
        OK(clFinish(queue));
        done += (unsigned long)o->batch;
        end = now_us();
    }
    verify();
    printf(
        "{\"done\":%lu,\"per_s\":%.3f,\"enqueues\":%lu,\"secs\":%.3f,\"us\":%ld,\"batch\":%ld,\"iterations\":%u}\n",
        done, end > start ? (double)done / (end - start) * 1e6 : 0.0, enqueues, (end - start) / 1e6, o->us, o->batch,
        iterations);
}

static void usage(const char *wrong)
{
    fprintf(
        stderr,
        "clload: %s\nusage: clload calibrate --calibrate-file F\n"
        "       clload lc [--kernels 5] [--us 1000] [--period-us 20000] [--requests 500] [--calibrate-file F]\n"
        "       clload be [--us 200] [--batch 64] [--secs 10] [--calibrate-file F]\n",
        wrong);
    exit(2);
}

static void parse(int argc, char **argv, struct options *o)
{
    struct {
        const char *name;
        long *value;
    } numbers[] = {
        {"--kernels", &o->kernels},     {"--us", &o->us},       {"--period-us", &o->period_us},
        {"--requests", &o->requests}, {"--batch", &o->batch},
    };
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc)
            usage("an option without its value");
        char *rest = "";
        int known = 1;
        if (strcmp(argv[i], "--calibrate-file") == 0) {
            o->file = argv[i + 1];
        } else if (strcmp(argv[i], "--secs") == 0) {
            o->secs = strtod(argv[i + 1], &rest);
            known = o->secs >= 0;
        } else {
            known = 0;
            for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
                if (strcmp(argv[i], numbers[k].name) == 0) {
                    *numbers[k].value = strtol(argv[i + 1], &rest, 10);
                    known = *numbers[k].value > 0;
                }
        }
        if (!known || *rest)
            usage("unknown option or a value that is no positive number");
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int lc = strcmp(mode, "lc") == 0, be = strcmp(mode, "be") == 0, calibrate = strcmp(mode, "calibrate") == 0;
    struct options o = {
        .kernels = 5, .us = be ? 200 : 1000, .period_us = 20000, .requests = 500, .batch = 64, .secs = 10};
    if (!lc && !be && !calibrate)
        usage("the first argument is calibrate, lc or be");
    parse(argc, argv, &o);
    if (calibrate && !o.file)
        usage("calibrate needs --calibrate-file");

    cl_uint platforms = 0, units = 1;
    if (clGetPlatformIDs(0, NULL, &platforms) != CL_SUCCESS || platforms == 0) {
        fputs("clload: no OpenCL platform\n", stderr);
        return 3;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    setup();
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
    queue = queue_with(0);
    kernel = kernel_from(source, "spin");
    items = (size_t)units * GROUPS_A_UNIT * LOCAL;
    out = buffer_of(items * sizeof(cl_uint), NULL);

    double per_us = calibration(o.file);
    double wanted = per_us * (double)o.us;
    clear(wanted < 1 ? 1 : wanted > 4e9 ? 4000000000u : (cl_uint)wanted);
    fputs("clload: ready\n", stderr);
    if (lc)
        latency_critical(&o);
    else if (be)
        best_effort(&o);
    else
        printf("{\"iterations_per_us\":%.6f}\n", per_us);
    OK(clReleaseMemObject(out));
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
    return 0;
}
