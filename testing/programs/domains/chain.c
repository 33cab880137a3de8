/* Launches by itself, through a runtime, and through a chain of libraries of which the last is a vendor's; does what it
 * is told by lines, each answered by "ok" (or a number). Prints the device's own count of launches at the end. */
#include "../hazards/hazard.h"
#define XSCHED_WEAK
#include "xsched/domain.h"

int stage1(const void *kernel, void *stream);
int runtime_launch(const void *kernel, void *stream);
int vendor_init(void);
int vendor_init_plain(void);
int vendor_reset(void);
int vendor_domain(void);
int vendor_stream(void **stream);

typedef int (*launch_fn)(const void *, void *);

__attribute__((noinline)) static int own(const void *kernel, void *stream)
{
    return simLaunchKernel(kernel, stream);
}

static void several(struct work *w, launch_fn how, long n, long us)
{
    for (long i = 0; i < n; i++) {
        simKernel k = next_kernel(w, us);
        SIM(how(&k, w->stream));
    }
}

/* One work for each stream: the program's, and what the vendor's library made. */
int main(void)
{
    struct work w, v = { 0 };
    start_work(&w, 0);
    say("ready");
    char line[64], what[32];
    while (fgets(line, sizeof line, stdin)) {
        long n = 0, us = 0, answer = 0;
        if (sscanf(line, "%31s %ld %ld", what, &n, &us) < 1)
            continue;
        if (!strcmp(what, "own"))
            several(&w, own, n, us);
        else if (!strcmp(what, "runtime"))
            several(&w, runtime_launch, n, us);
        else if (!strcmp(what, "vendor"))
            several(&w, stage1, n, us);
        else if (!strcmp(what, "mixed"))
            for (long i = 0; i < n; i++) {
                several(&w, runtime_launch, 1, us);
                several(&w, stage1, 1, us);
                several(&w, own, 1, us);
            }
        else if (!strcmp(what, "fill"))
            SIM(simMemsetAsync(w.y, 0, 0, w.stream));
        else if (!strcmp(what, "vendor_stream")) {
            SIM(vendor_stream((void **)&v.stream));
            SIM(simMalloc((void **)&v.y, sizeof v.expected));
            SIM(simMemsetAsync(v.y, 0, sizeof v.expected, v.stream));
        } else if (!strcmp(what, "on_vendor_stream"))
            several(&v, stage1, n, us);
        else if (!strcmp(what, "sync")) {
            SIM(simStreamSynchronize(w.stream));
            if (v.stream)
                SIM(simStreamSynchronize(v.stream));
        } else if (!strcmp(what, "init"))
            answer = vendor_init();
        else if (!strcmp(what, "init_plain"))
            answer = vendor_init_plain();
        else if (!strcmp(what, "reset"))
            answer = vendor_reset();
        else if (!strcmp(what, "vendor_domain"))
            answer = vendor_domain();
        else if (!strcmp(what, "domain")) {
            XSchedulingDomain domain;
            answer = XGetSchedulingDomain(&domain) == 0 ? (long)domain : -1;
        } else if (!strcmp(what, "set"))
            answer = XSetSchedulingDomain((XSchedulingDomain)n);
        else if (!strcmp(what, "push"))
            answer = XPushSchedulingDomain((XSchedulingDomain)n);
        else if (!strcmp(what, "pop"))
            answer = XPopSchedulingDomain();
        else if (!strcmp(what, "end"))
            break;
        printf("%s %ld\n", what, answer);
        fflush(stdout);
    }
    if (v.stream)
        end_work(&v);
    end_work(&w);
    report();
    say("ok");
    return 0;
}
