/* To be preloaded after libxsched: an `ioctl` that answers calls to the software driver's resource manager, so that
 * what libxsched asks of it itself has an effect, too. Everything else goes to the kernel. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int fd, unsigned long request, ...)
{
    static int (*manager)(int, unsigned long, void *);
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (!manager) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        /* A server of MPS has the driver built in. */
        *(void **)&manager = dlsym(driver ? driver : RTLD_DEFAULT, "fakeRmIoctl");
    }
#ifdef KEEPS_SLICES
    /* A manager that takes no other slices: it says yes, and leaves them as the driver meant them. */
    struct control {
        unsigned client, object, command, flags;
        void *params;
        unsigned size, status;
    } *call = argument;
    if ((unsigned)request == 0xc020462a && call->command == 0xa06c0103 && *(unsigned long *)call->params != 2048) {
        call->status = 0;
        return 0;
    }
#endif
    if (manager && manager(fd, request, argument) == 0) {
        return 0;
    }
    return (int)syscall(SYS_ioctl, fd, request, argument);
}
