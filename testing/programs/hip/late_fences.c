/* A kernel in the null stream, then a blocking stream waits for what another one will write. "launch" on stdin: a
 * thread gives that one a kernel and the write; "end": the device is waited for. */
#include "hip.h"
#include <sys/syscall.h>

static hipStream_t first, other;
static uint32_t *word;

static void *launches(void *unused)
{
    printf("launch %ld\n", (long)syscall(SYS_gettid));
    fflush(stdout);
    OK(run_spin(1000, other));
    OK(hipStreamWriteValue32(other, word, 1, 0));
    return unused;
}

int main(void)
{
    pthread_t thread;
    char line[16];
    need_device();
    OK(hipHostMalloc(&word, sizeof *word, 0));
    *word = 0;
    OK(hipStreamCreate(&first));
    OK(hipStreamCreateWithFlags(&other, 0));
    OK(run_spin(1000, 0));
    OK(hipStreamWaitValue32(first, word, 1, WAIT_EQ, ~0u));
    puts("ready");
    fflush(stdout);
    CHECK("told to launch", fgets(line, sizeof line, stdin) && pthread_create(&thread, NULL, launches, NULL) == 0);
    CHECK("told to end", fgets(line, sizeof line, stdin) != NULL);
    pthread_join(thread, NULL);
    OK(hipDeviceSynchronize());
    CHECK("all is done", *word == 1);
    CHECKS_DONE;
}
