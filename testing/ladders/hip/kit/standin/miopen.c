/* A stand-in for MIOpen over the software HIP runtime's kernels: a convolution of each channel of the padded input,
 * added up, for a padding of one and steps of one. */
#include "miopen/miopen.h"
#include "../../../../programs/hip/hip.h"

struct miopenHandle {
    float *plane, *part; /* a padded channel, and its convolution */
};
struct miopenTensorDescriptor {
    unsigned n, c, h, w;
};
struct miopenConvolutionDescriptor {
    int fits;
};
enum { MOST = 64 * 64 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != SUCCESS)                                                                                         \
            return miopenStatusUnknownError;                                                                           \
    } while (0)

miopenStatus_t miopenCreate(miopenHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    TRY(hipMalloc(&(*handle)->plane, MOST * sizeof(float)));
    TRY(hipMalloc(&(*handle)->part, MOST * sizeof(float)));
    return miopenStatusSuccess;
}

miopenStatus_t miopenDestroy(miopenHandle_t handle)
{
    TRY(hipFree(handle->plane));
    TRY(hipFree(handle->part));
    free(handle);
    return miopenStatusSuccess;
}

miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t *made)
{
    *made = calloc(1, sizeof **made);
    return miopenStatusSuccess;
}

miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t d, miopenDataType_t type, int n, int c, int h,
                                           int w)
{
    *d = (struct miopenTensorDescriptor){ (unsigned)n, (unsigned)c, (unsigned)h, (unsigned)w };
    return type == miopenFloat && (h + 2) * (w + 2) <= MOST ? miopenStatusSuccess : miopenStatusNotImplemented;
}

miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t *made)
{
    *made = calloc(1, sizeof **made);
    return miopenStatusSuccess;
}

miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t d, miopenConvolutionMode_t mode, int pad_h,
                                               int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w)
{
    d->fits = mode == miopenConvolution && pad_h == 1 && pad_w == 1 && stride_h == 1 && stride_w == 1 &&
              dilation_h == 1 && dilation_w == 1;
    return d->fits ? miopenStatusSuccess : miopenStatusNotImplemented;
}

miopenStatus_t miopenConvolutionForwardGetWorkSpaceSize(miopenHandle_t handle, const miopenTensorDescriptor_t w,
                                                        const miopenTensorDescriptor_t x,
                                                        const miopenConvolutionDescriptor_t conv,
                                                        const miopenTensorDescriptor_t y, size_t *bytes)
{
    (void)handle, (void)w, (void)x, (void)conv, (void)y;
    *bytes = 4096;
    return miopenStatusSuccess;
}

miopenStatus_t miopenFindConvolutionForwardAlgorithm(miopenHandle_t handle, const miopenTensorDescriptor_t dx,
                                                     const void *x, const miopenTensorDescriptor_t dw, const void *w,
                                                     const miopenConvolutionDescriptor_t conv,
                                                     const miopenTensorDescriptor_t dy, void *y, int most, int *count,
                                                     miopenConvAlgoPerf_t *found, void *space, size_t bytes,
                                                     bool exhaustive)
{
    (void)exhaustive;
    if (most < 1 || !space || bytes < 4096)
        return miopenStatusNotImplemented;
    *count = 1;
    *found = (miopenConvAlgoPerf_t){ miopenConvolutionFwdAlgoDirect, 1, bytes };
    float one = 1, zero = 0;
    return miopenConvolutionForward(handle, &one, dx, x, dw, w, conv, found->fwd_algo, &zero, dy, y, space, bytes);
}

miopenStatus_t miopenConvolutionForward(miopenHandle_t handle, const void *alpha, const miopenTensorDescriptor_t dx,
                                        const void *x, const miopenTensorDescriptor_t dw, const void *w,
                                        const miopenConvolutionDescriptor_t conv, miopenConvFwdAlgorithm_t algorithm,
                                        const void *beta, const miopenTensorDescriptor_t dy, void *y, void *space,
                                        size_t bytes)
{
    (void)space, (void)bytes;
    unsigned plane = dx->h * dx->w, filter = dw->h * dw->w, h = dx->h + 2, wide = dx->w + 2;
    if (*(const float *)alpha != 1 || *(const float *)beta != 0 || !conv->fits || dw->h != 3 || dw->w != 3 ||
        algorithm != miopenConvolutionFwdAlgoDirect || dx->c != dw->c || dy->c != dw->n || dx->n != dy->n)
        return miopenStatusNotImplemented;
    TRY(run_fill(handle->plane, h * wide, 0, 0));
    for (unsigned n = 0; n < dx->n; n++)
        for (unsigned k = 0; k < dw->n; k++) {
            float *to = (float *)y + (n * dw->n + k) * plane;
            TRY(run_fill(to, plane, 0, 0));
            for (unsigned c = 0; c < dx->c; c++) {
                const float *from = (const float *)x + (n * dx->c + c) * plane;
                const float *by = (const float *)w + (k * dw->c + c) * filter;
                TRY(hipMemcpy2D(handle->plane + wide + 1, wide * 4, from, dx->w * 4, dx->w * 4, dx->h,
                                DEVICE_TO_DEVICE));
                TRY(launch_as_compiled(&conv2d, BLOCKS(plane), 256, 0,
                                       ARGS(&h, &wide, &dw->h, &dw->w, &handle->plane, &by, &handle->part)));
                TRY(run_axpy(1, handle->part, to, plane, 0));
            }
        }
    return miopenStatusSuccess;
}
