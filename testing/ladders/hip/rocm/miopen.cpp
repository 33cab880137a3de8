/* AMD's MIOpen: its handle, a convolution by what it finds and at once, an activation, pooling. Kernels are compiled while
 * it runs, by AMD's own compiler. Release 6.4 starts that by an absolute path: ROCM_CLANG names the one to start instead. */
#include <dlfcn.h>
#include <miopen/miopen.h>

#include <string>

#include "says.h"

/* What MIOpen starts its compiler by; the C library's function is the one behind. */
extern "C" FILE *popen(const char *command, const char *mode)
{
    using popen_t = FILE *(*)(const char *, const char *);
    static const popen_t real = (popen_t)dlsym(RTLD_NEXT, "popen");
    const char *compiler = getenv("ROCM_CLANG");
    std::string line = command;
    /* The program is the first word that ends in clang, clang++, clang-N or clang++-N. */
    const size_t end = line.find_first_of(" '\"", line.find("/clang"));
    const size_t at = line.rfind("/clang", end);
    if (compiler && at != std::string::npos) {
        const size_t before = line.find_last_of(" '\"", at);
        const size_t begin = before == std::string::npos ? 0 : before + 1;
        line.replace(begin, (end == std::string::npos ? line.size() : end) - begin, compiler);
    }
    return real(line.c_str(), mode);
}

int main()
{
    const float one = 1, zero = 0;
    miopenHandle_t handle;
    hipStream_t stream;
    miopenTensorDescriptor_t x, w, y;
    miopenConvolutionDescriptor_t convolution;
    miopenActivationDescriptor_t activation;
    miopenPoolingDescriptor_t pooling;
    miopenConvAlgoPerf_t found[4];
    miopenConvSolution_t solutions[8];
    int n, c, h, wide, count = 0;
    size_t bytes = 0, solved = 0;
    SAYS(hipStreamCreate(&stream));
    SAYS(miopenCreateWithStream(&handle, stream));
    SAYS(miopenCreateTensorDescriptor(&x));
    SAYS(miopenCreateTensorDescriptor(&w));
    SAYS(miopenCreateTensorDescriptor(&y));
    SAYS(miopenCreateConvolutionDescriptor(&convolution));
    SAYS(miopenSet4dTensorDescriptor(x, miopenFloat, 2, 16, 28, 28));
    SAYS(miopenSet4dTensorDescriptor(w, miopenFloat, 16, 16, 3, 3));
    SAYS(miopenInitConvolutionDescriptor(convolution, miopenConvolution, 1, 1, 1, 1, 1, 1));
    SAYS(miopenGetConvolutionForwardOutputDim(convolution, x, w, &n, &c, &h, &wide));
    printf("output %d %d %d %d\n", n, c, h, wide);
    SAYS(miopenSet4dTensorDescriptor(y, miopenFloat, n, c, h, wide));
    void *in = buffer(), *weights = buffer(), *out = buffer(), *workspace = nullptr;
    SAYS(miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, convolution, y, &bytes));
    printf("workspace %zu\n", bytes);
    SAYS(hipMalloc(&workspace, bytes + 256));
    SAYS(miopenConvolutionForwardGetSolutionCount(handle, w, x, convolution, y, &solved));
    SAYS(miopenConvolutionForwardGetSolution(handle, w, x, convolution, y, 8, &solved, solutions));
    /* The slowest, which is the one without conditions, is compiled and run. */
    if (solved) {
        uint64_t which = solutions[solved - 1].solution_id;
        printf("solution %llu\n", (unsigned long long)which);
        SAYS(miopenConvolutionForwardCompileSolution(handle, w, x, convolution, y, which));
        ALL(20, miopenConvolutionForwardImmediate(handle, w, weights, x, in, convolution, y, out, workspace, bytes + 256,
                                                  which));
    }
    SAYS(miopenFindConvolutionForwardAlgorithm(handle, x, in, w, weights, convolution, y, out, 4, &count, found,
                                               workspace, bytes + 256, false));
    printf("found %d\n", count > 0);
    SAYS(miopenCreateActivationDescriptor(&activation));
    SAYS(miopenSetActivationDescriptor(activation, miopenActivationRELU, 0, 0, 0));
    ALL(20, miopenActivationForward(handle, activation, &one, x, in, &zero, x, out));
    SAYS(miopenCreatePoolingDescriptor(&pooling));
    SAYS(miopenSet2dPoolingDescriptor(pooling, miopenPoolingMax, 2, 2, 0, 0, 2, 2));
    SAYS(miopenGetPoolingForwardOutputDim(pooling, x, &n, &c, &h, &wide));
    SAYS(miopenSet4dTensorDescriptor(y, miopenFloat, n, c, h, wide));
    ALL(20, miopenPoolingForward(handle, pooling, &one, x, in, &zero, y, out, false, nullptr, 0));
    SAYS(hipStreamSynchronize(stream));
    SAYS(miopenDestroyPoolingDescriptor(pooling));
    SAYS(miopenDestroyActivationDescriptor(activation));
    SAYS(miopenDestroyConvolutionDescriptor(convolution));
    SAYS(miopenDestroyTensorDescriptor(x));
    SAYS(miopenDestroyTensorDescriptor(w));
    SAYS(miopenDestroyTensorDescriptor(y));
    SAYS(miopenDestroy(handle));
    SAYS(hipStreamDestroy(stream));
    SAYS(hipGetLastError());
    return 0;
}
