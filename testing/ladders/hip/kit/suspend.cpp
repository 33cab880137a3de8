// How long it takes to suspend a running kernel through AMD's compute driver, and to let it go on, by the same requests
// that level 3 makes; and what that costs a program beside it.
//
//   suspend [--rounds N] [--requests-only]     prints one line of JSON, times in microseconds
//   suspend --bystander                        prints "ready", runs until its input ends, prints its longest pauses
//
// A kernel counts up a word of host memory; a thread watches it. `stopped`: from the beginning of the request until the
// last change. `running`: from the beginning of the request until the next change. With --requests-only the word is not
// watched, where no kernel runs. xsched must not be in this process: it would change the requests.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <linux/ioctl.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

// struct kfd_ioctl_create_queue_args and kfd_ioctl_update_queue_args of linux/kfd_ioctl.h: what is used of them.
struct Create {
    uint64_t ring_base, write, read, doorbell;
    uint32_t ring_size, gpu, type, percentage, priority, id;
    uint64_t eop, eop_size, save;
    uint32_t save_size, control_size;
};
struct Update {
    uint64_t ring_base;
    uint32_t id, ring_size, percentage, priority;
};
static const unsigned long CREATE = 0x02, UPDATE_REQUEST = _IOW('K', 0x07, Update);

using IoctlFn = int (*)(int, unsigned long, ...);
static IoctlFn next_ioctl;
static std::vector<Create> queues;
static int kfd = -1;

// The runtime's calls come by here, since the program is linked with -rdynamic: its compute queues are remembered.
extern "C" int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (!next_ioctl) {
        next_ioctl = (IoctlFn)dlsym(RTLD_NEXT, "ioctl");
    }
    const int rc = next_ioctl(fd, request, argument);
    if (rc == 0 && _IOC_TYPE(request) == 'K' && _IOC_NR(request) == CREATE && _IOC_SIZE(request) >= sizeof(Create)) {
        Create made;
        memcpy(&made, argument, sizeof made);
        if (made.type == 0 || made.type == 2) {
            queues.push_back(made);
            kfd = fd;
        }
    }
    return rc;
}

static void check(hipError_t error, const char *what)
{
    if (error != hipSuccess) {
        fprintf(stderr, "suspend: %s: %s\n", what, hipGetErrorString(error));
        exit(3);
    }
}

// Sets all compute queues of this process to a percentage.
static void set_all(uint32_t percentage)
{
    for (const Create &q : queues) {
        Update update = {q.ring_base, q.id, q.ring_size, percentage, q.priority};
        while (next_ioctl(kfd, UPDATE_REQUEST, &update) != 0) {
            if (errno != EINTR && errno != EAGAIN) {
                fprintf(stderr, "suspend: the driver refuses to set queue %u to %u %%: %s\n", q.id, percentage,
                        strerror(errno));
                exit(3);
            }
        }
    }
}

