/* AMD's rocFFT: plans in one and two dimensions, whose kernels it compiles while it runs, a work buffer, and the
 * transformations. */
#include <rocfft/rocfft.h>

#include "says.h"

static void transform(size_t dimensions, const size_t *lengths, hipStream_t stream)
{
    rocfft_plan plan = nullptr;
    rocfft_execution_info info = nullptr;
    size_t bytes = 0;
    void *in[1] = {buffer()}, *out[1] = {buffer()}, *work = nullptr;
    SAYS(rocfft_plan_create(&plan, rocfft_placement_notinplace, rocfft_transform_type_complex_forward,
                            rocfft_precision_single, dimensions, lengths, 1, nullptr));
    SAYS(rocfft_plan_get_work_buffer_size(plan, &bytes));
    printf("work buffer %zu\n", bytes);
    SAYS(rocfft_execution_info_create(&info));
    SAYS(rocfft_execution_info_set_stream(info, stream));
    if (bytes) {
        SAYS(hipMalloc(&work, bytes));
        SAYS(rocfft_execution_info_set_work_buffer(info, work, bytes));
    }
    ALL(50, rocfft_execute(plan, in, out, info));
    SAYS(hipStreamSynchronize(stream));
    SAYS(rocfft_execution_info_destroy(info));
    SAYS(rocfft_plan_destroy(plan));
    SAYS(hipFree(work));
    SAYS(hipFree(in[0]));
    SAYS(hipFree(out[0]));
}

int main()
{
    hipStream_t stream;
    SAYS(rocfft_setup());
    SAYS(hipStreamCreate(&stream));
    const size_t line[] = {1024}, plane[] = {128, 128};
    transform(1, line, stream);
    transform(2, plane, stream);
    SAYS(hipStreamDestroy(stream));
    SAYS(rocfft_cleanup());
    SAYS(hipGetLastError());
    return 0;
}
