/* AMD's RCCL with one rank, which is what works where kernels do not run: several would wait for each other in them. */
#include <rccl/rccl.h>

#include "says.h"

int main()
{
    int version = 0, ranks = 0;
    ncclUniqueId id;
    ncclComm_t communicator = nullptr;
    hipStream_t stream;
    SAYS(ncclGetVersion(&version));
    printf("version %d\n", version);
    SAYS(hipStreamCreate(&stream));
    SAYS(ncclGetUniqueId(&id));
    SAYS(ncclCommInitRank(&communicator, 1, id, 0));
    if (!communicator) {
        return 1;
    }
    SAYS(ncclCommCount(communicator, &ranks));
    printf("ranks %d\n", ranks);
    float *in = buffer<float>(), *out = buffer<float>();
    ALL(50, ncclAllReduce(in, out, 1024, ncclFloat, ncclSum, communicator, stream));
    ALL(20, ncclBroadcast(in, out, 1024, ncclFloat, 0, communicator, stream));
    ALL(20, ncclAllGather(in, out, 1024, ncclFloat, communicator, stream));
    SAYS(hipStreamSynchronize(stream));
    SAYS(ncclCommDestroy(communicator));
    SAYS(hipFree(in));
    SAYS(hipFree(out));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipGetLastError());
    return 0;
}
