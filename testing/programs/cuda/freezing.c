/* Memory with known contents, which a test has leave the device and come back. Reads commands from its standard input, one in a line,
 * and answers each with a line. Arguments: MiB (32), and MiB of other memory that nothing uses but "idle".
 *
 * add: kernels add 1 to its ends.        check: reads them back.           free: frees it.
 * many: 200 times "add"; names the times that this reached memory of the host (software driver).
 * idle: reads the other memory.
 * signals: SIGUSR1 is handled.            fork: a child ends, with 7.
 * managed: has managed memory.            end: exits, with functions at exit that free it. */
#include "cu.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

static CUdeviceptr memory, idle;
static size_t count, idle_count;
static volatile sig_atomic_t handled;

enum { WINDOW = 4096 };

/* The first and the last elements of it get a value. */
static void set(float value)
{
    OK(launch_fill(NULL, memory, WINDOW, value));
    OK(launch_fill(NULL, memory + (count - WINDOW) * sizeof(float), WINDOW, value));
    OK(cuCtxSynchronize());
}

/* Times that commands reached memory of the host: the counter before the last one. */
static unsigned long long host_ranges(void)
{
    unsigned long long values[64];
    size_t (*counters)(unsigned long long *, size_t);
    *(void **)&counters = dlsym(RTLD_DEFAULT, "fakeGetCounters");
    return counters ? values[counters(values, 64) - 2] : 0;
}

static int is(float value)
{
    return all_are(memory, WINDOW, value) && all_are(memory + (count - WINDOW) * sizeof(float), WINDOW, value);
}

static void handle(int number)
{
    (void)number;
    handled++;
}

static int frees_at_exit;

static void free_at_exit(void)
{
    if (!frees_at_exit) return;
    printf("free at exit %d\n", (int)cuMemFree_v2(memory));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[64];
    float value = 1;
    CUdeviceptr managed;
    count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 32) * (1 << 20) / sizeof(float);
    atexit(free_at_exit);
    idle_count = (argc > 2 ? strtoul(argv[2], NULL, 10) : 0) * (1 << 20) / sizeof(float);
    cu_start();
    if (idle_count) {
        OK(cuMemAlloc_v2(&idle, idle_count * sizeof(float)));
        OK(launch_fill(NULL, idle, WINDOW, 7));
    }
    OK(cuMemAlloc_v2(&memory, count * sizeof(float)));
    set(value);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "add")) {
            set(++value);
            printf("added\n");
        } else if (!strcmp(line, "many")) {
            unsigned long long before = host_ranges();
            for (int i = 0; i < 200; i++) set(++value);
            printf("%llu\n", host_ranges() - before);
        } else if (!strcmp(line, "idle")) {
            printf("%s\n", all_are(idle, WINDOW, 7) ? "right" : "wrong");
        } else if (!strcmp(line, "check")) {
            printf("%s\n", is(value) ? "right" : "wrong");
        } else if (!strcmp(line, "free")) {
            OK(cuMemFree_v2(memory));
            printf("freed\n");
        } else if (!strcmp(line, "signals")) {
            struct sigaction action = {.sa_handler = handle};
            sigaction(SIGUSR1, &action, NULL);
            printf("handles\n");
        } else if (!strcmp(line, "fork")) {
            int status = 0;
            pid_t child = fork();
            if (child == 0) _exit(7);
            waitpid(child, &status, 0);
            printf("child %d\n", WEXITSTATUS(status));
        } else if (!strcmp(line, "managed")) {
            OK(cuMemAllocManaged(&managed, 1 << 20, 1));
            printf("managed\n");
        } else if (!strcmp(line, "end")) {
            frees_at_exit = 1;
            exit(0);
        }
        fflush(stdout);
    }
    return 0;
}
