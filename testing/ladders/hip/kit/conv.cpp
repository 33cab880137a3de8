// A convolution through MIOpen, forward, of small whole numbers: compared with the host's own, exactly.
#include <hip/hip_runtime.h>
#include <miopen/miopen.h>

#include <cstdio>
#include <vector>

#include "check.h"

enum { N = 2, C = 3, H = 16, W = 16, K = 4, R = 3 };

static std::vector<float> expected(const std::vector<float> &x, const std::vector<float> &w)
{
    std::vector<float> y(N * K * H * W);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            for (int i = 0; i < H; i++)
                for (int j = 0; j < W; j++) {
                    float sum = 0;
                    for (int c = 0; c < C; c++)
                        for (int u = 0; u < R; u++)
                            for (int v = 0; v < R; v++) {
                                const int p = i + u - 1, q = j + v - 1;
                                if (p >= 0 && p < H && q >= 0 && q < W)
                                    sum += x[((n * C + c) * H + p) * W + q] * w[((k * C + c) * R + u) * R + v];
                            }
                    y[((n * K + k) * H + i) * W + j] = sum;
                }
    return y;
}

static float *on_device(const std::vector<float> &values)
{
    float *at;
    CHECK(hipMalloc((void **)&at, values.size() * sizeof(float)), hipSuccess);
    CHECK(hipMemcpy(at, values.data(), values.size() * sizeof(float), hipMemcpyHostToDevice), hipSuccess);
    return at;
}

int main(int argc, char **argv)
{
    const int rounds = rounds_of(argc, argv, 20);
    std::vector<float> x(N * C * H * W), w(K * C * R * R);
    for (size_t i = 0; i < x.size(); i++) x[i] = float(i * 7 % 13) - 6;
    for (size_t i = 0; i < w.size(); i++) w[i] = float(i * 5 % 9) - 4;
    const std::vector<float> right = expected(x, w);
    std::vector<float> y(right.size());

    miopenHandle_t handle;
    miopenTensorDescriptor_t dx, dw, dy;
    miopenConvolutionDescriptor_t conv;
    CHECK(miopenCreate(&handle), miopenStatusSuccess);
    CHECK(miopenCreateTensorDescriptor(&dx), miopenStatusSuccess);
    CHECK(miopenCreateTensorDescriptor(&dw), miopenStatusSuccess);
    CHECK(miopenCreateTensorDescriptor(&dy), miopenStatusSuccess);
    CHECK(miopenSet4dTensorDescriptor(dx, miopenFloat, N, C, H, W), miopenStatusSuccess);
    CHECK(miopenSet4dTensorDescriptor(dw, miopenFloat, K, C, R, R), miopenStatusSuccess);
    CHECK(miopenSet4dTensorDescriptor(dy, miopenFloat, N, K, H, W), miopenStatusSuccess);
    CHECK(miopenCreateConvolutionDescriptor(&conv), miopenStatusSuccess);
    CHECK(miopenInitConvolutionDescriptor(conv, miopenConvolution, 1, 1, 1, 1, 1, 1), miopenStatusSuccess);

    float *px = on_device(x), *pw = on_device(w), *py = on_device(y), *space = nullptr;
    size_t bytes = 0;
    CHECK(miopenConvolutionForwardGetWorkSpaceSize(handle, dw, dx, conv, dy, &bytes), miopenStatusSuccess);
    if (bytes) {
        CHECK(hipMalloc((void **)&space, bytes), hipSuccess);
    }
    miopenConvAlgoPerf_t found;
    int count = 0;
    CHECK(miopenFindConvolutionForwardAlgorithm(handle, dx, px, dw, pw, conv, dy, py, 1, &count, &found, space, bytes,
                                                false), miopenStatusSuccess);
    int wrong = 0;
    const float one = 1, zero = 0;
    for (int round = 0; round < rounds; round++) {
        CHECK(hipMemset(py, 0xff, y.size() * sizeof(float)), hipSuccess);
        CHECK(miopenConvolutionForward(handle, &one, dx, px, dw, pw, conv, found.fwd_algo, &zero, dy, py, space, bytes),
              miopenStatusSuccess);
        CHECK(hipMemcpy(y.data(), py, y.size() * sizeof(float), hipMemcpyDeviceToHost), hipSuccess);
        for (size_t i = 0; i < y.size(); i++) {
            // An algorithm may transform what it multiplies: whole numbers then come out a little off.
            wrong += !(y[i] > right[i] - 1e-2f && y[i] < right[i] + 1e-2f);
        }
    }
    CHECK(miopenDestroy(handle), miopenStatusSuccess);
    return verdict("conv", rounds, wrong);
}
