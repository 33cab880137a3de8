/* One link of a chain of libraries: NAME calls NEXT. Built once for each link, with -DNAME=... -DNEXT=... */
#define CAT(a, b) a##b
#define JOIN(a, b) CAT(a, b)

int NEXT(const void *kernel, void *stream);

int NAME(const void *kernel, void *stream)
{
    volatile char room[64];
    room[0] = 1;
    /* Not a tail call: this frame stays on the stack. */
    int error = NEXT(kernel, stream);
    return error + room[0] - 1;
}

#ifdef VENDOR
/* What a vendor's library might do with scheduling domains. */
#define XSCHED_WEAK
#include "xsched/domain.h"

int runtime_stream(void **stream);

/* In its initialisation, and never restored. */
int vendor_init(void)
{
    return hipSetSchedulingDomain(HIP_SCHED_DOMAIN_SYSTEM);
}

int vendor_reset(void)
{
    return hipSetSchedulingDomain(HIP_SCHED_DOMAIN_AUTO);
}

/* The same by the function's plain name, as a library does that knows no header of ours. */
int vendor_init_plain(void)
{
    extern int plain(int) __asm__("hipSetSchedulingDomain") __attribute__((weak));
    volatile int error = plain(HIP_SCHED_DOMAIN_SYSTEM);
    return error;
}

int vendor_domain(void)
{
    hipSchedulingDomain domain;
    return hipGetSchedulingDomain(&domain) == 0 ? (int)domain : -1;
}

int vendor_stream(void **stream)
{
    volatile int error = runtime_stream(stream);
    return error;
}
#endif
