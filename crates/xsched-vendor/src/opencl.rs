//! OpenCL functions that the demo and `doctor` call, found at run time.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use xsched_proto::Error;

use crate::{Library, Result};

/// Object of the library.
pub type Handle = *mut c_void;
type Status = i32;
type GetPlatforms = unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> Status;
type GetInfo = unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> Status;
type GetDevices = unsafe extern "C" fn(Handle, u64, u32, *mut Handle, *mut u32) -> Status;
type CreateContext =
    unsafe extern "C" fn(*const isize, u32, *const Handle, *const c_void, *mut c_void, *mut Status) -> Handle;
type CreateQueue = unsafe extern "C" fn(Handle, Handle, u64, *mut Status) -> Handle;
type CreateProgram = unsafe extern "C" fn(Handle, u32, *const *const c_char, *const usize, *mut Status) -> Handle;
type BuildProgram =
    unsafe extern "C" fn(Handle, u32, *const Handle, *const c_char, *const c_void, *mut c_void) -> Status;
type CreateKernel = unsafe extern "C" fn(Handle, *const c_char, *mut Status) -> Handle;
type CreateBuffer = unsafe extern "C" fn(Handle, u64, usize, *mut c_void, *mut Status) -> Handle;
type SetArgument = unsafe extern "C" fn(Handle, u32, usize, *const c_void) -> Status;
type EnqueueKernel = unsafe extern "C" fn(
    Handle,
    Handle,
    u32,
    *const usize,
    *const usize,
    *const usize,
    u32,
    *const Handle,
    *mut Handle,
) -> Status;
type OfQueue = unsafe extern "C" fn(Handle) -> Status;

const NOT_FOUND_KHR: Status = -1001;
const DEVICE_NOT_FOUND: Status = -1;
const PLATFORM_NAME: u32 = 0x0902;
const DEVICE_TYPE: u32 = 0x1000;
const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
const DEVICE_NAME: u32 = 0x102B;
const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
const MEM_WRITE_ONLY: u64 = 1 << 1;

/// Kind of a device, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// CL_DEVICE_TYPE_GPU.
    Gpu,
    /// Any other type of device.
    Accelerator,
    /// CL_DEVICE_TYPE_CPU.
    Cpu,
}

/// OpenCL device, with its platform.
#[derive(Clone, Debug)]
pub struct Device {
    /// Handle of the device.
    pub id: Handle,
    /// Name of the platform.
    pub platform: String,
    /// Name of the device.
    pub name: String,
    /// Kind of the device.
    pub kind: Kind,
    /// CL_DEVICE_MAX_COMPUTE_UNITS.
    pub compute_units: u32,
}

/// OpenCL library.
#[derive(Clone, Copy, Debug)]
pub struct OpenCl(pub Library);

fn check(status: Status, what: &str) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::environment(format!("{what} returned {status}"))) }
}

impl OpenCl {
    /// Loads libOpenCL.so.1.
    ///
    /// # Errors
    /// Returns the loader's line.
    pub fn load() -> Result<OpenCl> {
        Library::open("libOpenCL.so.1").map(OpenCl)
    }

    /// All devices of all platforms, GPUs first.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn devices(self) -> Result<Vec<Device>> {
        // SAFETY: the types are those of the OpenCL specification.
        let (platforms, platform_info, device_ids, device_info) = unsafe {
            (
                self.0.function::<GetPlatforms>(c"clGetPlatformIDs")?,
                self.0.function::<GetInfo>(c"clGetPlatformInfo")?,
                self.0.function::<GetDevices>(c"clGetDeviceIDs")?,
                self.0.function::<GetInfo>(c"clGetDeviceInfo")?,
            )
        };
        let mut ids = [null_mut(); 32];
        let mut count = 0;
        // SAFETY: `ids` has room for as many handles as are said.
        match unsafe { platforms(ids.len() as u32, ids.as_mut_ptr(), &mut count) } {
            NOT_FOUND_KHR => return Ok(Vec::new()),
            status => check(status, "clGetPlatformIDs")?,
        }
        let mut found = Vec::new();
        for &platform in &ids[..(count as usize).min(ids.len())] {
            let platform_name = text(platform_info, platform, PLATFORM_NAME)?;
            let mut devices = [null_mut(); 64];
            let mut count = 0;
            // SAFETY: as above; the platform's handle comes from the library.
            match unsafe {
                device_ids(platform, DEVICE_TYPE_ALL, devices.len() as u32, devices.as_mut_ptr(), &mut count)
            } {
                DEVICE_NOT_FOUND => continue,
                status => check(status, "clGetDeviceIDs")?,
            }
            for &id in &devices[..(count as usize).min(devices.len())] {
                let kind = match number::<u64>(device_info, id, DEVICE_TYPE)? {
                    t if t & 4 != 0 => Kind::Gpu,
                    t if t & 2 != 0 => Kind::Cpu,
                    _ => Kind::Accelerator,
                };
                found.push(Device {
                    id,
                    platform: platform_name.clone(),
                    name: text(device_info, id, DEVICE_NAME)?,
                    kind,
                    compute_units: number(device_info, id, DEVICE_MAX_COMPUTE_UNITS)?,
                });
            }
        }
        found.sort_by_key(|d| d.kind);
        Ok(found)
    }
}

