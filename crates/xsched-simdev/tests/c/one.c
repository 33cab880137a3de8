/* Scenarios of one process. */
#include "scenario.h"

static void order(void)
{
    enum { N = 64, ROUNDS = 50 };
    float *y, *x, got[N], want[N];
    simStream s[2];
    simEvent e;
    OK(simMalloc((void **)&y, sizeof got));
    OK(simMalloc((void **)&x, sizeof got));
    OK(simStreamCreate(&s[0]));
    OK(simStreamCreate(&s[1]));
    OK(simEventCreate(&e));
    OK(simMemsetAsync(y, 0, sizeof got, s[0]));
    launch(simOpFill, x, N, 3, 50, s[0]);
    memset(want, 0, sizeof want);
    for (int r = 0; r < ROUNDS; r++) { /* y passes from stream to stream, so any reordering shows */
        simStream from = s[r % 2], to = s[(r + 1) % 2];
        simKernel axpy = { .op = simOpAxpy, .count = N, .duration_ns = 20000, .x = x, .y = y, .a = (float)r };
        launch(simOpAddIndex, y, N, 0.5f, r % 3 * 30, from);
        OK(simLaunchKernel(&axpy, from));
        OK(simEventRecord(e, from));
        OK(simStreamWaitEvent(to, e));
        for (int i = 0; i < N; i++)
            want[i] = (want[i] * 0.5f + (float)i) + (float)r * 3;
    }
    float *host;
    OK(simHostAlloc((void **)&host, sizeof got));
    OK(simMemcpyAsync(host, y, sizeof got, s[ROUNDS % 2]));
    OK(simStreamSynchronize(s[ROUNDS % 2]));
    OK(simStreamQuery(s[ROUNDS % 2]));
    EXPECT(!memcmp(host, want, sizeof want));
    OK(simMemcpy(got, y, sizeof got));
    EXPECT(!memcmp(got, want, sizeof want));
    OK(simMemcpy(x, got, sizeof got)); /* back to the device, then within it */
    OK(simMemset(y, 0xff, sizeof got));
    OK(simMemcpy(y, x, sizeof got));
    OK(simMemcpy(want, got, sizeof got));
    OK(simMemcpy(got, y, sizeof got));
    EXPECT(!memcmp(got, want, sizeof want));
    /* set + fill + kernels, async copy, 3 copies from/to the host, 1 set, 1 copy within, 1 on the host, 1 back */
    simCounters c = counters();
    EXPECT(c.launched == 2 + 2 * ROUNDS + 1 + 6 && c.completed == c.launched && c.launched_total_device == c.launched);
    EXPECT(c.switches == 0);
}

