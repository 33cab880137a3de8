/* Says what the functions of the C library do that libxsched.so stands before, and some that it needs itself. Any C library's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *thread(void *argument)
{
    return argument;
}

int main(void)
{
    int (*found)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "getpid");
    printf("dlsym: %d, next %d, none %d\n", found && found() == getpid(), dlsym(RTLD_NEXT, "malloc") != NULL,
           dlsym(RTLD_DEFAULT, "no_such_symbol") == NULL);
    printf("vendor's: %d %d\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL, dlsym(RTLD_DEFAULT, "clFinish") != NULL);
    printf("error: %d\n", dlerror() != NULL);
    void *self = dlopen(NULL, RTLD_NOW);
    printf("handle: %d, vendor's %d\n", self && dlsym(self, "getpid") == (void *)found, self && dlsym(self, "cuInit"));
    printf("closed: %d\n", dlclose(self));

    int ends[2], waiting = 0;
    if (pipe(ends) != 0 || write(ends[1], "abc", 3) != 3)
        return 1;
    /* Of terminals, of AMD's and of NVIDIA's drivers, and one that works. */
    printf("ioctl: %d %d %d", ioctl(ends[0], TIOCGWINSZ, &waiting), ioctl(ends[0], 0x4b02), ioctl(ends[0], 0xc020462a, &waiting));
    printf(" %d", ioctl(ends[0], FIONREAD, &waiting));
    printf(", %d\n", waiting);

    pthread_t id;
    void *result = NULL;
    if (pthread_create(&id, NULL, thread, &waiting) != 0 || pthread_join(id, &result) != 0)
        return 1;
    printf("thread: %d\n", result == &waiting);
    fflush(stdout);
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(dlsym(RTLD_DEFAULT, "getpid") ? 7 : 8);
    waitpid(child, &status, 0);
    printf("child: %d\n", WEXITSTATUS(status));
    return 0;
}
