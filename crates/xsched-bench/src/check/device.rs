//! Steps on a device, by each vendor's interface: called as by a program that knows nothing of xsched.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use xsched_vendor::opencl::{self, OpenCl};
use xsched_vendor::{Library, hip, simulated};

use super::steps::Device;
use crate::failure::{Error, Result};

type Handle = *mut c_void;

/// Calls a function of a library with the given types, which must be the header's. The function returns its status.
macro_rules! call {
    ($library:expr, $name:literal($($value:expr => $type:ty),* $(,)?)) => {{
        let name: &CStr = $name;
        // SAFETY: each use names the types of the vendor's header.
        let function = unsafe { $library.function::<unsafe extern "C" fn($($type),*) -> c_int>(name)? };
        // SAFETY: pointers are to live values of the sizes said; handles come from the same library.
        status(name, unsafe { function($($value),*) })
    }};
}

fn status(name: &CStr, status: c_int) -> Result<()> {
    let name = name.to_string_lossy();
    if status == 0 { Ok(()) } else { Err(Error::environment(format!("{name} returned {status}"))) }
}

fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// Device by CUDA's driver API.
pub(super) struct Cuda {
    library: Library,
    device: c_int,
}

/// Kernel that computes `y[i] += a * x[i]`; the driver compiles it for the GPU at hand.
const AXPY: &CStr = c"
.version 6.0
.target sm_50
.address_size 64

.visible .entry axpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
    .reg .pred %p;
    .reg .b32 %n, %i, %t;
    .reg .f32 %a, %u, %v;
    .reg .b64 %x, %y, %at;

    ld.param.u32 %n, [n];
    ld.param.f32 %a, [a];
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    mov.u32 %i, %ctaid.x;
    mov.u32 %t, %ntid.x;
    mul.lo.u32 %i, %i, %t;
    mov.u32 %t, %tid.x;
    add.u32 %i, %i, %t;
    setp.ge.u32 %p, %i, %n;
    @%p bra DONE;
    cvta.to.global.u64 %x, %x;
    cvta.to.global.u64 %y, %y;
    mul.wide.u32 %at, %i, 4;
    add.u64 %x, %x, %at;
    add.u64 %y, %y, %at;
    ld.global.f32 %u, [%x];
    ld.global.f32 %v, [%y];
    mul.rn.f32 %u, %u, %a;
    add.rn.f32 %v, %v, %u;
    st.global.f32 [%y], %v;
DONE:
    ret;
}
";

/// Number of threads of a block, or of work-items of a group.
const GROUP: u32 = 64;

impl Cuda {
    pub(super) fn open() -> Result<Cuda> {
        let library = Library::open("libcuda.so.1")?;
        call!(library, c"cuInit"(0 => c_uint))?;
        Ok(Cuda { library, device: 0 })
    }
}

impl Device for Cuda {
    fn count(&mut self) -> Result<u32> {
        let mut count = 0;
        call!(self.library, c"cuDeviceGetCount"(&raw mut count => *mut c_int))?;
        Ok(count.max(0) as u32)
    }

    fn select(&mut self) -> Result<()> {
        let mut context = null_mut();
        call!(self.library, c"cuDeviceGet"(&raw mut self.device => *mut c_int, 0 => c_int))?;
        call!(self.library, c"cuDevicePrimaryCtxRetain"(&raw mut context => *mut Handle, self.device => c_int))?;
        call!(self.library, c"cuCtxSetCurrent"(context => Handle))
    }

