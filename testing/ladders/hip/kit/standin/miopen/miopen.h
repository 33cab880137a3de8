/* What the kit uses of MIOpen's interface, for trying the kit on the software HIP runtime: see miopen.c. */
#ifndef MIOPEN_H
#define MIOPEN_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct miopenHandle *miopenHandle_t;
typedef struct miopenTensorDescriptor *miopenTensorDescriptor_t;
typedef struct miopenConvolutionDescriptor *miopenConvolutionDescriptor_t;
typedef enum { miopenStatusSuccess, miopenStatusNotImplemented = 6, miopenStatusUnknownError } miopenStatus_t;
typedef enum { miopenHalf, miopenFloat } miopenDataType_t;
typedef enum { miopenConvolution } miopenConvolutionMode_t;
typedef enum { miopenConvolutionFwdAlgoGEMM, miopenConvolutionFwdAlgoDirect } miopenConvFwdAlgorithm_t;
typedef struct {
    miopenConvFwdAlgorithm_t fwd_algo;
    float time;
    size_t memory;
} miopenConvAlgoPerf_t;

miopenStatus_t miopenCreate(miopenHandle_t *handle);
miopenStatus_t miopenDestroy(miopenHandle_t handle);
miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t *made);
miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t d, miopenDataType_t type, int n, int c, int h,
                                           int w);
miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t *made);
miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t d, miopenConvolutionMode_t mode, int pad_h,
                                               int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w);
miopenStatus_t miopenConvolutionForwardGetWorkSpaceSize(miopenHandle_t handle, const miopenTensorDescriptor_t w,
                                                        const miopenTensorDescriptor_t x,
                                                        const miopenConvolutionDescriptor_t conv,
                                                        const miopenTensorDescriptor_t y, size_t *bytes);
miopenStatus_t miopenFindConvolutionForwardAlgorithm(miopenHandle_t handle, const miopenTensorDescriptor_t dx,
                                                     const void *x, const miopenTensorDescriptor_t dw, const void *w,
                                                     const miopenConvolutionDescriptor_t conv,
                                                     const miopenTensorDescriptor_t dy, void *y, int most, int *count,
                                                     miopenConvAlgoPerf_t *found, void *space, size_t bytes,
                                                     bool exhaustive);
miopenStatus_t miopenConvolutionForward(miopenHandle_t handle, const void *alpha, const miopenTensorDescriptor_t dx,
                                        const void *x, const miopenTensorDescriptor_t dw, const void *w,
                                        const miopenConvolutionDescriptor_t conv, miopenConvFwdAlgorithm_t algorithm,
                                        const void *beta, const miopenTensorDescriptor_t dy, void *y, void *space,
                                        size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
