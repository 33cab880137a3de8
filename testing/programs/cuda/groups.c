/* Streams of three priorities in one process: groups order | cycle | spin | mix | one | late.
 * order: a thread for each, all as busy as they can; tells by the device's own clock who came when.
 * cycle: each stream waits for what the one before it did last, round and round, beside another busy thread.
 * spin: two streams that wait on the device for words that the other one writes, once it is told.
 * mix: everything that orders commands, from a thread for each; the lines are the same on every device.
 * one: one thread serves all three, and many more of the least priority, when it is told, and ends when it is told.
 * late: a second group comes when it is told, and waits for what the first one gave before. */
#include "cu.h"
#include <stdatomic.h>

enum { STREAMS = 3, BATCHES = 60, BATCH = 4, US = 200, LAPS = 20, SPINS = 10, ROUNDS = 40, MORE = 24, N = 256 };

static CUstream streams[STREAMS]; /* the least urgent first */
static CUdeviceptr page;
static volatile uint64_t *words;
static pthread_barrier_t start;

static void make_streams(void)
{
    for (int i = 0; i < STREAMS; i++) {
        OK(cuStreamCreateWithPriority(&streams[i], NON_BLOCKING, -i));
        /* Its group comes to be with its first command. */
        OK(launch(empty, streams[i], NULL));
        OK(cuStreamSynchronize(streams[i]));
    }
}

static void run_threads(int count, void *(*works)(void *))
{
    pthread_t threads[STREAMS];
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (intptr_t i = 0; i < count; i++) {
        pthread_create(&threads[i], NULL, works, (void *)i);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Batch after batch, one always given ahead; when each ended goes into `ends`. */
static uint64_t ends[STREAMS][BATCHES];

static void *batches(void *number)
{
    int me = (int)(intptr_t)number;
    CUevent reached[2];
    OK(cuCtxSetCurrent(context));
    OK(cuEventCreate(&reached[0], DISABLE_TIMING));
    OK(cuEventCreate(&reached[1], DISABLE_TIMING));
    pthread_barrier_wait(&start);
    for (int b = 0; b < BATCHES; b++) {
        for (int k = 0; k < BATCH; k++) {
            OK(launch_spin(streams[me], US));
        }
        OK(launch_stamp(streams[me], page + 8u * (unsigned)(me * BATCHES + b)));
        OK(cuEventRecord(reached[b % 2], streams[me]));
        if (b) {
            OK(cuEventSynchronize(reached[(b + 1) % 2]));
        }
    }
    OK(cuStreamSynchronize(streams[me]));
    memcpy(ends[me], (void *)&words[me * BATCHES], sizeof ends[me]);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A line for each stream, the least urgent first: how many of its batches ended while each of the others was at work,
 * and the device time from batch to batch, median and 99th percentile, in us. */
static void order(void)
{
    run_threads(STREAMS, batches);
    for (int i = 0; i < STREAMS; i++) {
        uint64_t gaps[BATCHES - 1];
        printf("stream %d", i);
        for (int other = 0; other < STREAMS; other++) {
            int within = 0;
            for (int b = 0; b < BATCHES; b++) {
                within += ends[i][b] >= ends[other][0] && ends[i][b] <= ends[other][BATCHES - 1];
            }
            printf(" %d", within);
        }
        for (int b = 1; b < BATCHES; b++) {
            gaps[b - 1] = ends[i][b] - ends[i][b - 1];
        }
        qsort(gaps, BATCHES - 1, sizeof *gaps, by_value);
        printf(" p50 %.0f p99 %.0f\n", gaps[BATCHES / 2] / 1e3, gaps[BATCHES - 2] / 1e3);
    }
}

static atomic_int over;

static void *busy(void *unused)
{
    OK(cuCtxSetCurrent(context));
    while (!atomic_load(&over)) {
        for (int k = 0; k < BATCH; k++) {
            OK(launch_spin(streams[1], US));
        }
        OK(cuStreamSynchronize(streams[1]));
    }
    return unused;
}

/* The sum goes from stream to stream, doubled by each: only in order is it right. */
static int ring(void)
{
    CUevent event;
    CUdeviceptr x;
    float sum = 0, wanted = 1;
    OK(cuEventCreate(&event, DISABLE_TIMING));
    OK(cuMemAlloc_v2(&x, 4));
    OK(launch_fill(streams[0], x, 1, 1));
    OK(cuEventRecord(event, streams[0]));
    for (int lap = 0; lap < LAPS; lap++) {
        for (int i = STREAMS - 1; i >= 0; i--) {
            OK(cuStreamWaitEvent(streams[i], event, 0));
            OK(launch_spin(streams[i], 50));
            OK(launch_axpy(streams[i], x, x, 1, 1));
            OK(cuEventRecord(event, streams[i]));
            wanted *= 2;
        }
    }
    OK(cuEventSynchronize(event));
    OK(cuMemcpyDtoH_v2(&sum, x, 4));
    OK(cuMemFree_v2(x));
    OK(cuEventDestroy_v2(event));
    return sum == wanted;
}

static void cycle(void)
{
    pthread_t thread;
    CHECK("events in a cycle", ring());
    pthread_create(&thread, NULL, busy, NULL);
    CHECK("beside a busy middle one", ring());
    atomic_store(&over, 1);
    pthread_join(thread, NULL);
}

/* As ranks do: tell the other one, then wait for it, on the device. */
static void *rank(void *number)
{
    int me = (int)(intptr_t)number;
    OK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&start);
    for (int i = 1; i <= SPINS; i++) {
        CUstream s = streams[me ? STREAMS - 1 : 0];
        OK(launch_spin(s, 50));
        OK(cuStreamWriteValue32_v2(s, page + 8u * (unsigned)me, (uint32_t)i, 0));
        OK(cuStreamWaitValue32_v2(s, page + 8u * (unsigned)!me, (uint32_t)i, WAIT_GEQ));
        OK(launch_spin(s, 50));
        OK(cuStreamSynchronize(s));
    }
    return NULL;
}

static float sums[STREAMS];
static CUevent events[STREAMS];

static void *mixes(void *number)
{
    int me = (int)(intptr_t)number, next = (me + 1) % STREAMS;
    CUstream s = streams[me];
    CUdeviceptr x, one;
    float back[N];
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&x, sizeof back));
    OK(cuMemAlloc_v2(&one, sizeof back));
    OK(launch_fill(s, x, N, 0));
    OK(launch_fill(s, one, N, 1));
    OK(cuStreamSynchronize(s));
    pthread_barrier_wait(&start);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr other;
        OK(launch_spin(s, 20));
        OK(launch_axpy(s, x, one, N, (float)(me + 1)));
        OK(cuEventRecord(events[me], s));
        OK(cuStreamWaitEvent(s, events[next], 0));
        switch (i % 8) {
        case 0: OK(cuEventSynchronize(events[next])); break;
        case 1: OK(launch(empty, NULL, NULL)); break;
        case 2: OK(cuStreamSynchronize(streams[next])); break;
        case 3:
            OK(cuMemAlloc_v2(&other, 64));
            OK(cuMemFree_v2(other));
            break;
        case 4:
            OK(cuStreamSynchronize(s));
            OK(cuMemcpyDtoH_v2(back, x, sizeof back));
            break;
        case 5: OK(cuCtxSynchronize()); break;
        case 6: OK(launch(empty, PER_THREAD, NULL)); break;
        }
    }
    OK(cuMemcpyDtoHAsync_v2(back, x, sizeof back, s));
    OK(cuStreamSynchronize(s));
    sums[me] = back[N - 1];
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(one));
    return NULL;
}