    fn properties(&mut self) -> Result<String> {
        let (mut name, mut bytes, mut units) = ([0u8; 256], 0usize, 0);
        call!(self.library, c"cuDeviceGetName"(name.as_mut_ptr() => *mut u8, 256 => c_int, self.device => c_int))?;
        call!(self.library, c"cuDeviceTotalMem_v2"(&raw mut bytes => *mut usize, self.device => c_int))?;
        // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        let device = self.device;
        call!(self.library, c"cuDeviceGetAttribute"(&raw mut units => *mut c_int, 16 => c_int, device => c_int))?;
        Ok(format!("{}, {} MiB, {units} multiprocessors", text(&name), bytes >> 20))
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let mut at = 0;
        call!(self.library, c"cuMemAlloc_v2"(&raw mut at => *mut u64, bytes => usize))?;
        Ok(at)
    }

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<()> {
        call!(self.library, c"cuMemcpyHtoD_v2"(to => u64, from.as_ptr() => *const u8, from.len() => usize))
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<()> {
        call!(self.library, c"cuMemcpyDtoH_v2"(to.as_mut_ptr() => *mut u8, from => u64, to.len() => usize))
    }

    fn set(&mut self, at: u64, value: u8, bytes: usize) -> Result<()> {
        call!(self.library, c"cuMemsetD8_v2"(at => u64, value => u8, bytes => usize))?;
        call!(self.library, c"cuCtxSynchronize"())
    }

    fn axpy(&mut self, n: u32, mut a: f32, mut x: u64, mut y: u64) -> Result<bool> {
        let (mut module, mut function, mut count) = (null_mut(), null_mut(), n);
        let image = AXPY.as_ptr().cast();
        call!(self.library, c"cuModuleLoadData"(&raw mut module => *mut Handle, image => *const c_void))?;
        let name = c"axpy".as_ptr();
        let out = &raw mut function;
        call!(self.library, c"cuModuleGetFunction"(out => *mut Handle, module => Handle, name => *const c_char))?;
        let mut arguments: [*mut c_void; 4] =
            [(&raw mut count).cast(), (&raw mut a).cast(), (&raw mut x).cast(), (&raw mut y).cast()];
        call!(self.library, c"cuLaunchKernel"(
            function => Handle, n.div_ceil(GROUP) => c_uint, 1 => c_uint, 1 => c_uint, GROUP => c_uint, 1 => c_uint,
            1 => c_uint, 0 => c_uint, null_mut() => Handle, arguments.as_mut_ptr() => *mut *mut c_void,
            null_mut() => *mut *mut c_void,
        ))?;
        call!(self.library, c"cuCtxSynchronize"())?;
        Ok(true)
    }

    fn free(&mut self, at: u64) -> Result<()> {
        call!(self.library, c"cuMemFree_v2"(at => u64))
    }
}

/// Device by HIP's runtime. It has no kernel here: one would have to be compiled for the GPU.
pub(super) struct Hip(Library);

impl Hip {
    pub(super) fn open() -> Result<Hip> {
        hip::open().map(Hip)
    }

    fn copy(&self, to: Handle, from: *const c_void, bytes: usize, kind: c_int) -> Result<()> {
        call!(self.0, c"hipMemcpy"(to => Handle, from => *const c_void, bytes => usize, kind => c_int))
    }
}

impl Device for Hip {
    fn count(&mut self) -> Result<u32> {
        let mut count = 0;
        call!(self.0, c"hipGetDeviceCount"(&raw mut count => *mut c_int))?;
        Ok(count.max(0) as u32)
    }

    fn select(&mut self) -> Result<()> {
        call!(self.0, c"hipSetDevice"(0 => c_int))
    }

