/* Requests beside those for queues: enough for AMD's runtime (libhsa-runtime64) to find its devices. */
#include "fakekfd.h"

#include <errno.h>

size_t fakekfd_more_size(unsigned number)
{
    (void)number;
    return 0;
}

int fakekfd_more(unsigned number, void *data)
{
    (void)number, (void)data;
    return -ENOTTY;
}