static void errors(void)
{
    int n, dev;
    char name[64];
    void *p, *q, *function;
    simStream s, dead;
    simEvent e, never;
    simCounters c;
    uint64_t us;
    float ms;
    GIVES(simErrorInvalidValue, simInit(1));
    OK(simInit(0));
    OK(simDeviceGetCount(&n));
    EXPECT(n == 2);
    GIVES(simErrorInvalidValue, simDeviceGetCount(NULL));
    OK(simDeviceGetName(name, sizeof name, 1));
    EXPECT(!strcmp(name, "Simulated device 1"));
    OK(simDeviceGetName(name, 4, 0));
    EXPECT(!strcmp(name, "Sim"));
    GIVES(simErrorInvalidValue, simDeviceGetName(name, 0, 0));
    GIVES(simErrorInvalidValue, simDeviceGetName(name, 4, 2));
    GIVES(simErrorInvalidValue, simSetDevice(2));
    GIVES(simErrorInvalidValue, simSetDevice(-1));
    OK(simSetDevice(1));
    OK(simGetDevice(&dev));
    EXPECT(dev == 1);
    OK(simMalloc(&q, 16)); /* of device 1 */
    OK(simSetDevice(0));
    OK(simStreamCreate(&s));
    OK(simStreamCreate(&dead));
    OK(simStreamDestroy(dead));
    OK(simEventCreate(&e));
    OK(simEventCreate(&never));
    GIVES(simErrorInvalidHandle, simStreamSynchronize(dead));
    GIVES(simErrorInvalidHandle, simStreamDestroy(dead));
    GIVES(simErrorInvalidHandle, simStreamDestroy(NULL));
    GIVES(simErrorInvalidHandle, simStreamQuery((simStream)(void *)&n));
    GIVES(simErrorInvalidHandle, simStreamQuery((simStream)e));
    GIVES(simErrorInvalidHandle, simEventQuery((simEvent)s));
    GIVES(simErrorInvalidHandle, simEventRecord(NULL, s));
    GIVES(simErrorInvalidValue, simStreamCreate(NULL));
    GIVES(simErrorInvalidValue, simStreamCreateWithPriority(&dead, 3));
    OK(simStreamCreateWithPriority(&dead, -2));
    OK(simStreamGetPriority(dead, &n));
    EXPECT(n == -2);
    OK(simStreamGetPriority(NULL, &n));
    EXPECT(n == 0);
    OK(simEventQuery(never)); /* never recorded: nothing to wait for */
    OK(simEventSynchronize(never));
    OK(simStreamWaitEvent(s, never));
    OK(simEventRecord(e, s));
    OK(simEventSynchronize(e));
    GIVES(simErrorInvalidHandle, simEventElapsedTime(&ms, e, never));
    OK(simEventElapsedTime(&ms, e, e));
    EXPECT(ms == 0);
    OK(simEventDestroy(never));
    GIVES(simErrorInvalidHandle, simEventQuery(never));

    GIVES(simErrorInvalidValue, simMalloc(&p, 0));
    GIVES(simErrorInvalidValue, simMalloc(NULL, 1));
    GIVES(simErrorOutOfMemory, simMalloc(&p, 257u << 20));
    OK(simMalloc(&p, 256u << 20));
    GIVES(simErrorOutOfMemory, simMalloc(&function, 1));
    GIVES(simErrorInvalidValue, simFree((char *)p + 1));
    GIVES(simErrorInvalidValue, simHostFree(p));
    OK(simFree(p));
    OK(simFree(NULL));
    GIVES(simErrorInvalidValue, simFree(p));
    OK(simMalloc(&p, 64));

    simKernel k = kernel(simOpFill, p, 3u << 30, 1, 1);
    GIVES(simErrorInvalidValue, simLaunchKernel(&k, s));
    k = kernel(simOpFill, (float *)&k, 4, 1, 1);
    GIVES(simErrorInvalidValue, simLaunchKernel(&k, s));
    k = kernel(simOpFill, q, 4, 1, 1);
    GIVES(simErrorInvalidValue, simLaunchKernel(&k, s)); /* memory of the other device */
    k = kernel(4, p, 4, 1, 1);
    GIVES(simErrorInvalidValue, simLaunchKernel(&k, s));
    GIVES(simErrorInvalidValue, simLaunchKernel(NULL, s));
    GIVES(simErrorInvalidValue, simMemcpyAsync(p, &k, 4, s));
    GIVES(simErrorInvalidValue, simMemset(&k, 0, 4));
    GIVES(simErrorInvalidValue, simMemcpy(p, NULL, 4));
    GIVES(simErrorInvalidValue, simLaunchHostFunc(s, NULL, NULL));
    OK(simMemcpy(p, q, 16)); /* from device to device */

    GIVES(simErrorInvalidValue, simStreamWaitValue32(s, (char *)p + 1, 0, simWaitGeq));
    GIVES(simErrorInvalidValue, simStreamWaitValue32(s, p, 0, 4));
    GIVES(simErrorInvalidValue, simStreamWaitValue32(s, &k, 0, simWaitGeq));
    GIVES(simErrorInvalidValue, simStreamWriteValue32(s, NULL, 0));
    GIVES(simErrorNotSupported, simHostRegister(&k, 4)); /* not shared */
    int fd = memfd_create("unsealed", MFD_CLOEXEC);
    EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    GIVES(simErrorInvalidValue, simHostRegister(page, 4096));
    uint32_t *words = shared_page(&fd);
    GIVES(simErrorNotSupported, simHostRegister(words, 8192)); /* beyond the mapping */
    OK(simHostRegister(words, 4096));
    GIVES(simErrorInvalidValue, simHostRegister(words + 1, 4));
    OK(simStreamWriteValue32(s, words + 1023, 7));
    OK(simStreamSynchronize(s));
    EXPECT(words[1023] == 7);
    OK(simHostUnregister(words));
    GIVES(simErrorInvalidValue, simHostUnregister(words));
    GIVES(simErrorInvalidValue, simStreamWriteValue32(s, words, 7));

    GIVES(simErrorInvalidValue, simContextSetTimeslice(0, 0));
    GIVES(simErrorInvalidValue, simContextSetTimeslice(0, 10000001));
    GIVES(simErrorInvalidValue, simContextSetTimeslice(2, 1));
    OK(simContextGetTimeslice(0, &us));
    EXPECT(us == 2000);
    OK(simContextSetTimeslice(0, 500));
    OK(simContextGetTimeslice(0, &us));
    EXPECT(us == 500);
    GIVES(simErrorInvalidValue, simContextSetRunnable(0, 2));
    GIVES(simErrorInvalidValue, simGetCounters(0, NULL));
    GIVES(simErrorInvalidValue, simGetCounters(5, &c));
    OK(simGetProcAddress("simLaunchKernel", &function));
    EXPECT(function == (void *)simLaunchKernel);
    GIVES(simErrorInvalidValue, simGetProcAddress("simNothing", &function));
    EXPECT(function == NULL);

    OK(simDeviceReset());
    GIVES(simErrorInvalidHandle, simStreamQuery(s));
    GIVES(simErrorInvalidHandle, simEventQuery(e));
    OK(simDeviceSynchronize()); /* a new context */
    EXPECT(counters().launched == 0);
    OK(simStreamCreate(&dead));
    GIVES(simErrorInvalidHandle, simStreamQuery(s)); /* though the slot is in use again */
}

