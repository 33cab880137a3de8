/* pooled.c as a program whose kernels launch others: nvcc 13.0 leaves the names of modules in this section. */
#include "pooled.c"

__attribute__((section("__nv_module_id"), used)) static const char modules[] = "_f4510a67_22_cuda_device_runtime_cu_3ecce0c0_2317245";
