/* Seven libraries that call each other like an application's: program, plugin, framework, operators, dispatch, planning,
 * and at the end the vendor's kernels. Each is a file of its own; what they pass on is the same throughout. */
#ifndef CHAIN_H
#define CHAIN_H

/* What is asked for: a BLAS-like product, a convolution, a transform, a collective. Gives 0, or a HIP error. */
enum job { BLAS, CONVOLUTION, TRANSFORM, COLLECTIVE };

#define STEP(from, to)                                                                                                 \
    int to(enum job, void *);                                                                                          \
    int from(enum job job, void *stream)                                                                               \
    {                                                                                                                  \
        int result = to(job, stream);                                                                                  \
        return result; /* no tail call: every library stays on the stack */                                           \
    }

#endif