using Clock = std::chrono::steady_clock;
static double us_since(Clock::time_point begin)
{
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

__global__ void beat(volatile unsigned long *count, volatile unsigned *stop)
{
    while (!*stop) {
        *count = *count + 1;
        __threadfence_system();
    }
}

struct Heart {
    unsigned long *count;
    unsigned *stop;
    hipStream_t stream;

    Heart()
    {
        check(hipHostMalloc((void **)&count, 64, hipHostMallocCoherent), "hipHostMalloc");
        check(hipHostMalloc((void **)&stop, 64, hipHostMallocCoherent), "hipHostMalloc");
        *count = 0, *stop = 0;
        check(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreate");
        beat<<<1, 1, 0, stream>>>(count, stop);
        check(hipGetLastError(), "launch");
    }
    ~Heart()
    {
        __atomic_store_n(stop, 1u, __ATOMIC_SEQ_CST);
        (void)hipStreamSynchronize(stream);
    }
    unsigned long now() const { return __atomic_load_n(count, __ATOMIC_RELAXED); }
    bool runs_within(double us) const
    {
        const auto begin = Clock::now();
        const unsigned long before = now();
        while (now() == before) {
            if (us_since(begin) > us) return false;
        }
        return true;
    }
};

static std::string figures(std::vector<double> values)
{
    if (values.empty()) return "null";
    std::sort(values.begin(), values.end());
    char text[200];
    const auto at = [&](double q) { return values[size_t(q * double(values.size() - 1) + 0.5)]; };
    snprintf(text, sizeof text, "{\"n\":%zu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", values.size(), at(0.5),
             at(0.9), at(0.99), values.back());
    return text;
}

static int bystander()
{
    Heart heart;
    if (!heart.runs_within(2e6)) {
        fprintf(stderr, "suspend: the kernel does not run\n");
        return 3;
    }
    puts("ready");
    fflush(stdout);
    std::atomic<bool> over{false};
    std::thread input([&] {
        char byte;
        while (read(0, &byte, 1) > 0) {
        }
        over = true;
    });
    // Pauses of at least 20 us: the device did something else.
    std::vector<double> pauses;
    unsigned long before = heart.now();
    auto changed = Clock::now();
    while (!over) {
        const unsigned long count = heart.now();
        if (count != before) {
            const double pause = us_since(changed);
            if (pause >= 20) pauses.push_back(pause);
            before = count;
            changed = Clock::now();
        }
    }
    input.join();
    printf("{\"pauses_us\":%s}\n", figures(pauses).c_str());
    return 0;
}

int main(int argc, char **argv)
{
    int rounds = 200;
    bool watch = true;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bystander")) return bystander();
        if (!strcmp(argv[i], "--requests-only")) {
            watch = false;
        } else if (!strcmp(argv[i], "--rounds") && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            rounds = atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: %s [--rounds N] [--requests-only] | --bystander\n", argv[0]);
            return 2;
        }
    }
    Heart heart;
    if (queues.empty()) {
        fprintf(stderr, "suspend: no queue was seen: does this runtime make its queues through /dev/kfd?\n");
        return 3;
    }
    if (watch && !heart.runs_within(2e6)) {
        fprintf(stderr, "suspend: the kernel does not run\n");
        return 3;
    }
    std::vector<double> suspend, stopped, resume, running;
    int kept_running = 0;
    for (int round = 0; round < rounds; round++) {
        // The last change is seen by a thread that never sleeps.
        std::atomic<double> last{0};
        std::atomic<bool> enough{false};
        const auto begin = Clock::now();
        std::thread eye([&] {
            unsigned long before = heart.now();
            while (watch && !enough) {
                const unsigned long count = heart.now();
                if (count != before) {
                    before = count;
                    last = us_since(begin);
                }
            }
        });
        const auto asked = us_since(begin);
        set_all(0);
        suspend.push_back(us_since(begin) - asked);
        std::this_thread::sleep_for(std::chrono::milliseconds(watch ? 20 : 1));
        enough = true;
        eye.join();
        if (watch) {
            if (heart.runs_within(2e4)) {
                kept_running++;
            } else {
                stopped.push_back(std::max(0.0, last.load() - asked));
            }
        }
        const auto again = Clock::now();
        const unsigned long before = heart.now();
        set_all(100);
        resume.push_back(us_since(again));
        if (watch) {
            while (heart.now() == before) {
                if (us_since(again) > 5e6) {
                    fprintf(stderr, "suspend: the kernel does not go on\n");
                    return 3;
                }
            }
            running.push_back(us_since(again));
        }
    }
    printf("{\"rounds\":%d,\"queues\":%zu,\"save_bytes\":%u,\"suspend_request_us\":%s,\"stopped_us\":%s,"
           "\"resume_request_us\":%s,\"running_us\":%s,\"kept_running\":%d}\n",
           rounds, queues.size(), queues.back().save_size, figures(suspend).c_str(), figures(stopped).c_str(),
           figures(resume).c_str(), figures(running).c_str(), kept_running);
    return 0;
}
