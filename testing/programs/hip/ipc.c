/* Memory and events that two processes share. The second is this program again; each prints while the other waits. */
#include "hip.h"
#include <spawn.h>
#include <sys/wait.h>

#define N 5000
enum { LAZY = 1, INTERPROCESS = 4 | 2 };

extern char **environ;

struct handles { hipIpcMemHandle_t memory, other; hipIpcEventHandle_t event, second; };

static int in, out;

/* The other's turn, until it says so. */
static void turn(void)
{
    char byte = 0;
    if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1) {
        puts("FAIL the other process has ended");
        exit(1);
    }
}

static const float *seen(const float *from)
{
    static float host[N];
    OK(hipMemcpy(host, from, sizeof host, DEVICE_TO_HOST));
    return host;
}

static int second_process(void)
{
    struct handles given;
    char byte;
    hipStream_t stream = 0;
    hipEvent_t event = 0, second = 0;
    float *x = 0, *again = 0, *other = 0, *own = 0;
    if (read(in, &given, sizeof given) != sizeof given || read(in, &byte, 1) != 1) {
        return 1;
    }
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipMalloc(&own, N * sizeof *own));
    GIVES("without its flag", INVALID_VALUE, hipIpcOpenMemHandle(&x, given.memory, 0));
    hipIpcMemHandle_t wrong = given.memory;
    memset(&wrong, 0x5a, sizeof wrong);
    CHECK("a handle of nobody's", hipIpcOpenMemHandle(&x, wrong, LAZY) != SUCCESS && !x);
    GIVES("memory of another process", SUCCESS, hipIpcOpenMemHandle(&x, given.memory, LAZY));
    GIVES("some more", SUCCESS, hipIpcOpenMemHandle(&other, given.other, LAZY));
    GIVES("the same again", SUCCESS, hipIpcOpenMemHandle(&again, given.memory, LAZY));
    CHECK("is in the same place", again == x && other != x);
    GIVES("an event of another process", SUCCESS, hipIpcOpenEventHandle(&event, given.event));
    OK(hipIpcOpenEventHandle(&second, given.second));
    GIVES("never recorded", SUCCESS, hipEventQuery(event));
    CHECK("what it wrote is there", all_are(seen(x), N, 1) && all_are(seen(other), 100, 11));
    OK(run_fill(x, N, 2, stream));
    OK(run_axpy(1, x, x, N, stream));
    OK(hipStreamSynchronize(stream));
    turn(); /* it sees that, then gives work that takes a while and records the event behind it */
    GIVES("a stream waits for the other's work", SUCCESS, hipStreamWaitEvent(stream, event, 0));
    OK(hipMemcpyAsync(own, x, N * sizeof *own, DEVICE_TO_DEVICE, stream));
    OK(hipStreamSynchronize(stream));
    CHECK("and has what it made", all_are(seen(own), N, 6));
    GIVES("so the event is done", SUCCESS, hipEventQuery(event));
    OK(run_spin(3000000, stream));
    OK(run_fill(x, N, 8, stream));
    GIVES("recorded by this one", SUCCESS, hipEventRecord(second, stream));
    turn(); /* it waits for that */
    OK(hipStreamSynchronize(stream));
    GIVES("no memory of its own to free", INVALID_VALUE, hipFree(x));
    GIVES("nor to give on", INVALID_VALUE, hipIpcGetMemHandle(&given.memory, x));
    CHECK("nor its event", hipIpcGetEventHandle(&given.event, event) != SUCCESS || on_cuda());
    GIVES("closed once", SUCCESS, hipIpcCloseMemHandle(x));
    CHECK("it is still there", all_are(seen(x), N, 8));
    GIVES("closed twice", SUCCESS, hipIpcCloseMemHandle(x));
    GIVES("not a third time", INVALID_HANDLE, hipIpcCloseMemHandle(x));
    GIVES("none", INVALID_VALUE, hipIpcCloseMemHandle(0));
    CHECK("it is gone", hipMemset(x, 0, 4) == INVALID_VALUE);
    GIVES("opened anew", SUCCESS, hipIpcOpenMemHandle(&x, given.memory = given.other, LAZY));
    CHECK("the other is where it was", x == other && all_are(seen(x), 100, 11));
    OK(hipIpcCloseMemHandle(x));
    OK(hipIpcCloseMemHandle(other));
    float *fresh = 0;
    OK(hipMalloc(&fresh, N * sizeof *fresh));
    OK(run_fill(fresh, N, 3, stream));
    OK(hipStreamSynchronize(stream));
    CHECK("memory of its own is its own again", all_are(seen(fresh), N, 3));
    OK(hipEventDestroy(event));
    OK(hipEventDestroy(second));
    turn(); /* it sees that nothing was changed, and frees what it had given */
    CHECK("freed memory is not opened", hipIpcOpenMemHandle(&x, given.other, LAZY) != SUCCESS || on_cuda());
    OK(hipFree(own));
    OK(hipFree(fresh));
    OK(hipStreamDestroy(stream));
    CHECKS_DONE;
}

