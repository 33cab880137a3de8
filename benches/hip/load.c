/* One HIP program of the benchmark: works when it is told to.
 *
 *   load lc KERNEL         latency-critical: a request is 20 kernels of 100 us, then a wait
 *   load be KERNEL         best effort: kernels of 0.1 to 1 ms, eight of them between two waits
 *   load threads KERNEL    six latency-critical threads, two on streams of each priority
 *   load calibrate         what a product of matrices takes on this device
 *
 * KERNEL is `spin`, for simulated devices, or `gemm:BASE_NS:NS_PER_K` as calibrate gives it: a spinning kernel measures
 * time, which goes on while a real device does something else. These kernels are launched by a BLAS-like library; one
 * small kernel after each request or batch by the program itself, which counts them in device memory.
 *
 * Orders, one a line, and answers are those of ../cuda/roles.py: (start) IMPORTED; warm: WARM; go MODE START END RATE
 * (seconds of CLOCK_MONOTONIC): RESULT {json}; quit or the end of input: DONE {json}, after the results were checked.
 * Modes: paced, closed, flat, and alone: one thread of `threads`, paced. flat answers when how many kernels were done.
 *
 * Exit status: 0, 1 where a result is wrong, 2 for a wrong word, 3 where the device or the runtime refuses. */
#include "../../testing/programs/hip/hip.h"
#include <time.h>

struct handle;
int fakeblas_create(struct handle **);
int fakeblas_set_stream(struct handle *, void *);
int fakeblas_sgemm(struct handle *, unsigned, unsigned, unsigned, float *, float *, float *);
int fakeblas_destroy(struct handle *);
int fakeblas_spin(void *, uint64_t);

enum { NON_BLOCKING = 1, KERNELS = 20, DEPTH = 8, TASKS = 6, SIDE = 1024, MOST_K = 8192 };
#define LC_US 100.0
static const double be_us[] = {100, 200, 500, 1000};
static const int priorities[TASKS] = {-1, -1, 0, 0, 1, 1};
static const char *const names[] = {"high", "middle", "low"};

struct task {
    hipStream_t stream;
    struct handle *blas;
    float *product, *sum;
    unsigned last_k;
    long sums;                   /* small kernels given, which is what `sum` must be */
    long library;                /* commands that the library gave */
    double start, end, rate;     /* of the window, s and 1/s */
    double *found;               /* latencies in ms, or pairs of a time in s and a count */
    size_t count, room, late;
};

