"""A CUDA device by ctypes, for programs that try the Python packages: streams, kernels of some microseconds, checks."""

import ctypes
import sys
import threading
from ctypes import byref, c_char_p, c_uint, c_uint64, c_void_p

KERNELS = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 pns) {
    .reg .pred %p; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [pns];
    mov.u64 %rd2, %globaltimer;
again:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p, %rd4, %rd1;
    @%p bra again;
    ret;
}
\0"""
SUCCESS = 0


def check(holds, what):
    print("ok" if holds else "FAIL", what, flush=True)
    if not holds:
        sys.exit(1)


def refused(error, cure, function, *arguments, **named):
    """That a call raises, and that the line has a word of the cure."""
    try:
        function(*arguments, **named)
    except error as raised:
        check(cure in str(raised) and "\n" not in str(raised), f"refused: {raised}")
    else:
        check(False, f"{function} {arguments} is refused")


class Device:
    """Device 0 with its primary context."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context, module, self.spin = c_void_p(), c_void_p(), c_void_p()
        self.need("cuInit", 0)
        self.need("cuDevicePrimaryCtxRetain", byref(self.context), 0)
        self.enter()
        self.need("cuModuleLoadData", byref(module), c_char_p(KERNELS))
        self.need("cuModuleGetFunction", byref(self.spin), module, c_char_p(b"spin"))

    def need(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != SUCCESS:
            sys.exit(f"{name} = {result}")

    def enter(self):
        """On each thread that launches."""
        self.need("cuCtxSetCurrent", self.context)

    def stream(self):
        stream = c_void_p()
        self.need("cuStreamCreate", byref(stream), 1)
        return stream.value

    def launch(self, stream, us=20):
        ns = c_uint64(us * 1000)
        one = c_uint(1)
        arguments = (c_void_p * 1)(ctypes.addressof(ns))
        self.need("cuLaunchKernel", self.spin, *[one] * 6, c_uint(0), c_void_p(stream), arguments, None)

    def synchronize(self, stream):
        self.need("cuStreamSynchronize", c_void_p(stream))

    def launching_thread(self, stream):
        """A thread that launches once."""

        def body():
            self.enter()
            self.launch(stream)

        thread = threading.Thread(target=body)
        thread.start()
        return thread
