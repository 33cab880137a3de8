/* OpenCL in a child that has a copy of the parent's memory, but in which no handler of fork has run, by the system call clone. It says
 * what each call gave, and waits for nothing: it has none of the driver's threads. The parent goes on. */
#define _GNU_SOURCE
#include "../opencl/apps/check.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    static cl_uint zeros[64];
    cl_uint zero = 0;
    setup();
    cl_command_queue queue = queue_with(0);
    cl_mem a = buffer_of(sizeof zeros, NULL);
    for (int i = 0; i < 20; i++)
        OK(clEnqueueFillBuffer(queue, a, &zero, sizeof zero, 0, sizeof zeros, 0, NULL, NULL));
    OK(clFinish(queue));
    fflush(stdout);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        printf("fill %d\n", clEnqueueFillBuffer(queue, a, &zero, sizeof zero, 0, sizeof zeros, 0, NULL, NULL));
        printf("again %d\n", clEnqueueFillBuffer(queue, a, &zero, sizeof zero, 0, sizeof zeros, 0, NULL, NULL));
        printf("write %d\n", clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, sizeof zeros, zeros, 0, NULL, NULL));
        printf("marker %d\n", clEnqueueMarkerWithWaitList(queue, 0, NULL, NULL));
        printf("wrong %d\n", clEnqueueWriteBuffer(NULL, a, CL_FALSE, 0, sizeof zeros, zeros, 0, NULL, NULL));
        fflush(stdout);
        _exit(4);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("ended %s %d\n", WIFSIGNALED(status) ? "by signal" : "with",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    for (int i = 0; i < 20; i++)
        OK(clEnqueueFillBuffer(queue, a, &zero, sizeof zero, 0, sizeof zeros, 0, NULL, NULL));
    OK(clFinish(queue));
    puts("ok");
    return 0;
}
