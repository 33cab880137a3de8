/* raw_children WAY DOES: a child that has a copy of the parent's memory, but in which no handler of fork has run, by the system call
 * clone (WAY "clone") or by _Fork ("_Fork"). It uses the device and ends at once ("use") or by handlers ("use_exit"), which nobody
 * promises to work, so that it says what each call gave; or it uses nothing and ends by handlers ("exit"),
 * executes another program ("exec") or forks a child that uses the device ("fork"). */
#include "hazard.h"
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static pid_t by_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void await_child(pid_t child)
{
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    printf("ended %s %d\n", WIFSIGNALED(status) ? "by signal" : "with",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

static void use(int kernels)
{
    struct work w;
    start_work(&w, 0);
    for (int i = 0; i < kernels; i++)
        launch(&w, 20);
    end_work(&w);
    report();
}

/* What each call gives in the child. */
static void try_all(struct work *parents)
{
    struct work own = *parents;
    simKernel k = next_kernel(&own, 20);
    printf("launch %d\n", simLaunchKernel(&k, parents->stream));
    printf("again %d\n", simLaunchKernel(&k, parents->stream));
    printf("copy %d\n", simMemcpyAsync(own.y, own.y, 4, parents->stream));
    simEvent event = NULL;
    printf("event %d\n", simEventCreate(&event));
    printf("record %d\n", simEventRecord(event, parents->stream));
    simStream stream = NULL;
    printf("stream %d\n", simStreamCreate(&stream));
    printf("launch there %d\n", simLaunchKernel(&k, stream));
    printf("destroy %d\n", simStreamDestroy(stream));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    const char *does = argv[2];
    if (!strcmp(does, "again")) {
        use(10);
        return 0;
    }
    pid_t (*way)(void) = by_clone;
    if (!strcmp(argv[1], "_Fork") && !(way = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork"))) {
        say("no _Fork");
        return 0;
    }
    int uses = !strncmp(does, "use", 3);
    struct work mine;
    start_work(&mine, 0);
    for (int i = 0; i < 40; i++)
        launch(&mine, 20);
    check_work(&mine);
    fflush(stdout);
    pid_t child = way();
    if (child == 0) {
        if (uses)
            try_all(&mine);
        if (!strcmp(does, "use"))
            _exit(4);
        if (!strcmp(does, "exec")) {
            execl("/proc/self/exe", argv[0], argv[1], "again", (char *)NULL);
            _exit(127);
        }
        if (!strcmp(does, "fork")) {
            pid_t grandchild = fork();
            if (grandchild == 0)
                use(10);
            else
                await_child(grandchild);
        }
        exit(3);
    }
    await_child(child);
    /* Else the child has spoken to the device over the parent's own connection. */
    if (!uses) {
        for (int i = 0; i < 40; i++)
            launch(&mine, 20);
        end_work(&mine);
        report();
    }
    say("ok");
    return 0;
}