    fn properties(&mut self) -> Result<String> {
        let (mut name, mut bytes) = ([0u8; 256], 0usize);
        call!(self.0, c"hipDeviceGetName"(name.as_mut_ptr() => *mut u8, 256 => c_int, 0 => c_int))?;
        call!(self.0, c"hipDeviceTotalMem"(&raw mut bytes => *mut usize, 0 => c_int))?;
        Ok(format!("{}, {} MiB", text(&name), bytes >> 20))
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let mut at = null_mut();
        call!(self.0, c"hipMalloc"(&raw mut at => *mut Handle, bytes => usize))?;
        Ok(at as u64)
    }

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<()> {
        self.copy(to as Handle, from.as_ptr().cast(), from.len(), 1)
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<()> {
        self.copy(to.as_mut_ptr().cast(), from as *const c_void, to.len(), 2)
    }

    fn set(&mut self, at: u64, value: u8, bytes: usize) -> Result<()> {
        call!(self.0, c"hipMemset"(at as Handle => Handle, value.into() => c_int, bytes => usize))?;
        call!(self.0, c"hipDeviceSynchronize"())
    }

    fn axpy(&mut self, _: u32, _: f32, _: u64, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn free(&mut self, at: u64) -> Result<()> {
        call!(self.0, c"hipFree"(at as Handle => Handle))
    }
}

/// Device by OpenCL: the first one, a GPU if there is one.
pub(super) struct Cl {
    library: Library,
    devices: Vec<opencl::Device>,
    context: Handle,
    queue: Handle,
}

const AXPY_CL: &CStr = c"
__kernel void axpy(uint n, float a, __global const float *x, __global float *y) {
    uint i = get_global_id(0);
    if (i < n) { y[i] += a * x[i]; }
}";

impl Cl {
    pub(super) fn open() -> Result<Cl> {
        let opencl = OpenCl::load()?;
        Ok(Cl { library: opencl.0, devices: opencl.devices()?, context: null_mut(), queue: null_mut() })
    }

    /// Checks a function that returns a handle and stores its status at its last argument.
    fn made(name: &str, handle: Handle, status: c_int) -> Result<Handle> {
        if status == 0 { Ok(handle) } else { Err(Error::environment(format!("{name} returned {status}"))) }
    }
}

impl Device for Cl {
    fn count(&mut self) -> Result<u32> {
        Ok(self.devices.len() as u32)
    }

    fn select(&mut self) -> Result<()> {
        type Context = unsafe extern "C" fn(*const isize, c_uint, *const Handle, Handle, Handle, *mut c_int) -> Handle;
        type Queue = unsafe extern "C" fn(Handle, Handle, u64, *mut c_int) -> Handle;
        let device = self.devices[0].id;
        let mut rc = 0;
        // SAFETY: the types are those of the OpenCL specification.
        let (context, queue) = unsafe {
            (
                self.library.function::<Context>(c"clCreateContext")?,
                self.library.function::<Queue>(c"clCreateCommandQueue")?,
            )
        };
        // SAFETY: one device is given; null stands where the specification allows it.
        let made = unsafe { context(null(), 1, &device, null_mut(), null_mut(), &mut rc) };
        self.context = Cl::made("clCreateContext", made, rc)?;
        // SAFETY: the context is alive.
        let made = unsafe { queue(self.context, device, 0, &mut rc) };
        self.queue = Cl::made("clCreateCommandQueue", made, rc)?;
        Ok(())
    }

    fn properties(&mut self) -> Result<String> {
        let device = &self.devices[0];
        Ok(format!("{} ({}), {} compute units", device.name, device.platform, device.compute_units))
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64> {
        type Buffer = unsafe extern "C" fn(Handle, u64, usize, Handle, *mut c_int) -> Handle;
        let mut rc = 0;
        // SAFETY: the type is that of the OpenCL specification.
        let buffer = unsafe { self.library.function::<Buffer>(c"clCreateBuffer")? };
        // SAFETY: the context is alive; CL_MEM_READ_WRITE needs no memory of the host.
        let made = unsafe { buffer(self.context, 1, bytes, null_mut(), &mut rc) };
        Cl::made("clCreateBuffer", made, rc).map(|handle| handle as u64)
    }

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<()> {
        call!(self.library, c"clEnqueueWriteBuffer"(
            self.queue => Handle, to as Handle => Handle, 1 => c_uint, 0 => usize, from.len() => usize,
            from.as_ptr() => *const u8, 0 => c_uint, null() => *const Handle, null_mut() => *mut Handle,
        ))
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<()> {
        call!(self.library, c"clEnqueueReadBuffer"(
            self.queue => Handle, from as Handle => Handle, 1 => c_uint, 0 => usize, to.len() => usize,
            to.as_mut_ptr() => *mut u8, 0 => c_uint, null() => *const Handle, null_mut() => *mut Handle,
        ))
    }

    fn set(&mut self, at: u64, value: u8, bytes: usize) -> Result<()> {
        call!(self.library, c"clEnqueueFillBuffer"(
            self.queue => Handle, at as Handle => Handle, &raw const value => *const u8, 1 => usize, 0 => usize,
            bytes => usize, 0 => c_uint, null() => *const Handle, null_mut() => *mut Handle,
        ))?;
        call!(self.library, c"clFinish"(self.queue => Handle))
    }

    fn axpy(&mut self, n: u32, a: f32, x: u64, y: u64) -> Result<bool> {
        type Program = unsafe extern "C" fn(Handle, c_uint, *const *const c_char, *const usize, *mut c_int) -> Handle;
        type Kernel = unsafe extern "C" fn(Handle, *const c_char, *mut c_int) -> Handle;
        let (mut rc, source, device) = (0, AXPY_CL.as_ptr(), self.devices[0].id);
        // SAFETY: the types are those of the OpenCL specification.
        let (program, kernel) = unsafe {
            (
                self.library.function::<Program>(c"clCreateProgramWithSource")?,
                self.library.function::<Kernel>(c"clCreateKernel")?,
            )
        };
        // SAFETY: one text, which ends in zero.
        let made = unsafe { program(self.context, 1, &source, null(), &mut rc) };
        let program = Cl::made("clCreateProgramWithSource", made, rc)?;
        call!(self.library, c"clBuildProgram"(
            program => Handle, 1 => c_uint, &raw const device => *const Handle, c"".as_ptr() => *const c_char,
            null() => *const c_void, null_mut() => Handle,
        ))?;
        // SAFETY: the program is built and has a kernel of this name.
        let made = unsafe { kernel(program, c"axpy".as_ptr(), &mut rc) };
        let kernel = Cl::made("clCreateKernel", made, rc)?;
        let (x, y) = (x as Handle, y as Handle);
        let arguments: [(usize, *const c_void); 4] = [
            (4, (&raw const n).cast()),
            (4, (&raw const a).cast()),
            (size_of::<Handle>(), (&raw const x).cast()),
            (size_of::<Handle>(), (&raw const y).cast()),
        ];
        for (index, (bytes, value)) in (0u32..).zip(arguments) {
            call!(self.library, c"clSetKernelArg"(
                kernel => Handle, index => c_uint, bytes => usize, value => *const c_void,
            ))?;
        }
        let (items, group) = (n.next_multiple_of(GROUP) as usize, GROUP as usize);
        call!(self.library, c"clEnqueueNDRangeKernel"(
            self.queue => Handle, kernel => Handle, 1 => c_uint, null() => *const usize, &raw const items => *const usize,
            &raw const group => *const usize, 0 => c_uint, null() => *const Handle, null_mut() => *mut Handle,
        ))?;
        call!(self.library, c"clFinish"(self.queue => Handle))?;
        Ok(true)
    }

    fn free(&mut self, at: u64) -> Result<()> {
        call!(self.library, c"clReleaseMemObject"(at as Handle => Handle))
    }
}

/// Functions of the simulated device.
pub(super) struct Sim(Library);

/// `simKernel` of simdev.h.
#[repr(C)]
struct SimKernel {
    op: u32,
    count: u32,
    duration_ns: u64,
    x: *mut f32,
    y: *mut f32,
    a: f32,
}

impl Sim {
    pub(super) fn open() -> Result<Sim> {
        Library::open(simulated::library()).map(Sim)
    }

    fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        call!(self.0, c"simMemcpy"(to => *mut u8, from => *const u8, bytes => usize))
    }
}

impl Device for Sim {
    fn count(&mut self) -> Result<u32> {
        let mut count = 0;
        call!(self.0, c"simDeviceGetCount"(&raw mut count => *mut c_int))?;
        Ok(count.max(0) as u32)
    }

    fn select(&mut self) -> Result<()> {
        call!(self.0, c"simSetDevice"(0 => c_int))
    }

    fn properties(&mut self) -> Result<String> {
        let mut name = [0u8; 256];
        call!(self.0, c"simDeviceGetName"(name.as_mut_ptr() => *mut u8, 256 => c_int, 0 => c_int))?;
        Ok(text(&name))
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let mut at = null_mut();
        call!(self.0, c"simMalloc"(&raw mut at => *mut Handle, bytes => usize))?;
        Ok(at as u64)
    }

    fn upload(&mut self, to: u64, from: &[u8]) -> Result<()> {
        self.copy(to as *mut u8, from.as_ptr(), from.len())
    }

    fn download(&mut self, from: u64, to: &mut [u8]) -> Result<()> {
        self.copy(to.as_mut_ptr(), from as *const u8, to.len())
    }

    fn set(&mut self, at: u64, value: u8, bytes: usize) -> Result<()> {
        call!(self.0, c"simMemset"(at as Handle => Handle, value.into() => c_int, bytes => usize))
    }

    fn axpy(&mut self, n: u32, a: f32, x: u64, y: u64) -> Result<bool> {
        // simOpAxpy
        let kernel = SimKernel { op: 2, count: n, duration_ns: 100_000, x: x as *mut f32, y: y as *mut f32, a };
        call!(self.0, c"simLaunchKernel"(&raw const kernel => *const SimKernel, null_mut() => Handle))?;
        call!(self.0, c"simDeviceSynchronize"())?;
        Ok(true)
    }

    fn free(&mut self, at: u64) -> Result<()> {
        call!(self.0, c"simFree"(at as Handle => Handle))
    }
}
