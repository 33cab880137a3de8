"""The CUDA driver API and runtime by ctypes: no package is needed, only the driver."""

import ctypes
import glob
import os
import site
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import checks

NAMES = {1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 201: "INVALID_CONTEXT", 400: "INVALID_HANDLE",
         500: "NOT_FOUND", 600: "NOT_READY", 700: "ILLEGAL_ADDRESS", 710: "ASSERT", 716: "MISALIGNED_ADDRESS",
         720: "COOPERATIVE_LAUNCH_TOO_LARGE", 801: "NOT_SUPPORTED", 900: "STREAM_CAPTURE_UNSUPPORTED",
         901: "STREAM_CAPTURE_INVALIDATED", 906: "STREAM_CAPTURE_IMPLICIT"}  # fmt: skip

# Kernels for any GPU from Maxwell on; the driver compiles them.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64

// data[i] = value
.visible .entry fill(.param .u64 data, .param .u32 n, .param .u32 value) {
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [value];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra done;
    mul.wide.u32 %rd2, %r6, 4; add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
done:
    ret;
}

// data[i] = data[i] * factor + i: the order in which such kernels ran shows in the result
.visible .entry step(.param .u64 data, .param .u32 n, .param .u32 factor) {
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [factor];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra done;
    mul.wide.u32 %rd2, %r6, 4; add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r7, [%rd3];
    mad.lo.u32 %r8, %r7, %r2, %r6;
    st.global.u32 [%rd3], %r8;
done:
    ret;
}

// into[i] += from[i]
.visible .entry add(.param .u64 into, .param .u64 from, .param .u32 n) {
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [into]; ld.param.u64 %rd2, [from]; ld.param.u32 %r1, [n];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra done;
    mul.wide.u32 %rd3, %r6, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4]; ld.global.u32 %r8, [%rd5];
    add.u32 %r7, %r7, %r8;
    st.global.u32 [%rd4], %r7;
done:
    ret;
}

// busy for so many nanoseconds, then *count += 1
.visible .entry spin(.param .u64 count, .param .u64 ns) {
    .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [count]; ld.param.u64 %rd2, [ns];
    mov.u64 %rd3, %globaltimer;
again:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p, %rd5, %rd2;
    @%p bra again;
    atom.global.add.u32 %r1, [%rd1], 1;
    ret;
}

// a store to nowhere: the error that stays
.visible .entry crash(.param .u64 where) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [where];
    st.global.u64 [%rd1], %rd1;
    ret;
}
\0"""


class CudaError(Exception):
    """A driver or runtime call that failed; the text is the same on every machine."""

    def __init__(self, function, code):
        super().__init__(f"{function} = {NAMES.get(code, code)}")
        self.code = code


class Library:
    """Functions of a C library by name, each raising CudaError unless it returns 0."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            code = function(*arguments)
            if code != 0:
                raise CudaError(name, code)

        setattr(self, name, call)
        return call


def driver():
    try:
        return Library(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        checks.absent(str(error))


def runtime():
    """libcudart as the toolkit or the Python packages bring it."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    wanted = [
        pattern
        for f in folders
        for pattern in (f"{f}/nvidia/cu13/lib/libcudart.so.*", f"{f}/nvidia/cuda_runtime/lib/libcudart.so.*")
    ]
    wanted += ["/usr/local/cuda*/lib64/libcudart.so.1[0-9]", "/usr/local/cuda*/targets/*/lib/libcudart.so.1[0-9]"]
    found = [path for pattern in wanted for path in sorted(glob.glob(pattern))]
    if not found:
        checks.absent("no libcudart.so (toolkit or the nvidia-cuda-runtime package)")
    return Library(ctypes.CDLL(found[0]))


class Device:
    """Device 0 with a context of its own or the primary one, current on the calling thread, and the kernels above."""

    def __init__(self, primary=True):
        self.cu = cu = driver()
        try:
            cu.cuInit(0)
        except CudaError as error:
            checks.absent(str(error))
        self.device, self.context = c_int(), c_void_p()
        cu.cuDeviceGet(byref(self.device), 0)
        if primary:
            cu.cuDevicePrimaryCtxRetain(byref(self.context), self.device)
        else:
            cu.cuCtxCreate_v2(byref(self.context), 0, self.device)
        cu.cuCtxSetCurrent(self.context)
        self.load(PTX)

    def load(self, text):
        module = c_void_p()
        self.cu.cuModuleLoadData(byref(module), c_char_p(text))
        self.module = module

    def kernel(self, name):
        function = c_void_p()
        self.cu.cuModuleGetFunction(byref(function), self.module, c_char_p(name.encode()))
        return function

    def allocate(self, count):
        """Room for so many 32-bit words."""
        pointer = c_uint64()
        self.cu.cuMemAlloc_v2(byref(pointer), c_size_t(4 * count))
        return pointer

    def stream(self, flags=1):
        """Flags: 1 = does not synchronise with the legacy default stream."""
        stream = c_void_p()
        self.cu.cuStreamCreate(byref(stream), flags)
        return stream

    def event(self):
        event = c_void_p()
        self.cu.cuEventCreate(byref(event), 2)  # no timing
        return event

    def launch(self, kernel, *arguments, words=1, stream=None, threads=256, function="cuLaunchKernel"):
        """One thread a word. Arguments are ctypes values."""
        blocks = (words + threads - 1) // threads
        getattr(self.cu, function)(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters(*arguments), None)

    def read(self, pointer, count):
        """Synchronously, by the legacy default stream."""
        words = (c_uint * count)()
        self.cu.cuMemcpyDtoH_v2(words, pointer, c_size_t(4 * count))
        return list(words)

    def free(self, *pointers):
        for pointer in pointers:
            self.cu.cuMemFree_v2(pointer)

    def synchronize(self, stream=None):
        self.cu.cuStreamSynchronize(stream)

    def attribute(self, number):
        value = c_int()
        self.cu.cuDeviceGetAttribute(byref(value), number, self.device)
        return value.value


def parameters(*arguments):
    """The array of pointers to arguments that launches take; it keeps them alive."""
    array = (c_void_p * max(1, len(arguments)))(*[ctypes.addressof(a) for a in arguments])
    array.kept = arguments
    return array


def stepped(count, factors):
    """What `step` makes of zeros when run once for each factor, in this order."""
    words = [0] * count
    for factor in factors:
        words = [(word * factor + i) & 0xFFFFFFFF for i, word in enumerate(words)]
    return words


def packed(words):
    """Words as the bytes that they are on the device."""
    return b"".join(word.to_bytes(4, "little") for word in words)


HERE = Path(os.path.abspath(__file__)).parent
