/* Memory that another process opens by CUDA IPC while memory moves. Prints the same whether it does or not. The program starts itself
 * again as the other process, which has `CHILD` in front of its command if that is set (`env NAME=VALUE`, a path). */
#include "cu.h"
#include <spawn.h>
#include <sys/wait.h>

enum { MIB = 1 << 20, LARGE = 34 * MIB, WINDOW = 4096, LAZY = 1 };

typedef struct { char bytes[64]; } CUipcMemHandle;

#define MORE(F)                                                                                                        \
    F(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))                                                              \
    F(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned))                                                \
    F(cuIpcCloseMemHandle, (CUdeviceptr))
MORE(CU_DECLARE)

extern char **environ;

static CUdeviceptr window(CUdeviceptr at, int which)
{
    return at + (which == 0 ? 0 : which == 1 ? 32 * MIB - WINDOW * 2 : LARGE - WINDOW * 4);
}

static int other(void)
{
    CUipcMemHandle handle;
    CUdeviceptr at, again;
    if (read(3, &handle, sizeof handle) != sizeof handle) return 3;
    printf("ok no flags: %d\n", cuIpcOpenMemHandle_v2(&at, handle, 0));
    GIVES("opened", SUCCESS, cuIpcOpenMemHandle_v2(&at, handle, LAZY));
    GIVES("and again", SUCCESS, cuIpcOpenMemHandle_v2(&again, handle, LAZY));
    CHECK("in the same place", at == again);
    for (int i = 0; i < 3; i++) {
        CHECK("what was written", all_are(window(at, i), WINDOW, (float)i + 1));
        OK(launch_fill(NULL, window(at, i), WINDOW, (float)i + 10));
    }
    OK(cuCtxSynchronize());
    GIVES("closed", SUCCESS, cuIpcCloseMemHandle(again));
    CHECK("still there", all_are(window(at, 1), WINDOW, 11));
    GIVES("closed for good", SUCCESS, cuIpcCloseMemHandle(at));
    printf("ok and no more: %d\n", cuIpcCloseMemHandle(at));
    fflush(stdout);
    if (write(4, "x", 1) != 1) return 3;
    CHECKS_DONE;
}

int main(int argc, char **argv)
{
    int to[2], from[2], status = 0;
    char byte, *child[] = {getenv("CHILD"), argv[0], "other", NULL};
    int is_other = argc > 1;
    pid_t pid = 0;
    if (!is_other) {
        posix_spawn_file_actions_t actions;
        if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) return 3;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fcntl(to[0], F_DUPFD, 20), 3);
        posix_spawn_file_actions_adddup2(&actions, fcntl(from[1], F_DUPFD, 20), 4);
        char **command = child[0] ? child : child + 1;
        if (posix_spawnp(&pid, command[0], &actions, NULL, command, environ)) return 3;
        close(to[0]);
        close(from[1]);
    }
    cu_start();
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    MORE(CU_LOAD)
    if (is_other) return other();

    CUipcMemHandle handle, same;
    CUdeviceptr at, moving, opened;
    OK(cuMemAlloc_v2(&at, LARGE));
    OK(cuMemAlloc_v2(&moving, 4 * MIB));
    for (int i = 0; i < 3; i++) OK(launch_fill(NULL, window(at, i), WINDOW, (float)i + 1));
    OK(launch_fill(NULL, moving, WINDOW, 7));
    OK(cuCtxSynchronize());
    GIVES("a handle by an address inside", SUCCESS, cuIpcGetMemHandle(&handle, at + 33 * MIB));
    GIVES("another", SUCCESS, cuIpcGetMemHandle(&same, at));
    CHECK("is the same", !memcmp(&handle, &same, sizeof same));
    printf("ok not in this process: %d\n", cuIpcOpenMemHandle_v2(&opened, handle, LAZY));
    printf("ok no memory: %d\n", cuIpcGetMemHandle(&same, 4096));
    fflush(stdout);
    if (write(to[1], &handle, sizeof handle) != sizeof handle) return 3;
    CHECK("the other has answered", read(from[0], &byte, 1) == 1);
    for (int i = 0; i < 3; i++) CHECK("what it has written", all_are(window(at, i), WINDOW, (float)i + 10));
    CHECK("other memory", all_are(moving, WINDOW, 7));
    CHECK("it ended well", waitpid(pid, &status, 0) == pid && status == 0);
    GIVES("freed", SUCCESS, cuMemFree_v2(at));
    GIVES("freed", SUCCESS, cuMemFree_v2(moving));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    CHECKS_DONE;
}
