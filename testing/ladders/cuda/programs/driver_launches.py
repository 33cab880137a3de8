#!/usr/bin/env python3
"""Every way of launching a kernel: cooperative, clusters, programmatic dependent launch, by library and by buffer."""

import ctypes
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64, c_void_p

import checks
import cu

gpu = cu.Device()
WORDS = 4096
COOPERATIVE, CLUSTER, DEPENDENT, PRIORITY = 2, 4, 6, 8  # launch attributes

# All blocks wait for each other, which only a cooperative launch promises to end.
COOPERATIVE_PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry together(.param .u64 arrived, .param .u64 data) {
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [arrived]; ld.param.u64 %rd2, [data];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra done;
    atom.global.add.u32 %r4, [%rd1], 1;
again:
    ld.volatile.global.u32 %r5, [%rd1];
    setp.lt.u32 %p1, %r5, %r2;
    @%p1 bra again;
    mul.wide.u32 %rd3, %r3, 4; add.u64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r2;
done:
    ret;
}
\0"""

# data[block] = 100 * blocks in the cluster + rank in it; `after` waits for the kernel before it as the launch says.
HOPPER_PTX = b"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry clustered(.param .u64 data) {
    .reg .b32 %r<5>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %ctaid.x;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mad.lo.u32 %r4, %r2, 100, %r1;
    mul.wide.u32 %rd2, %r3, 4; add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r4;
    ret;
}
.visible .entry after(.param .u64 data, .param .u32 n, .param .u32 factor) {
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [factor];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    griddepcontrol.wait;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra done;
    mul.wide.u32 %rd2, %r6, 4; add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r7, [%rd3];
    mad.lo.u32 %r8, %r7, %r2, %r6;
    st.global.u32 [%rd3], %r8;
done:
    griddepcontrol.launch_dependents;
    ret;
}
\0"""


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id and 64 bytes."""

    _fields_ = [("kind", c_uint), ("pad", c_uint), ("value", c_uint * 16)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", c_uint)]  # fmt: skip


def launch_ex(kernel, blocks, threads, arguments, attributes=(), stream=None):
    """`attributes`: (kind, values)."""
    array = (Attribute * max(1, len(attributes)))()
    for entry, (kind, values) in zip(array, attributes):
        entry.kind = kind
        for at, value in enumerate(values):
            entry.value[at] = value
    config = Config((blocks, 1, 1), (threads, 1, 1), 0, stream, array, len(attributes))
    gpu.cu.cuLaunchKernelEx(byref(config), kernel, cu.parameters(*arguments), None)


def zeros(words=WORDS):
    pointer = gpu.allocate(words)
    gpu.cu.cuMemsetD32_v2(pointer, 0, c_size_t(words))
    return pointer


def shows(name, pointer, factors):
    words = gpu.read(pointer, WORDS)
    checks.must(f"{name}.right", words == cu.stepped(WORDS, factors))
    checks.show(name, cu.packed(words))
    gpu.free(pointer)


@checks.check
def extensible():
    pointer, stream = zeros(), gpu.stream()
    gpu.cu.cuCtxSynchronize()
    for factor in range(1, 100):
        arguments = (pointer, c_uint(WORDS), c_uint(factor))
        launch_ex(gpu.kernel("step"), WORDS // 256, 256, arguments, [(PRIORITY, (0,))] if factor % 2 else [], stream)
    gpu.synchronize(stream)
    shows("extensible", pointer, range(1, 100))


@checks.check
def cooperative():
    gpu.load(COOPERATIVE_PTX)
    blocks = gpu.attribute(16)  # one on each multiprocessor
    for way in ("function", "attribute"):
        arrived, data, stream = zeros(1), zeros(blocks), gpu.stream()
        gpu.cu.cuCtxSynchronize()
        for _ in range(20):
            gpu.cu.cuMemsetD32Async(arrived, 0, c_size_t(1), stream)
            if way == "function":
                arguments = cu.parameters(arrived, data)
                gpu.cu.cuLaunchCooperativeKernel(gpu.kernel("together"), blocks, 1, 1, 64, 1, 1, 0, stream, arguments)
            else:
                launch_ex(gpu.kernel("together"), blocks, 64, (arrived, data), [(COOPERATIVE, (1,))], stream)
        gpu.synchronize(stream)
        checks.must(f"cooperative.{way}", gpu.read(data, blocks) == [blocks] * blocks)
    gpu.load(cu.PTX)


@checks.check
def too_large_to_cooperate():
    """Refused by the driver, with its own code."""
    gpu.load(COOPERATIVE_PTX)
    arguments = cu.parameters(zeros(1), zeros(1))
    code = gpu.cu.library.cuLaunchCooperativeKernel(
        gpu.kernel("together"), 1 << 20, 1, 1, 1024, 1, 1, 0, None, arguments
    )
    checks.show("too_large", code)
    gpu.load(cu.PTX)


def is_hopper():
    if gpu.attribute(75) >= 9:
        return True
    checks.show("clusters", "this GPU has none")
    return False


@checks.check
def clusters():
    if not is_hopper():
        return
    gpu.load(HOPPER_PTX)
    for size in (2, 4, 8):
        data = zeros(64)
        for _ in range(20):
            launch_ex(gpu.kernel("clustered"), 64, 128, (data,), [(CLUSTER, (size, 1, 1))])
        checks.must(f"clusters.{size}", gpu.read(data, 64) == [100 * size + block % size for block in range(64)])
    gpu.load(cu.PTX)


@checks.check
def dependent_launch():
    """Each kernel may start before the one before it has ended, and waits for it inside."""
    if not is_hopper():
        return
    gpu.load(HOPPER_PTX)
    pointer, stream = zeros(), gpu.stream()
    gpu.cu.cuCtxSynchronize()
    for factor in range(1, 100):
        arguments = (pointer, c_uint(WORDS), c_uint(factor))
        launch_ex(gpu.kernel("after"), WORDS // 256, 256, arguments, [(DEPENDENT, (1,))], stream)
    gpu.synchronize(stream)
    shows("dependent", pointer, range(1, 100))
    gpu.load(cu.PTX)


@checks.check
def by_library():
    """Kernels that belong to no context, launched by their own handle, loaded when first used."""
    library, kernel = c_void_p(), c_void_p()
    gpu.cu.cuLibraryLoadData(byref(library), c_char_p(cu.PTX), None, None, 0, None, None, 0)
    gpu.cu.cuLibraryGetKernel(byref(kernel), library, c_char_p(b"step"))
    pointer = zeros()
    for factor in range(1, 50):
        gpu.launch(kernel, pointer, c_uint(WORDS), c_uint(factor), words=WORDS)
    shows("by_library", pointer, range(1, 50))
    gpu.cu.cuLibraryUnload(library)


@checks.check
def by_buffer():
    """Arguments as one block of bytes."""

    class Arguments(ctypes.Structure):
        _fields_ = [("data", c_uint64), ("n", c_uint), ("factor", c_uint)]

    pointer = zeros()
    for factor in range(1, 50):
        block = Arguments(pointer.value, WORDS, factor)
        size = c_size_t(ctypes.sizeof(block))
        extra = (c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), None)
        gpu.cu.cuLaunchKernel(gpu.kernel("step"), WORDS // 256, 1, 1, 256, 1, 1, 0, None, None, extra)
    shows("by_buffer", pointer, range(1, 50))


@checks.check
def by_the_oldest_functions():
    """cuParamSet* and cuLaunchGrid, which CUDA 13 still exports."""
    kernel, pointer = gpu.kernel("step"), zeros()
    gpu.cu.cuFuncSetBlockShape(kernel, 256, 1, 1)
    for factor in range(1, 50):
        gpu.cu.cuParamSetv(kernel, 0, byref(pointer), 8)
        gpu.cu.cuParamSeti(kernel, 8, WORDS)
        gpu.cu.cuParamSeti(kernel, 12, factor)
        gpu.cu.cuParamSetSize(kernel, 16)
        gpu.cu.cuLaunchGrid(kernel, WORDS // 256, 1)
    shows("oldest", pointer, range(1, 50))


@checks.check
def unloaded_module():
    """A module goes while its kernels are still in flight."""
    count = zeros(1)
    for _ in range(10):
        gpu.load(cu.PTX)
        for _ in range(10):
            gpu.launch(gpu.kernel("spin"), count, c_uint64(20_000), threads=1)
        gpu.cu.cuModuleUnload(gpu.module)
    gpu.load(cu.PTX)
    checks.must("all_ran", gpu.read(count, 1) == [100])


if __name__ == "__main__":
    checks.main()
