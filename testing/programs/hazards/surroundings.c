/* surroundings FILE [device]: writes what a program can see of its surroundings, before or after a use of the device:
 * threads, descriptors, signal handlers, and what stands on the standard descriptors. */
#include "hazard.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

static int entries(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n - 2;
}

int main(int argc, char **argv)
{
    struct work w;
    if (argc > 2) {
        start_work(&w, 0);
        for (int i = 0; i < 20; i++)
            launch(&w, 50);
        check_work(&w);
        /* With the standard descriptors closed these may be anybody's. */
        printf("to standard output\n");
        fflush(stdout);
        fprintf(stderr, "to standard error\n");
        for (int i = 0; i < 20; i++)
            launch(&w, 50);
        end_work(&w);
    }
    int handlers = 0;
    for (int s = 1; s < NSIG; s++) {
        struct sigaction action;
        if (sigaction(s, NULL, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
            handlers++;
    }
    int threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
    FILE *file = argc > 1 ? fopen(argv[1], "w") : NULL;
    CHECK(file);
    fprintf(file, "threads %d\ndescriptors %d\nhandlers %d\n", threads, descriptors, handlers);
    for (int fd = 0; fd < 3; fd++) {
        char link[64], target[256] = "closed";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n > 0)
            target[n] = 0;
        /* Numbers of sockets and of this very file differ by run. */
        fprintf(file, "%d %s\n", fd, fd == fileno(file) ? "result" : !strncmp(target, "socket:", 7) ? "socket" : target);
    }
    return fclose(file) != 0;
}
