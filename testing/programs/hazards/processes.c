/* Use of the device in a parent and in its children, by fork, by fork and exec, and by vfork and exec. */
#include "hazard.h"
#include <sys/wait.h>

static void use(int kernels)
{
    struct work w;
    start_work(&w, 0);
    for (int i = 0; i < kernels; i++)
        launch(&w, 50);
    end_work(&w);
    report();
}

static void await_child(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        use(30);
        return 0;
    }
    /* Work of the parent is in flight over the fork. */
    struct work mine;
    start_work(&mine, 0);
    for (int i = 0; i < 40; i++)
        launch(&mine, 50);
    pid_t child = fork();
    if (child == 0) {
        use(20);
        /* A child of the child, whose own parent used the device too. */
        pid_t grandchild = fork();
        if (grandchild == 0) {
            use(10);
            exit(0);
        }
        await_child(grandchild);
        exit(0);
    }
    for (int i = 0; i < 40; i++)
        launch(&mine, 50);
    await_child(child);
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        _exit(127);
    }
    await_child(child);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        _exit(127);
    }
    await_child(child);
    end_work(&mine);
    report();
    say("ok");
    return 0;
}
