/* Scheduling domains: the owner of a launch, a vendor's library or the program. Exported by libxsched.so, under one name for
 * HIP and one for CUDA with the same effect. A program that may run without xsched declares the functions weak (define
 * XSCHED_WEAK before including this) and checks whether they are there.
 *
 * Domain of a launch or of a new stream:
 *   1. the one that the calling thread pushed last, until it pops it;
 *   2. else the one that the library that calls the device's interface has set on this thread;
 *   3. else, for a launch, the one that its stream was made with, if that was explicit;
 *   4. else AUTO: SYSTEM if the caller is a known vendor library (hipBLAS, MIOpen, cuDNN, ...), APPLICATION if not.
 *
 * Set binds to the code of the library that calls it, on the calling thread: one that sets SYSTEM in its
 * initialisation and never restores it changes nothing for its caller. Through a foreign function interface (ctypes,
 * libffi) the caller is that interface: use push and pop from there. Without this header the library is told by the
 * address that the call returns to, so that it must not be a tail call; with it, by its own __dso_handle.
 *
 * Streams made under explicit SYSTEM go before the other streams of the same process and priority while they have work;
 * never before another program's of a higher class, unless an operator's rule says so (system_ceiling). AUTO only
 * reports. Default streams are shared and stay APPLICATION. An operator may let all SYSTEM launches, explicit or found, go
 * ahead in any stream, or exempt them from waiting (`domains` in the daemon's configuration).
 *
 * Return values: 0 = success, 1 = invalid value (no such domain, null pointer), 2 = out of memory (more than 32 pushed),
 * 401 = illegal state (nothing to pop; set from code that belongs to no library). Both vendors number them so. */
#ifndef XSCHED_DOMAIN_H
#define XSCHED_DOMAIN_H

#ifdef __cplusplus
extern "C" {
#endif

#ifdef XSCHED_WEAK
#define XSCHED_DOMAIN_FUNCTION __attribute__((weak))
#else
#define XSCHED_DOMAIN_FUNCTION
#endif

typedef enum hipSchedulingDomain {
    HIP_SCHED_DOMAIN_SYSTEM = 0,      /* a vendor library's work: ahead of the program's own, not held back by it */
    HIP_SCHED_DOMAIN_APPLICATION = 1, /* schedulable and preemptible */
    HIP_SCHED_DOMAIN_AUTO = 2         /* found out by call site */
} hipSchedulingDomain;

typedef hipSchedulingDomain XSchedulingDomain;
enum { XSCHED_DOMAIN_SYSTEM = 0, XSCHED_DOMAIN_APPLICATION = 1, XSCHED_DOMAIN_AUTO = 2 };

/* hip_runtime_api.h has hipError_t, whose values these are. */
#ifdef HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
#define XSCHED_HIP_ERROR hipError_t
#else
#define XSCHED_HIP_ERROR int
#endif

XSCHED_DOMAIN_FUNCTION XSCHED_HIP_ERROR hipSetSchedulingDomain(hipSchedulingDomain domain);
XSCHED_DOMAIN_FUNCTION XSCHED_HIP_ERROR hipGetSchedulingDomain(hipSchedulingDomain *domain); /* AUTO if nothing is set */
XSCHED_DOMAIN_FUNCTION XSCHED_HIP_ERROR hipPushSchedulingDomain(hipSchedulingDomain domain);
XSCHED_DOMAIN_FUNCTION XSCHED_HIP_ERROR hipPopSchedulingDomain(void);

XSCHED_DOMAIN_FUNCTION int XSetSchedulingDomain(XSchedulingDomain domain);
XSCHED_DOMAIN_FUNCTION int XGetSchedulingDomain(XSchedulingDomain *domain);
XSCHED_DOMAIN_FUNCTION int XPushSchedulingDomain(XSchedulingDomain domain);
XSCHED_DOMAIN_FUNCTION int XPopSchedulingDomain(void);

/* Set and get for the library that holds the address `within`. */
XSCHED_DOMAIN_FUNCTION int XSetSchedulingDomainFor(XSchedulingDomain domain, const void *within);
XSCHED_DOMAIN_FUNCTION int XGetSchedulingDomainFor(XSchedulingDomain *domain, const void *within);

#ifndef XSCHED_PLAIN_DOMAINS
extern void *__dso_handle __attribute__((visibility("hidden")));
#define XSetSchedulingDomain(domain) XSetSchedulingDomainFor((domain), &__dso_handle)
#define XGetSchedulingDomain(domain) XGetSchedulingDomainFor((domain), &__dso_handle)
#define hipSetSchedulingDomain(domain) ((XSCHED_HIP_ERROR)XSetSchedulingDomainFor((domain), &__dso_handle))
#define hipGetSchedulingDomain(domain) ((XSCHED_HIP_ERROR)XGetSchedulingDomainFor((domain), &__dso_handle))
#endif

#ifdef __cplusplus
}
#endif
#endif
