/* The workload of the platform suite (testing/xsched-e2e/tests/platform_suite.rs), the same for every platform: what the
 * platform's interface is called like is in PLATFORM, one of the headers beside this file, which defines
 *
 *   open_device()          a device, a stream, and CELLS floats on the device; exit status 3 without a device
 *   give(y, x, a, us)      a command of about that long: cells[y] += a * cells[x]; adds what it launched to `launched`
 *   put(cells), get(cells) copies to the device and back, behind what was given, and waits; likewise
 *   mark(n), await_mark(n) an event of the two, behind what was given; waits for it
 *   drain()                waits for the stream
 *   drained()              whether all is done, asked by another thread; 1 where there is no way to ask
 *
 *   work fixed N US        gives N commands, and says what they came to
 *   work steady US BATCH   gives batches back to back, each before the one before it is complete, and after each prints the
 *                          time of CLOCK_MONOTONIC in ns
 *   work requests US N     at a line "request" gives N commands and waits for them: "done BEGIN END", in ns; at "give" it
 *                          only gives them: "given"; at "sync" it waits: "synced"
 *
 * Lines on stdin of the latter two: "count" is answered with "given N", also while launches are held; "drained" with "drained 1"
 * when the device is done with those; "between A B" with the number of commands given in that time; "end", or the end of stdin, ends it. Every end compares the result with the
 * host's, exactly: a command that is lost, doubled or swapped shows. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 3, STAMPS = 1 << 22 };

static long launched;

#include PLATFORM

static float expected[CELLS] = { 0, 0, 1 };
static atomic_long given;
static long long stamps[STAMPS];

static long long clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

/* Counts in the first cell, sums the counts in the second, and begins that anew now and then, so that floats are exact. */
static void step(long us)
{
    long n = atomic_load(&given);
    int y = n % 2, x = n % 64 == 63 ? 1 : n % 2 ? 0 : 2;
    float a = n % 64 == 63 ? -1 : 1;
    expected[y] += a * expected[x];
    give(y, x, a, us);
    stamps[n % STAMPS] = clock_ns();
    atomic_store(&given, n + 1);
}

static int finish(void)
{
    float cells[CELLS];
    get(cells);
    int same = !memcmp(cells, expected, sizeof cells);
    printf("cells %.0f %.0f of %ld commands\nlaunched %d %ld\n%s\n", cells[0], cells[1], atomic_load(&given), (int)getpid(),
           launched, same ? "ok" : "wrong");
    return !same;
}

static int fixed(long n, long us)
{
    for (long i = 0; i < n; i++) {
        step(us);
        if (i % 16 == 15) {
            mark(i / 16 % 2);
            if (i > 16)
                await_mark((i / 16 + 1) % 2);
        }
    }
    return finish();
}

/* The lines that are answered whatever the launching thread does. */
static int answered(const char *line)
{
    long long from, to;
    long n = atomic_load(&given), among = 0;
    if (!strcmp(line, "count\n")) {
        printf("given %ld\n", n);
    } else if (!strcmp(line, "drained\n")) {
        printf("drained %d\n", drained());
    } else if (sscanf(line, "between %lld %lld", &from, &to) == 2) {
        for (long i = n > STAMPS ? n - STAMPS : 0; i < n; i++)
            among += stamps[i % STAMPS] >= from && stamps[i % STAMPS] <= to;
        printf("between %ld\n", among);
    } else {
        return 0;
    }
    fflush(stdout);
    return 1;
}

static atomic_int ending;

static void *listens(void *unused)
{
    char line[80];
    /* Unlocked: an exit() in another thread may wait for the lock of stdin (glibc 2.39), and so would never end. */
    while (fgets_unlocked(line, sizeof line, stdin) && strcmp(line, "end\n"))
        answered(line);
    atomic_store(&ending, 1);
    return unused;
}

static int steady(long us, long batch)
{
    pthread_t listener;
    say("ready");
    pthread_create(&listener, NULL, listens, NULL);
    for (long n = 0; !atomic_load(&ending); n++) {
        for (long i = 0; i < batch; i++)
            step(us);
        mark(n % 2);
        if (n > 0)
            await_mark((n + 1) % 2);
        printf("%lld\n", clock_ns());
        fflush(stdout);
    }
    pthread_join(listener, NULL);
    return finish();
}

static int requests(long us, long n)
{
    char line[80];
    say("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (answered(line))
            continue;
        long long begin = clock_ns();
        if (strcmp(line, "sync\n"))
            for (long i = 0; i < n; i++)
                step(us);
        if (strcmp(line, "give\n"))
            drain();
        if (!strcmp(line, "request\n"))
            printf("done %lld %lld\n", begin, clock_ns());
        else
            puts(!strcmp(line, "give\n") ? "given" : "synced");
        fflush(stdout);
    }
    return finish();
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long a = atol(argv[2]), b = atol(argv[3]);
    open_device();
    put(expected);
    if (!strcmp(argv[1], "fixed"))
        return fixed(a, b);
    if (!strcmp(argv[1], "steady"))
        return steady(a, b);
    return strcmp(argv[1], "requests") ? 2 : requests(a, b);
}