static void mix(void)
{
    for (int i = 0; i < STREAMS; i++) {
        OK(cuEventCreate(&events[i], DISABLE_TIMING));
    }
    run_threads(STREAMS, mixes);
    for (int i = 0; i < STREAMS; i++) {
        check_that(sums[i] == (float)(ROUNDS * (i + 1)), "stream %d: %.0f", i, sums[i]);
    }
}

/* Waits for a line, so that a rival can come, or somebody look. */
static void told(void)
{
    char line[8];
    puts("ready");
    fflush(stdout);
    CHECK("told to go on", fgets(line, sizeof line, stdin) != NULL);
}

static void one(void)
{
    CUdeviceptr x;
    CUstream more[MORE];
    float sum;
    for (int i = 0; i < MORE; i++) {
        OK(cuStreamCreateWithPriority(&more[i], NON_BLOCKING, 0));
    }
    told();
    OK(cuMemAlloc_v2(&x, 4));
    OK(launch_fill(streams[0], x, 1, 1));
    for (int i = 0; i < ROUNDS; i++) {
        for (int which = 0; which < STREAMS; which++) {
            OK(launch_spin(streams[which], US));
            OK(launch(empty, streams[which], NULL));
        }
        for (int which = 0; which < MORE; which++) {
            OK(launch(empty, more[which], NULL));
        }
    }
    for (int which = 0; which < STREAMS; which++) {
        OK(cuStreamSynchronize(streams[which]));
    }
    OK(cuMemcpyDtoH_v2(&sum, x, 4));
    CHECK("one thread, three streams", sum == 1);
    told();
}

static CUevent reached;

static void *gives(void *unused)
{
    OK(cuCtxSetCurrent(context));
    for (int i = 1; !atomic_load(&over); i++) {
        OK(launch_spin(streams[0], 100));
        OK(cuEventRecord(reached, streams[0]));
        if (i % 64 == 0) {
            OK(cuStreamSynchronize(streams[0]));
        }
    }
    return unused;
}

/* While there is one group, what the driver has may be held on the device; then another one comes and waits for it. */
static void late(void)
{
    pthread_t thread;
    OK(cuEventCreate(&reached, DISABLE_TIMING));
    OK(cuStreamCreateWithPriority(&streams[0], NON_BLOCKING, 0));
    pthread_create(&thread, NULL, gives, NULL);
    told();
    OK(cuStreamCreateWithPriority(&streams[1], NON_BLOCKING, -2));
    OK(cuStreamWaitEvent(streams[1], reached, 0));
    OK(launch(empty, streams[1], NULL));
    OK(cuStreamSynchronize(streams[1]));
    CHECK("an urgent stream behind what was held", 1);
    OK(cuEventSynchronize(reached));
    OK(cuCtxSynchronize());
    CHECK("a thread that waits for it", 1);
    atomic_store(&over, 1);
    told();
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "mix";
    cu_start();
    words = pinned(sizeof ends, &page);
    if (!strcmp(mode, "late")) {
        late();
        CHECKS_DONE;
    }
    make_streams();
    if (!strcmp(mode, "order")) {
        order();
    } else if (!strcmp(mode, "cycle")) {
        cycle();
    } else if (!strcmp(mode, "spin")) {
        told();
        run_threads(2, rank);
        CHECK("kernels that wait for each other", words[0] == SPINS && words[1] == SPINS);
    } else if (!strcmp(mode, "mix")) {
        mix();
    } else if (!strcmp(mode, "one")) {
        one();
    } else {
        fprintf(stderr, "groups order | cycle | spin | mix | one | late\n");
        return 2;
    }
    CHECKS_DONE;
}
