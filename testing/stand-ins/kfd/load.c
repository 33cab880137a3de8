/* Keeps a queue of the first GPU filled with packets, through AMD's runtime alone, and does what it is told by lines:
 *
 *   count             prints "given N taken M"
 *   pause, go         stops filling, fills again
 *   priority low|normal|high, suspend, resume      of its queue, by its runtime
 *   another           makes and destroys a second queue, packets in between; prints "another"
 *   closeall          closes every descriptor but the standard ones and those of its runtime
 *   fork              a child uses the parent's runtime; prints "child ERRNO"
 *   leave             prints "left" and calls exit() at once
 *   end               destroys the queue and ends
 *
 * Prints "ready", then CLOCK_MONOTONIC in ns after each 16 packets that the device took. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

hsa_status_t fakehsa_suspend(hsa_queue_t *queue, bool on) __attribute__((weak));

static hsa_queue_t *queue;
static hsa_agent_t gpu;
static atomic_bool filling = true, over;

static void check(hsa_status_t status, const char *what)
{
    if (status != HSA_STATUS_SUCCESS) {
        printf("failed: %s: %#x\n", what, status);
        exit(1);
    }
}

static hsa_status_t first_gpu(hsa_agent_t agent, void *found)
{
    hsa_device_type_t type;
    hsa_status_t status = hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
    if (status == HSA_STATUS_SUCCESS && type == HSA_DEVICE_TYPE_GPU && !((hsa_agent_t *)found)->handle) {
        *(hsa_agent_t *)found = agent;
    }
    return status;
}

/* A barrier that waits for nothing: the shortest packet. */
static void put(hsa_queue_t *q)
{
    uint64_t at = hsa_queue_add_write_index_relaxed(q, 1);
    hsa_barrier_and_packet_t *packet = (hsa_barrier_and_packet_t *)q->base_address + at % q->size;
    memset((char *)packet + 4, 0, sizeof *packet - 4);
    uint16_t header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER;
    __atomic_store_n((uint32_t *)packet, header, __ATOMIC_RELEASE);
    hsa_signal_store_relaxed(q->doorbell_signal, (hsa_signal_value_t)at);
}

static void *fill(void *unused)
{
    (void)unused;
    uint64_t told = 0;
    while (!over) {
        uint64_t taken = hsa_queue_load_read_index_relaxed(queue), given = hsa_queue_load_write_index_relaxed(queue);
        if (taken >= told + 16) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
            told = taken;
        }
        if (filling && given - taken < 32) {
            put(queue);
        } else {
            usleep(200);
        }
    }
    return NULL;
}

static void another(void)
{
    hsa_queue_t *second;
    check(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, 0, 0, &second), "hsa_queue_create");
    for (int i = 0; i < 8; i++) {
        put(second);
    }
    while (hsa_queue_load_read_index_relaxed(second) < 8) {
        usleep(200);
    }
    check(hsa_queue_destroy(second), "hsa_queue_destroy");
    puts("another");
}

/* Descriptors that were there when the runtime was up stay open: it is not its program's to close them. */
static void close_all(int first)
{
    for (int fd = first; fd < 4096; fd++) {
        close(fd);
    }
}

static void fork_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        /* As a library of the parent's would, in ignorance. */
        bool failed = hsa_amd_queue_set_priority(queue, HSA_AMD_QUEUE_PRIORITY_LOW) != HSA_STATUS_SUCCESS;
        printf("child %d\n", failed ? errno : 0);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(hsa_init(), "hsa_init");
    check(hsa_iterate_agents(first_gpu, &gpu), "hsa_iterate_agents");
    int first = open("/dev/null", O_RDONLY);
    close(first);
    check(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, 0, 0, &queue), "hsa_queue_create");
    puts("ready");
    pthread_t thread;
    pthread_create(&thread, NULL, fill, NULL);
    char line[64], level[16];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "count")) {
            uint64_t taken = hsa_queue_load_read_index_relaxed(queue);
            printf("given %llu taken %llu\n", (unsigned long long)hsa_queue_load_write_index_relaxed(queue),
                   (unsigned long long)taken);
        } else if (!strcmp(line, "pause") || !strcmp(line, "go")) {
            filling = !strcmp(line, "go");
        } else if (sscanf(line, "priority %15s", level) == 1) {
            hsa_amd_queue_priority_t priority = !strcmp(level, "low")    ? HSA_AMD_QUEUE_PRIORITY_LOW
                                                : !strcmp(level, "high") ? HSA_AMD_QUEUE_PRIORITY_HIGH
                                                                         : HSA_AMD_QUEUE_PRIORITY_NORMAL;
            check(hsa_amd_queue_set_priority(queue, priority), "hsa_amd_queue_set_priority");
            puts("priority");
        } else if ((!strcmp(line, "suspend") || !strcmp(line, "resume")) && fakehsa_suspend) {
            check(fakehsa_suspend(queue, !strcmp(line, "suspend")), line);
            puts("done");
        } else if (!strcmp(line, "another")) {
            another();
        } else if (!strcmp(line, "closeall")) {
            close_all(first);
            puts("closed");
        } else if (!strcmp(line, "fork")) {
            fork_child();
        } else if (!strcmp(line, "leave")) {
            puts("left");
            exit(0);
        } else if (!strcmp(line, "end")) {
            break;
        }
    }
    over = true;
    pthread_join(thread, NULL);
    check(hsa_queue_destroy(queue), "hsa_queue_destroy");
    check(hsa_shut_down(), "hsa_shut_down");
    return 0;
}