/* This program again, with pipes to and from it as its standard input and a descriptor that it is told. */
static pid_t start(const char *self)
{
    int to[2], from[2];
    char number[16];
    pid_t pid = 0;
    if (pipe(to) || pipe(from)) {
        exit(3);
    }
    snprintf(number, sizeof number, "%d", from[1]);
    char *arguments[] = {(char *)self, number, 0};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_addclose(&actions, to[0]);
    posix_spawn_file_actions_addclose(&actions, to[1]);
    posix_spawn_file_actions_addclose(&actions, from[0]);
    if (posix_spawn(&pid, "/proc/self/exe", &actions, 0, arguments, environ)) {
        exit(3);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    in = from[0];
    out = to[1];
    return pid;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        out = atoi(argv[1]);
        return second_process();
    }
    need_device();
    pid_t pid = start(argv[0]);
    struct handles given;
    hipStream_t stream = 0;
    hipEvent_t event = 0, second = 0, plain = 0;
    float *x = 0, *before = 0, *other = 0, *unaligned = 0;
    void *pinned = 0;
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipMalloc(&before, 100)); /* so that others do not begin a page */
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&other, N * sizeof *other));
    OK(hipHostMalloc(&pinned, 4096, 0));
    OK(run_fill(x, N, 1, stream));
    OK(run_fill(other, N, 11, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipEventCreateWithFlags(&event, INTERPROCESS));
    OK(hipEventCreateWithFlags(&second, INTERPROCESS));
    OK(hipEventCreateWithFlags(&plain, 2));
    GIVES("a shared event has no times", INVALID_VALUE, hipEventCreateWithFlags(&(hipEvent_t){0}, 4));
    GIVES("a handle of memory", SUCCESS, hipIpcGetMemHandle(&given.memory, x));
    GIVES("another", SUCCESS, hipIpcGetMemHandle(&given.other, other));
    CHECK("differs", memcmp(&given.memory, &given.other, sizeof given.memory));
    GIVES("nowhere", INVALID_VALUE, hipIpcGetMemHandle(0, x));
    GIVES("no memory", INVALID_VALUE, hipIpcGetMemHandle(&given.memory, 0));
    GIVES("the host's", INVALID_VALUE, hipIpcGetMemHandle(&given.memory, pinned));
    GIVES("of an event", SUCCESS, hipIpcGetEventHandle(&given.event, event));
    OK(hipIpcGetEventHandle(&given.second, second));
    GIVES("of one that is not to be shared", INVALID_CONFIGURATION, hipIpcGetEventHandle(&given.event, plain));
    GIVES("opened where it was made", INVALID_CONTEXT, hipIpcOpenMemHandle(&unaligned, given.memory, LAZY));
    GIVES("an event too", INVALID_CONTEXT, hipIpcOpenEventHandle(&plain, given.event));
    if (write(out, &given, sizeof given) != sizeof given) {
        return 1;
    }
    turn();
    CHECK("the other has written", all_are(seen(x), N, 4));
    OK(run_spin(5000000, stream));
    OK(run_fill(x, N, 6, stream));
    GIVES("its event is recorded", SUCCESS, hipEventRecord(event, stream));
    turn();
    GIVES("waits for the other's", SUCCESS, hipEventSynchronize(second));
    OK(hipEventSynchronize(event));
    CHECK("and has what it made", all_are(seen(x), N, 8));
    turn();
    CHECK("what was shared is as it was", all_are(seen(x), N, 8) && all_are(seen(other), N, 11));
    OK(hipFree(x));
    OK(hipFree(other));
    OK(hipEventDestroy(event));
    OK(hipEventDestroy(second));
    if (write(out, "", 1) != 1) {
        return 1;
    }
    int status = -1;
    CHECK("the other ends well", waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(hipFree(before));
    OK(hipHostFree(pinned));
    CHECKS_DONE;
}
