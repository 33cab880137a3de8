/* Two ranks of a job: processes that wait for each other on their devices, as NCCL's kernels do: groups_ranks [ROUNDS].
 * Rank 0 is on the first device, rank 1 on the second if there is one. They share a page that both devices write to. */
#include "cu.h"
#include <sys/wait.h>

static CUdeviceptr registered(void *page)
{
    CUdeviceptr at;
    OK(cuMemHostRegister_v2(page, 4096, REGISTER_PORTABLE | REGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer_v2(&at, page, 0));
    return at;
}

static int rank(unsigned me, void *page, uint32_t rounds)
{
    CUstream s;
    int count = 0;
    cu_open();
    if (cuInit(0) != SUCCESS || cuDeviceGetCount(&count) != SUCCESS || count == 0) {
        fprintf(stderr, "no device\n");
        return 3;
    }
    OK(cuDeviceGet(&device, me % (unsigned)count));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    cu_functions();
    CUdeviceptr at = registered(page);
    OK(cuStreamCreate(&s, NON_BLOCKING));
    for (uint32_t i = 1; i <= rounds; i++) {
        OK(launch_spin(s, 200));
        OK(cuStreamWriteValue32_v2(s, at + 4 * me, i, 0));
        OK(cuStreamWaitValue32_v2(s, at + 4 * (1 - me), i, WAIT_GEQ));
        OK(launch_spin(s, 200));
        if (i % 8 == 0) {
            OK(cuStreamSynchronize(s));
            printf("rank %u %.0f\n", me, now_ms() * 1e6);
            fflush(stdout);
        }
    }
    OK(cuStreamSynchronize(s));
    return 0;
}

int main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100;
    int fd = memfd_create("ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING), good = 1;
    if (fd < 0 || ftruncate(fd, 4096) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        perror("memfd");
        return 3;
    }
    volatile uint32_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("mmap");
        return 3;
    }
    for (unsigned me = 0; me < 2; me++) {
        pid_t child = fork();
        if (child == 0) {
            exit(rank(me, (void *)page, rounds));
        }
        good &= child > 0;
        printf("pid %d\n", (int)child);
        fflush(stdout);
    }
    for (int status; wait(&status) > 0;) {
        good &= status == 0;
    }
    CHECK("ranks that wait for each other", good && page[0] == rounds && page[1] == rounds);
    CHECKS_DONE;
}
