/* closes_descriptors FOLDER: an OpenCL program that closes every descriptor but the standard ones while it uses the
 * device, as daemons and language runtimes do before they start something, and then takes all numbers for its own
 * files, sockets and counters. None of them may ever see a byte that this program did not write. */
#include "../opencl/check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { N = 64, LIMIT = 1024 };

static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem data;
static int given;

static void pause_ms(long ms)
{
    usleep((useconds_t)ms * 1000);
}

static void use(int times)
{
    for (int i = 0; i < times; i++, given++)
        step(queue, kernel, data, N, 1, 1, 0, NULL, NULL);
    OK(clFinish(queue));
}

static void check(void)
{
    static cl_int back[N];
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == given);
}

int main(int argc, char **argv)
{
    cl_int zero = 0;
    int mine[LIMIT], kinds[LIMIT], inode[LIMIT];
    CHECK(argc > 1);
    setup();
    queue = queue_with(0);
    kernel = kernel_from(STEP_SOURCE, "advance");
    data = buffer_of(N * sizeof(cl_int), NULL);
    OK(clEnqueueFillBuffer(queue, data, &zero, sizeof zero, 0, N * sizeof zero, 0, NULL, NULL));
    use(20);
    puts("ready");
    fflush(stdout);
    /* Long enough to be idle: the next launch has something to tell the scheduler. */
    pause_ms(300);
    CHECK(syscall(SYS_close_range, 3U, ~0U, 0U) == 0);
    /* Files, counters and socket pairs on the lowest numbers, as they come, and on all numbers above, as by dup2. */
    char path[512];
    snprintf(path, sizeof path, "%s/file", argv[1]);
    int file = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    CHECK(file == 3);
    int n = 0, counter = eventfd(0, EFD_NONBLOCK), pair[2];
    CHECK(counter >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
    int sources[] = {file, counter, pair[0]};
    int low = pair[1] + 1;
    for (int fd = low; fd < LIMIT; fd++, n++) {
        kinds[n] = argc > 2 ? atoi(argv[2]) : fd % 3;
        mine[n] = dup2(sources[kinds[n]], fd);
        CHECK(mine[n] == fd);
        struct stat s;
        CHECK(fstat(fd, &s) == 0);
        inode[n] = (int)s.st_ino;
    }
    for (int round = 0; round < 5; round++) {
        use(20);
        pause_ms(60);
    }
    check();
    for (int i = 0; i < n; i++) {
        struct stat s;
        CHECK(fstat(mine[i], &s) == 0 && (int)s.st_ino == inode[i]);
    }
    struct stat s;
    CHECK(fstat(file, &s) == 0 && s.st_size == 0);
    char byte[64];
    CHECK(recv(pair[1], byte, sizeof byte, 0) == -1 && errno == EAGAIN);
    CHECK(send(pair[1], "x", 1, 0) == 1);
    pause_ms(60);
    use(20);
    CHECK(recv(pair[0], byte, sizeof byte, 0) == 1);
    eventfd_t count;
    if (eventfd_read(counter, &count) == 0)
        fprintf(stderr, "somebody counted %llu\n", (unsigned long long)count);
    puts("ok");
    return 0;
}