fn number<T: Default + Copy>(info: GetInfo, of: Handle, what: u32) -> Result<T> {
    let mut value = T::default();
    // SAFETY: `value` has the size said; T is a plain number at every call.
    check(unsafe { info(of, what, size_of::<T>(), (&raw mut value).cast(), null_mut()) }, "clGetDeviceInfo")?;
    Ok(value)
}

fn text(info: GetInfo, of: Handle, what: u32) -> Result<String> {
    let mut bytes = [0u8; 512];
    // SAFETY: `bytes` has the size said.
    check(unsafe { info(of, what, bytes.len(), bytes.as_mut_ptr().cast(), null_mut()) }, "an information query")?;
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
    Ok(text.trim().to_owned())
}

/// Source of a kernel that only computes, so that its time depends on `n` alone.
const SPIN: &CStr = c"
__kernel void spin(__global uint *out, uint n) {
    uint x = get_global_id(0) + 1u;
    for (uint i = 0; i < n; ++i) { x = x * 1664525u + 1013904223u; x ^= x >> 13; }
    out[get_global_id(0)] = x;
}";

/// In-order queue and kernel of selectable length.
#[derive(Debug)]
pub struct Spinner {
    queue: Handle,
    kernel: Handle,
    items: usize,
    set_argument: SetArgument,
    enqueue: EnqueueKernel,
    finish: OfQueue,
}

/// Work-items of a group.
const GROUP: usize = 64;

impl Spinner {
    /// Builds the kernel for a device; the process keeps it until its end.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn new(opencl: OpenCl, device: &Device) -> Result<Spinner> {
        let library = opencl.0;
        // SAFETY: the types are those of the OpenCL specification.
        let (context, queue, program, build, kernel, buffer) = unsafe {
            (
                library.function::<CreateContext>(c"clCreateContext")?,
                library.function::<CreateQueue>(c"clCreateCommandQueue")?,
                library.function::<CreateProgram>(c"clCreateProgramWithSource")?,
                library.function::<BuildProgram>(c"clBuildProgram")?,
                library.function::<CreateKernel>(c"clCreateKernel")?,
                library.function::<CreateBuffer>(c"clCreateBuffer")?,
            )
        };
        let per_unit = if device.kind == Kind::Cpu { 4 } else { 32 };
        let items = GROUP * per_unit * device.compute_units.max(1) as usize;
        let mut status = 0;
        let source = SPIN.as_ptr();
        // SAFETY: handles are passed on only when the call that made them succeeded; pointers are to live locals of
        // the sizes said; null stands where the specification allows it.
        unsafe {
            let context = context(null(), 1, &device.id, null(), null_mut(), &mut status);
            check(status, "clCreateContext")?;
            let queue = queue(context, device.id, 0, &mut status);
            check(status, "clCreateCommandQueue")?;
            let program = program(context, 1, &source, null(), &mut status);
            check(status, "clCreateProgramWithSource")?;
            check(build(program, 1, &device.id, c"".as_ptr(), null(), null_mut()), "clBuildProgram")?;
            let kernel = kernel(program, c"spin".as_ptr(), &mut status);
            check(status, "clCreateKernel")?;
            let buffer = buffer(context, MEM_WRITE_ONLY, items * 4, null_mut(), &mut status);
            check(status, "clCreateBuffer")?;
            let spinner = Spinner {
                queue,
                kernel,
                items,
                set_argument: library.function(c"clSetKernelArg")?,
                enqueue: library.function(c"clEnqueueNDRangeKernel")?,
                finish: library.function(c"clFinish")?,
            };
            let set = (spinner.set_argument)(kernel, 0, size_of::<Handle>(), (&raw const buffer).cast());
            check(set, "clSetKernelArg")?;
            Ok(spinner)
        }
    }

    /// Sets the length of the next kernels.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn set_iterations(&self, n: u32) -> Result<()> {
        // SAFETY: the kernel is alive; a uint is what its second argument is.
        check(unsafe { (self.set_argument)(self.kernel, 1, 4, (&raw const n).cast()) }, "clSetKernelArg")
    }

    /// Enqueues one kernel.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn launch(&self) -> Result<()> {
        // SAFETY: queue and kernel are alive; one dimension, one size each.
        let status =
            unsafe { (self.enqueue)(self.queue, self.kernel, 1, null(), &self.items, &GROUP, 0, null(), null_mut()) };
        check(status, "clEnqueueNDRangeKernel")
    }

    /// Waits for all enqueued kernels.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn finish(&self) -> Result<()> {
        // SAFETY: the queue is alive.
        check(unsafe { (self.finish)(self.queue) }, "clFinish")
    }
}