struct note { int order, *next; float *y; float seen; simStream stream; };
static void take_note(void *arg)
{
    struct note *n = arg;
    n->order = (*n->next)++;
    n->seen = *n->y;
}

static void host_functions(void)
{
    enum { N = 100 };
    static struct note notes[N];
    int next = 0;
    float *y;
    simStream s[3];
    simEvent e;
    OK(simHostAlloc((void **)&y, 4));
    OK(simEventCreate(&e));
    for (int i = 0; i < 3; i++)
        OK(simStreamCreate(&s[i]));
    for (int i = 0; i < N; i++) { /* each sees its kernel's result, and runs before the next kernel */
        simStream to = s[i % 3];
        notes[i] = (struct note){ -1, &next, y, 0, to };
        OK(simStreamWaitEvent(to, e));
        launch(simOpFill, y, 1, (float)i, 10, to);
        OK(simLaunchHostFunc(to, take_note, &notes[i]));
        OK(simEventRecord(e, to));
    }
    OK(simEventSynchronize(e));
    for (int i = 0; i < N; i++)
        EXPECT(notes[i].order == i && notes[i].seen == (float)i);
}

static void values(void)
{
    uint32_t *w;
    simStream s, t;
    OK(simHostAlloc((void **)&w, 64));
    OK(simStreamCreate(&s));
    OK(simStreamCreate(&t));
    memset(w, 0, 64);
    static const struct { uint32_t before, value, flags, after; } cases[] = {
        { 4, 5, simWaitGeq, 5 }, { 4, 5, simWaitGeq, 0x80000004u }, { 0xfffffff0u, 1, simWaitGeq, 1 },
        { 4, 5, simWaitEq, 5 }, { 0x10, 0x101, simWaitAnd, 0x110 }, { 0xffffffffu, 0, simWaitNor, 0xfffffffeu },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        __atomic_store_n(w, cases[i].before, __ATOMIC_RELEASE);
        w[1] = 0;
        OK(simStreamWaitValue32(s, w, cases[i].value, cases[i].flags));
        OK(simStreamWriteValue32(s, w + 1, 1));
        busy(100, t); /* another stream goes on */
        OK(simStreamSynchronize(t));
        counters();
        GIVES(simErrorNotReady, simStreamQuery(s));
        EXPECT(__atomic_load_n(w + 1, __ATOMIC_ACQUIRE) == 0);
        OK(simStreamWriteValue32(t, w, cases[i].after)); /* the device itself opens the gate */
        OK(simStreamSynchronize(s));
        EXPECT(__atomic_load_n(w + 1, __ATOMIC_ACQUIRE) == 1);
    }
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void evicted(void)
{
    simEvent a, b;
    OK(simEventCreate(&a));
    OK(simEventCreate(&b));
    OK(simEventRecord(a, NULL));
    busy(300000, NULL);
    OK(simEventRecord(b, NULL));
    OK(simContextSetRunnable(0, 0));
    EXPECT(counters().completed == 0);
    double off = now_ms();
    while (now_ms() < off + 20) { }
    off = now_ms() - off;
    GIVES(simErrorNotReady, simEventQuery(b));
    OK(simContextSetRunnable(0, 1));
    OK(simEventSynchronize(b));
    double ms = elapsed_ms(a, b); /* it went on where it was, later by the time it was off */
    EXPECT(ms >= 300 + off - 0.01);
    /* Evicted before it gives anything: nothing moves, and the calls do not wait. */
    OK(simContextSetRunnable(0, 0));
    busy(1, NULL);
    OK(simEventRecord(b, NULL));
    EXPECT(counters().completed == 1);
    GIVES(simErrorNotReady, simStreamQuery(NULL));
    OK(simContextSetRunnable(0, 1));
    OK(simDeviceSynchronize());
}

static void *fill_stream(void *stream)
{
    for (int i = 0; i < 4000; i++)
        busy(1, stream);
    return NULL;
}

static void deep(void)
{
    /* More than a stream holds, from several threads: those that give wait, and nothing is lost. */
    enum { T = 4 };
    pthread_t thread[T];
    simStream s[T], blocked[16];
    uint32_t *w;
    for (int t = 0; t < T; t++) {
        OK(simStreamCreate(&s[t]));
        EXPECT(!pthread_create(&thread[t], NULL, fill_stream, t % 2 ? s[0] : s[t]));
    }
    for (int t = 0; t < T; t++)
        EXPECT(!pthread_join(thread[t], NULL));
    OK(simDeviceSynchronize());
    EXPECT(counters().completed == 4000 * T);
    /* More than the ring holds, all blocked: the ring is emptied all the same. */
    OK(simHostAlloc((void **)&w, 4));
    *w = 0;
    for (int t = 0; t < 16; t++) {
        OK(simStreamCreate(&blocked[t]));
        OK(simStreamWaitValue32(blocked[t], w, 1, simWaitEq));
        for (int i = 0; i < 1000; i++)
            busy(1, blocked[t]);
    }
    EXPECT(counters().completed == 4000 * T);
    __atomic_store_n(w, 1, __ATOMIC_RELEASE);
    OK(simDeviceSynchronize());
    EXPECT(counters().completed == 4000 * T + 16000);
    /* Slots of destroyed streams and events come back. */
    for (int i = 0; i < 3000; i++) {
        simStream stream;
        simEvent event;
        OK(simStreamCreate(&stream));
        OK(simEventCreate(&event));
        OK(simEventRecord(event, stream));
        OK(simEventDestroy(event));
        OK(simStreamDestroy(stream));
        if (i % 500 == 0)
            OK(simDeviceSynchronize());
    }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        { "order", order }, { "errors", errors }, { "host_functions", host_functions }, { "values", values },
        { "evicted", evicted }, { "deep", deep },
    };
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
