/* Part of the BLAS-like library where the device is simulated: a kernel whose device time is exact and whose result costs
 * the host nothing, which products of matrices would. */
#include "../../testing/programs/hip/hip.h"

int fakeblas_spin(void *stream, uint64_t ns)
{
    return launch_as_compiled(&spin, 1, 1, stream, ARGS(&ns));
}
