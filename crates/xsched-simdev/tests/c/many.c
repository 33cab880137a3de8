/* Scenarios of several processes. Whoever is forked before the first call of the library is a process like any other. */
#include "scenario.h"

struct link { int up[2], down[2]; };

static pid_t child(struct link *l)
{
    EXPECT(!pipe2(l->up, O_CLOEXEC) && !pipe2(l->down, O_CLOEXEC));
    return fork();
}

/* The gate is opened by a store of a process that does not use the device. */
static void released_by_another(void)
{
    int fd;
    struct link l;
    uint32_t *w = shared_page(&fd);
    pid_t pid = child(&l);
    if (!pid) {
        hear(l.down[0]);
        __atomic_store_n(w + 5, 0x100, __ATOMIC_RELEASE);
        _exit(0);
    }
    OK(simHostRegister(w, 4096));
    OK(simStreamWaitValue32(NULL, w + 5, 0x101, simWaitAnd));
    busy(100, NULL);
    EXPECT(counters().completed == 0);
    GIVES(simErrorNotReady, simStreamQuery(NULL));
    say(l.down[1]);
    OK(simStreamSynchronize(NULL));
    reap(pid);
}

/* Two processes with the same work, begun together, get half of the device each. */
static void share(void)
{
    enum { KERNELS = 200 };
    int fd;
    struct link l[2];
    pid_t pid[2];
    uint32_t *w = shared_page(&fd);
    for (int i = 0; i < 2; i++) {
        pid[i] = child(&l[i]);
        if (pid[i])
            continue;
        simEvent a, b;
        OK(simEventCreate(&a));
        OK(simEventCreate(&b));
        OK(simHostRegister(w, 4096));
        OK(simStreamWaitValue32(NULL, w, 1, simWaitEq));
        OK(simEventRecord(a, NULL));
        for (int k = 0; k < KERNELS; k++)
            busy(500, NULL);
        OK(simEventRecord(b, NULL));
        EXPECT(counters().launched == KERNELS);
        say(l[i].up[1]);
        OK(simDeviceSynchronize());
        /* 100 ms of work each, 2 ms at a time with 0.05 ms between: both end at about 205 ms, one turn apart. */
        double ms = elapsed_ms(a, b);
        fprintf(stderr, "share: %.3f ms\n", ms);
        EXPECT(ms > 201 && ms < 206);
        simCounters c = counters();
        EXPECT(c.completed == KERNELS && c.launched_total_device == 2 * KERNELS && c.switches >= 98);
        say(l[i].up[1]); /* stay until both have looked */
        hear(l[i].down[0]);
        _exit(0);
    }
    hear(l[0].up[0]);
    hear(l[1].up[0]);
    __atomic_store_n(w, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        hear(l[i].up[0]);
    for (int i = 0; i < 2; i++) {
        say(l[i].down[1]);
        reap(pid[i]);
    }
}

/* A hundred kernels of 1 ms with nobody else on the device, but for the time that the device takes to notice somebody's
 * end. Beside somebody they would take 200 ms. */
static void expect_device_alone(void)
{
    simEvent a, b;
    OK(simEventCreate(&a));
    OK(simEventCreate(&b));
    OK(simEventRecord(a, NULL));
    for (int i = 0; i < 100; i++)
        busy(1000, NULL);
    OK(simEventRecord(b, NULL));
    OK(simDeviceSynchronize());
    double ms = elapsed_ms(a, b);
    fprintf(stderr, "alone: %.3f ms\n", ms);
    EXPECT(ms >= 100 && ms < 160);
}

/* A process is killed with ten seconds of work pending, some of it running, some blocked. */
static void killed(void)
{
    struct link l;
    pid_t pid = child(&l);
    if (!pid) {
        uint32_t *w;
        simStream s;
        OK(simHostAlloc((void **)&w, 4));
        OK(simStreamCreate(&s));
        OK(simStreamWaitValue32(s, w, 1, simWaitEq));
        for (int i = 0; i < 10; i++)
            busy(1000000, NULL);
        counters();
        say(l.up[1]);
        pause();
    }
    hear(l.up[0]);
    EXPECT(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    expect_device_alone();
}

/* A stopped process with blocked streams, a due host function and a full stream holds nobody up, and goes on after. */
static void nothing(void *arg) { *(int *)arg += 1; }
static void stopped(void)
{
    int fd;
    struct link l;
    uint32_t *w = shared_page(&fd);
    pid_t pid = child(&l);
    if (!pid) {
        int calls = 0;
        simStream s[2];
        OK(simStreamCreate(&s[0]));
        OK(simStreamCreate(&s[1]));
        OK(simHostRegister(w, 4096));
        OK(simStreamWaitValue32(s[0], w, 1, simWaitEq));
        OK(simLaunchHostFunc(s[0], nothing, &calls));
        OK(simStreamWaitValue32(s[1], w, 2, simWaitEq));
        for (int i = 0; i < 1000; i++)
            busy(1, s[1]);
        counters();
        say(l.up[1]);
        OK(simDeviceSynchronize());
        EXPECT(calls == 1 && counters().completed == 1000);
        _exit(0);
    }
    hear(l.up[0]);
    EXPECT(!kill(pid, SIGSTOP) && waitpid(pid, NULL, WUNTRACED) == pid);
    expect_device_alone();
    __atomic_store_n(w, 1, __ATOMIC_RELEASE); /* its host function becomes due while it is stopped */
    expect_device_alone();
    EXPECT(!kill(pid, SIGCONT));
    __atomic_store_n(w, 2, __ATOMIC_RELEASE);
    /* The first gate waits for exactly 1; the device saw that long ago, since 100 ms passed on it. */
    reap(pid);
}

/* A forked child does not use its parent's context, does not keep it alive, and makes its own. */
static void forked(void)
{
    struct link l, inner;
    pid_t pid = child(&l);
    if (!pid) {
        simStream s;
        OK(simStreamCreate(&s));
        busy(10, s);
        OK(simStreamSynchronize(s));
        pid_t grandchild = child(&inner);
        if (!grandchild) {
            simStream mine;
            GIVES(simErrorInvalidHandle, simStreamQuery(s));
            EXPECT(counters().launched == 0);
            OK(simStreamCreate(&mine));
            GIVES(simErrorInvalidHandle, simStreamQuery(s));
            busy(10, mine);
            OK(simStreamSynchronize(mine));
            EXPECT(counters().launched == 1);
            say(inner.up[1]);
            hear(inner.down[0]);
            expect_device_alone(); /* its parent has died with work pending */
            say(l.up[1]);
            _exit(0);
        }
        hear(inner.up[0]);
        EXPECT(counters().launched == 1);
        for (int i = 0; i < 10; i++)
            busy(1000000, s);
        counters();
        say(inner.down[1]);
        raise(SIGKILL);
    }
    EXPECT(waitpid(pid, NULL, 0) == pid);
    hear(l.up[0]);
}

/* Many processes find no device at once: they start one, not several. */
static void together(void)
{
    enum { N = 8 };
    int fd;
    uint32_t *w = shared_page(&fd);
    pid_t pid[N];
    for (int i = 0; i < N; i++) {
        pid[i] = fork();
        if (pid[i])
            continue;
        while (!__atomic_load_n(w, __ATOMIC_ACQUIRE))
            sched_yield();
        busy(10, NULL);
        while (counters().launched_total_device < N) /* with two devices this never ends */
            sched_yield();
        _exit(0);
    }
    __atomic_store_n(w, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < N; i++)
        reap(pid[i]);
    pid_t pid2;
    int status;
    EXPECT((pid2 = waitpid(-1, &status, 0)) == -1); /* the server is nobody's child here */
}

/* The device dies; nobody hangs. Talks to the test by stdin and stdout. */
static void *wait_lost(void *stream)
{
    GIVES(simErrorDeviceLost, simStreamSynchronize(stream));
    return NULL;
}
static void lost(void)
{
    pthread_t thread;
    simStream s;
    simEvent e;
    OK(simStreamCreate(&s));
    OK(simEventCreate(&e));
    for (int i = 0; i < 100; i++)
        busy(1000000, s);
    OK(simEventRecord(e, s));
    counters();
    EXPECT(!pthread_create(&thread, NULL, wait_lost, s));
    say(1);
    hear(0); /* killed */
    EXPECT(!pthread_join(thread, NULL));
    GIVES(simErrorDeviceLost, simStreamQuery(s));
    GIVES(simErrorDeviceLost, simEventSynchronize(e));
    simKernel k = kernel(simOpNop, NULL, 0, 0, 1);
    GIVES(simErrorDeviceLost, simLaunchKernel(&k, s));
    simCounters c;
    GIVES(simErrorDeviceLost, simGetCounters(0, &c));
    GIVES(simErrorDeviceLost, simContextSetRunnable(0, 0));
    GIVES(simErrorDeviceLost, simDeviceSynchronize());
    OK(simDeviceReset());
    busy(10, NULL); /* a new device is started */
    OK(simDeviceSynchronize());
    EXPECT(counters().launched == 1);
}

static void no_device(void)
{
    int n;
    GIVES(simErrorNoDevice, simInit(0));
    GIVES(simErrorNoDevice, simDeviceGetCount(&n));
    GIVES(simErrorNoDevice, simStreamSynchronize(NULL));
}

/* Run with a preloaded library that has a simLaunchKernel of its own. */
static void preloaded(void)
{
    simKernel k = kernel(simOpNop, NULL, 0, 0, 1);
    void *own;
    GIVES(77, simLaunchKernel(&k, NULL));
    OK(simGetProcAddress("simLaunchKernel", &own));
    EXPECT(own != (void *)simLaunchKernel);
    OK(((int (*)(const simKernel *, simStream))own)(&k, NULL));
    EXPECT(counters().launched == 1);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        { "released_by_another", released_by_another }, { "share", share }, { "killed", killed },
        { "stopped", stopped }, { "forked", forked }, { "together", together }, { "lost", lost },
        { "no_device", no_device }, { "preloaded", preloaded },
    };
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