static struct { int gemm; double base_ns, ns_per_k; } kernel;
static float *ones_a, *ones_b;

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != SUCCESS) {                                                                                         \
            fprintf(stderr, "load: %s: %s\n", #call, hipGetErrorName(got_));                                           \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void sleep_until(double when)
{
    struct timespec t = {.tv_sec = (time_t)when, .tv_nsec = (long)((when - (time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {
    }
}

static void note(struct task *task, double value)
{
    if (task->count == task->room) {
        task->room = task->room ? 2 * task->room : 1024;
        task->found = realloc(task->found, task->room * sizeof *task->found);
        if (!task->found) {
            fputs("load: out of memory\n", stderr);
            exit(3);
        }
    }
    task->found[task->count++] = value;
}

/* ---- work ------------------------------------------------------------------------------------------------------- */

static void product(struct task *task, unsigned k)
{
    MUST(fakeblas_sgemm(task->blas, SIDE, SIDE, k, ones_a, ones_b, task->product));
    task->last_k = k;
    task->library++;
}

static void work(struct task *task, double us)
{
    if (!kernel.gemm) {
        MUST(fakeblas_spin(task->stream, (uint64_t)(us * 1e3)));
        task->library++;
        return;
    }
    double k = (us * 1e3 - kernel.base_ns) / kernel.ns_per_k;
    product(task, k < 1 ? 1 : k > MOST_K ? MOST_K : (unsigned)k);
}

/* The program's own kernel, then the wait for all. */
static void finish(struct task *task)
{
    MUST(run_axpy(1, task->sum + 1, task->sum, 1, task->stream));
    task->sums++;
    MUST(hipStreamSynchronize(task->stream));
}

static void request(struct task *task)
{
    for (int i = 0; i < KERNELS; i++) {
        work(task, LC_US);
    }
    finish(task);
}

/* Until the end of the window: at the rate, where a late start counts as latency, or one after the other. */
static void *requests(void *given)
{
    struct task *task = given;
    task->count = task->late = 0;
    for (double due = task->start;;) {
        if (now() < due) {
            sleep_until(due);
        }
        double begin = now();
        if (due >= task->end || begin >= task->end) {
            return NULL;
        }
        if (task->rate > 0 && begin - due > 1e-3) {
            begin = due;
            task->late++;
        }
        request(task);
        double done = now();
        note(task, (done - begin) * 1e3);
        due = task->rate > 0 ? due + 1 / task->rate : done;
    }
}

static void flat(struct task *task)
{
    task->count = 0;
    for (long done = 0; task->count == 0 || task->found[task->count - 2] < task->end;) {
        for (int i = 0; i < DEPTH; i++) {
            work(task, be_us[done++ % (sizeof be_us / sizeof *be_us)]);
        }
        finish(task);
        note(task, now());
        note(task, done);
    }
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static void share_operands(void)
{
    if (kernel.gemm) {
        unsigned n = SIDE * MOST_K;
        MUST(hipMalloc(&ones_a, n * sizeof *ones_a));
        MUST(hipMalloc(&ones_b, n * sizeof *ones_b));
        MUST(run_fill(ones_a, n, 1, 0));
        MUST(run_fill(ones_b, n, 1, 0));
        MUST(hipDeviceSynchronize());
    }
}

static void prepare(struct task *task, int priority)
{
    float begin[2] = {0, 1};
    MUST(hipStreamCreateWithPriority(&task->stream, NON_BLOCKING, priority));
    MUST(fakeblas_create(&task->blas));
    task->library++; /* it clears its workspace */
    MUST(fakeblas_set_stream(task->blas, task->stream));
    MUST(hipMalloc(&task->sum, sizeof begin));
    MUST(hipMemcpy(task->sum, begin, sizeof begin, HOST_TO_DEVICE));
    if (kernel.gemm) {
        MUST(hipMalloc(&task->product, SIDE * SIDE * sizeof *task->product));
    }
    request(task);
}

/* Whether all its kernels have run, in order, and the last product is right. */
static int is_right(struct task *task)
{
    float sum = 0, corner[2];
    size_t last = SIDE * SIDE - 1;
    MUST(hipMemcpy(&sum, task->sum, sizeof sum, DEVICE_TO_HOST));
    int right = sum == task->sums;
    if (kernel.gemm) {
        MUST(hipMemcpy(&corner[0], task->product, sizeof *corner, DEVICE_TO_HOST));
        MUST(hipMemcpy(&corner[1], task->product + last, sizeof *corner, DEVICE_TO_HOST));
        right &= corner[0] == task->last_k && corner[1] == task->last_k;
    }
    if (!right) {
        fprintf(stderr, "load: wrong result: the sum is %g after %ld kernels\n", sum, task->sums);
    }
    MUST(fakeblas_destroy(task->blas));
    MUST(hipStreamDestroy(task->stream));
    return right;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void list(struct task *tasks, int count)
{
    int any = 0;
    putchar('[');
    for (int t = 0; t < count; t++) {
        for (size_t i = 0; i < tasks[t].count; i++) {
            printf("%s%.4f", any++ ? "," : "", tasks[t].found[i]);
        }
    }
    putchar(']');
}

static void all_at_once(struct task *tasks)
{
    pthread_t threads[TASKS];
    for (int i = 0; i < TASKS; i++) {
        if (pthread_create(&threads[i], NULL, requests, &tasks[i]) != 0) {
            fputs("load: no thread\n", stderr);
            exit(3);
        }
    }
    for (int i = 0; i < TASKS; i++) {
        pthread_join(threads[i], NULL);
    }
    fputs("RESULT {\"groups\":{", stdout);
    for (int i = 0; i < 3; i++) {
        printf("%s\"%s\":", i ? "," : "", names[i]);
        list(tasks + 2 * i, 2);
    }
    printf("},\"rate\":%.4f}\n", tasks->rate);
}

static void go(const char *role, struct task *tasks, const char *mode, double start, double end, double rate)
{
    int threads = strcmp(role, "threads") == 0, paced = strcmp(mode, "paced") == 0;
    for (int i = 0; i < TASKS; i++) {
        tasks[i].start = start;
        tasks[i].end = end;
        tasks[i].rate = strcmp(mode, "closed") == 0 ? 0 : rate;
    }
    if (strcmp(mode, "flat") == 0) {
        flat(tasks);
        printf("RESULT {\"role\":\"%s\",\"mode\":\"flat\",\"marks\":", role);
        list(tasks, 1);
        puts("}");
    } else if (threads && paced) {
        all_at_once(tasks);
    } else {
        requests(tasks);
        printf("RESULT {\"role\":\"%s\",\"mode\":\"%s\",\"rate\":%.4f,\"late\":%zu,\"latency_ms\":", role, mode, rate,
               tasks->late);
        list(tasks, 1);
        puts("}");
    }
}

static int serve(const char *role)
{
    static struct task tasks[TASKS];
    int threads = strcmp(role, "threads") == 0, used = threads ? TASKS : 1, warm = 0, right = 1;
    char line[256], mode[16];
    double start, end, rate;
    puts("IMPORTED");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n") != 0) {
        if (strcmp(line, "warm\n") == 0 && !warm) {
            share_operands();
            for (int i = 0; i < used; i++) {
                prepare(&tasks[i], threads ? priorities[i] : 0);
            }
            MUST(hipDeviceSynchronize());
            warm = 1;
            puts("WARM");
        } else if (warm && sscanf(line, "go %15s %lf %lf %lf", mode, &start, &end, &rate) == 4) {
            go(role, tasks, mode, start, end, rate);
        } else {
            fprintf(stderr, "load: not an order: %s", line);
            return 2;
        }
        fflush(stdout);
    }
    long library = 0;
    for (int i = 0; warm && i < used; i++) {
        right &= is_right(&tasks[i]);
        library += tasks[i].library;
    }
    printf("DONE {\"library\":%ld}\n", library);
    fflush(stdout);
    return right ? 0 : 1;
}

/* Least time of a product in ns, of several tries with several in a row. */
static double product_ns(struct task *task, unsigned k)
{
    enum { TRIES = 7, ROW = 20 };
    double least = 1e18;
    for (int i = 0; i < TRIES; i++) {
        MUST(hipStreamSynchronize(task->stream));
        double begin = now();
        for (int j = 0; j < ROW; j++) {
            product(task, k);
        }
        MUST(hipStreamSynchronize(task->stream));
        double took = (now() - begin) * 1e9 / ROW;
        least = took < least ? took : least;
    }
    return least;
}

static int calibrate(void)
{
    static struct task task;
    const unsigned few = 256, many = 2048;
    kernel.gemm = 1;
    kernel.ns_per_k = 1e9; /* the first request: as little as there is */
    share_operands();
    prepare(&task, 0);
    product_ns(&task, many); /* clocks go up */
    double less = product_ns(&task, few), more = product_ns(&task, many);
    double ns_per_k = (more - less) / (many - few), base_ns = less - few * ns_per_k;
    if (!(ns_per_k > 0) || (be_us[3] * 1e3 - base_ns) / ns_per_k > MOST_K) {
        fprintf(stderr, "load: a product with k = %u takes %.0f ns, with %u %.0f ns: nothing to go by\n", few, less,
                many, more);
        return 3;
    }
    printf("RESULT {\"base_ns\":%.1f,\"ns_per_k\":%.4f}\n", base_ns, ns_per_k);
    return is_right(&task) ? 0 : 1;
}

int main(int count, char **words)
{
    const char *role = count > 1 ? words[1] : "";
    int is_role = strcmp(role, "lc") == 0 || strcmp(role, "be") == 0 || strcmp(role, "threads") == 0;
    int spins = count == 3 && strcmp(words[2], "spin") == 0;
    kernel.gemm = count == 3 && sscanf(words[2], "gemm:%lf:%lf", &kernel.base_ns, &kernel.ns_per_k) == 2;
    if (!(count == 2 && strcmp(role, "calibrate") == 0) && !(is_role && (spins || (kernel.gemm && kernel.ns_per_k > 0)))) {
        fputs("load: use load lc|be|threads spin|gemm:BASE_NS:NS_PER_K, or load calibrate\n", stderr);
        return 2;
    }
    int devices = 0, result = hipGetDeviceCount(&devices);
    if (result != SUCCESS || devices < 1) {
        fprintf(stderr, "load: no HIP device: %s\n", hipGetErrorName(result));
        return 3;
    }
    return is_role ? serve(role) : calibrate();
}
