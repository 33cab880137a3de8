//! Functions of the CUDA driver that the demo and `doctor` call. The driver is loaded at run time, so that no toolkit is needed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use serde::{Deserialize, Serialize};

use xsched_proto::Error;

use crate::{Library, Result};

type Status = c_int;
type Handle = *mut c_void;
type Device = c_int;
type Init = unsafe extern "C" fn(c_uint) -> Status;
type GetNumber = unsafe extern "C" fn(*mut c_int) -> Status;
type GetDevice = unsafe extern "C" fn(*mut Device, c_int) -> Status;
type GetText = unsafe extern "C" fn(*mut c_char, c_int, Device) -> Status;
type GetUuid = unsafe extern "C" fn(*mut [u8; 16], Device) -> Status;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, Device) -> Status;
type GetErrorText = unsafe extern "C" fn(Status, *mut *const c_char) -> Status;
type RetainContext = unsafe extern "C" fn(*mut Handle, Device) -> Status;
type SetContext = unsafe extern "C" fn(Handle) -> Status;
type CreateStream = unsafe extern "C" fn(*mut Handle, c_uint) -> Status;
type LoadModule = unsafe extern "C" fn(*mut Handle, *const c_void) -> Status;
type GetFunction = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Status;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> Status;
type Launch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;
type OfStream = unsafe extern "C" fn(Handle) -> Status;

const NO_DEVICE: Status = 100;
const STREAM_NON_BLOCKING: c_uint = 1;
/// First driver version that takes PTX 6.0, as `cuDriverGetVersion` counts.
const OLDEST_DRIVER: c_int = 9000;

const MULTIPROCESSORS: c_int = 16;
const COMPUTE_MODE: c_int = 20;
const THREADS_PER_MULTIPROCESSOR: c_int = 39;
/// CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: every device that has it has the other stream memory operations, too.
const WAIT_VALUE: c_int = 123;
/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which drivers before 12.1 do not have.
const MPS_ENABLED: c_int = 133;

/// Processes that may have contexts on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// No process may use the device.
    Prohibited,
    /// One process at a time may use the device; all clients of an MPS daemon count as one.
    ExclusiveProcess,
}

/// Facts about a device from the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Name of the device.
    pub name: String,
    /// Address on the bus, e.g. `0000:41:00.0`.
    pub pci: String,
    /// UUID in the form of `nvidia-smi -L`.
    pub uuid: String,
    /// Processes that may use the device.
    pub compute_mode: ComputeMode,
    /// True if streams can wait for a value in memory.
    pub stream_memory_ops: bool,
    /// True if contexts of this process are shared through MPS.
    pub mps: bool,
    #[serde(skip)]
    number: Device,
    #[serde(skip)]
    multiprocessors: u32,
    #[serde(skip)]
    threads_per_multiprocessor: u32,
}

/// CUDA driver, loaded and initialised.
#[derive(Clone, Copy, Debug)]
pub struct Cuda {
    library: Library,
    /// Newest CUDA version that the driver knows: 1000 × major + 10 × minor.
    pub version: c_int,
}

impl Cuda {
    /// Loads libcuda.so.1 and initialises it.
    ///
    /// # Errors
    /// Returns one line if there is no library, no device, or the driver is too old.
    pub fn load() -> Result<Cuda> {
        let mut cuda = Cuda { library: Library::open("libcuda.so.1")?, version: 0 };
        // SAFETY: the types are those of cuda.h.
        let (version, init) = unsafe {
            (cuda.library.function::<GetNumber>(c"cuDriverGetVersion")?, cuda.library.function::<Init>(c"cuInit")?)
        };
        // SAFETY: the pointer is to a live field.
        cuda.check(unsafe { version(&mut cuda.version) }, "cuDriverGetVersion")?;
        if cuda.version < OLDEST_DRIVER {
            return Err(Error::environment(format!(
                "the driver knows CUDA {} only; install one for CUDA {} or newer",
                version_text(cuda.version),
                version_text(OLDEST_DRIVER)
            )));
        }
        // SAFETY: zero is what it wants.
        match unsafe { init(0) } {
            NO_DEVICE => Err(Error::environment("the driver finds no CUDA device")),
            status => cuda.check(status, "cuInit").map(|()| cuda),
        }
    }

    /// All visible devices.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn devices(self) -> Result<Vec<DeviceInfo>> {
        // SAFETY: the type is that of cuda.h.
        let count = unsafe { self.library.function::<GetNumber>(c"cuDeviceGetCount")? };
        let mut devices = 0;
        // SAFETY: the pointer is to a live local.
        self.check(unsafe { count(&mut devices) }, "cuDeviceGetCount")?;
        (0..devices).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(self, ordinal: c_int) -> Result<DeviceInfo> {
        // SAFETY: the types are those of cuda.h.
        let (get, name, pci, uuid, attribute) = unsafe {
            (
                self.library.function::<GetDevice>(c"cuDeviceGet")?,
                self.library.function::<GetText>(c"cuDeviceGetName")?,
                self.library.function::<GetText>(c"cuDeviceGetPCIBusId")?,
                self.library
                    .function::<GetUuid>(c"cuDeviceGetUuid_v2")
                    .or_else(|_| self.library.function::<GetUuid>(c"cuDeviceGetUuid"))?,
                self.library.function::<GetAttribute>(c"cuDeviceGetAttribute")?,
            )
        };
        let (mut number, mut bytes) = (0, [0u8; 16]);
        // SAFETY: pointers are to live locals; a UUID has 16 bytes.
        unsafe {
            self.check(get(&mut number, ordinal), "cuDeviceGet")?;
            self.check(uuid(&mut bytes, number), "cuDeviceGetUuid")?;
        }
        let text = |call: GetText, what: &str| {
            let mut bytes = [0u8; 256];
            // SAFETY: `bytes` has the length said.
            self.check(unsafe { call(bytes.as_mut_ptr().cast(), bytes.len() as c_int, number) }, what)?;
            Ok::<_, Error>(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
        };
        // An attribute that the driver does not know counts as one that the device does not have.
        let attribute = |which: c_int| {
            let mut value = 0;
            // SAFETY: the pointer is to a live local.
            if unsafe { attribute(&mut value, which, number) } == 0 { value } else { 0 }
        };
        let name = text(name, "cuDeviceGetName")?;
        let compute_mode = match attribute(COMPUTE_MODE) {
            2 => ComputeMode::Prohibited,
            3 => ComputeMode::ExclusiveProcess,
            _ => ComputeMode::Default,
        };
        Ok(DeviceInfo {
            uuid: uuid_text(&name, &bytes),
            pci: text(pci, "cuDeviceGetPCIBusId")?.to_lowercase(),
            name,
            compute_mode,
            stream_memory_ops: attribute(WAIT_VALUE) != 0,
            mps: attribute(MPS_ENABLED) != 0,
            number,
            multiprocessors: attribute(MULTIPROCESSORS).max(1) as u32,
            threads_per_multiprocessor: attribute(THREADS_PER_MULTIPROCESSOR).max(256) as u32,
        })
    }

    fn check(self, status: Status, what: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = null_mut();
        // SAFETY: the type is that of cuda.h; on success the driver's text is a C string that lives for ever.
        let name = unsafe {
            match self.library.function::<GetErrorText>(c"cuGetErrorName") {
                Ok(call) if call(status, &mut text) == 0 && !text.is_null() => {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
                _ => status.to_string(),
            }
        };
        Err(Error::environment(format!("{what} returned {name}")))
    }
}

/// Version as text: `13.0` for 13000.
pub fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// UUID in the form of `nvidia-smi -L`: instances of a divided GPU have another prefix.
fn uuid_text(name: &str, bytes: &[u8; 16]) -> String {
    let prefix = if name.contains(" MIG ") { "MIG" } else { "GPU" };
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{prefix}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Source of a kernel that only computes, so that its time depends on `n` alone. The driver compiles it for the device.
const SPIN: &CStr = c"
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 n, .param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %id, %t, %x;
    .reg .b64 %out, %at, %i, %n;

    ld.param.u64 %n, [n];
    ld.param.u64 %out, [out];
    mov.u32 %id, %ctaid.x;
    mov.u32 %t, %ntid.x;
    mul.lo.u32 %id, %id, %t;
    mov.u32 %t, %tid.x;
    add.u32 %id, %id, %t;
    add.u32 %x, %id, 1;
    mov.u64 %i, 0;
LOOP:
    setp.ge.u64 %p, %i, %n;
    @%p bra DONE;
    mul.lo.u32 %x, %x, 1664525;
    add.u32 %x, %x, 1013904223;
    shr.u32 %t, %x, 13;
    xor.b32 %x, %x, %t;
    add.u64 %i, %i, 1;
    bra LOOP;
DONE:
    cvta.to.global.u64 %out, %out;
    mul.wide.u32 %at, %id, 4;
    add.u64 %at, %out, %at;
    st.global.u32 [%at], %x;
    ret;
}
";

/// Threads of a block.
const BLOCK: u32 = 256;

/// Part of the GPU that a kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One block on each multiprocessor.
    Small,
    /// As many blocks as fit.
    Whole,
}

/// Stream and kernel of selectable length.
#[derive(Debug)]
pub struct Spinner {
    cuda: Cuda,
    stream: Handle,
    function: Handle,
    out: u64,
    blocks: u32,
    iterations: u64,
    launch: Launch,
    synchronize: OfStream,
}

impl Spinner {
    /// Compiles the kernel for a device, in the device's primary context; the process keeps it until its end.
    ///
    /// # Errors
    /// Returns the reason for which the device cannot be shared, or an error that names the failed call.
    pub fn new(cuda: Cuda, device: &DeviceInfo, extent: Extent) -> Result<Spinner> {
        match device.compute_mode {
            ComputeMode::Default => {}
            ComputeMode::Prohibited => {
                return Err(Error::environment(format!(
                    "{} takes no programs; `nvidia-smi -c DEFAULT` changes that",
                    device.name
                )));
            }
            ComputeMode::ExclusiveProcess => {
                return Err(Error::environment(format!(
                    "{} takes one program at a time; `nvidia-smi -c DEFAULT` changes that",
                    device.name
                )));
            }
        }
        let blocks = match extent {
            Extent::Small => device.multiprocessors,
            Extent::Whole => device.multiprocessors * (device.threads_per_multiprocessor / BLOCK),
        };
        let library = cuda.library;
        // SAFETY: the types are those of cuda.h.
        let (retain, set, create, load, get, allocate) = unsafe {
            (
                library.function::<RetainContext>(c"cuDevicePrimaryCtxRetain")?,
                library.function::<SetContext>(c"cuCtxSetCurrent")?,
                library.function::<CreateStream>(c"cuStreamCreate")?,
                library.function::<LoadModule>(c"cuModuleLoadData")?,
                library.function::<GetFunction>(c"cuModuleGetFunction")?,
                library.function::<Allocate>(c"cuMemAlloc_v2")?,
            )
        };
        let (mut context, mut stream, mut module, mut function, mut out) =
            (null_mut(), null_mut(), null_mut(), null_mut(), 0);
        // SAFETY: handles are passed on only when the call that made them succeeded; pointers are to live locals, and
        // the module's text ends in zero.
        unsafe {
            cuda.check(retain(&mut context, device.number), "cuDevicePrimaryCtxRetain")?;
            cuda.check(set(context), "cuCtxSetCurrent")?;
            cuda.check(create(&mut stream, STREAM_NON_BLOCKING), "cuStreamCreate")?;
            cuda.check(load(&mut module, SPIN.as_ptr().cast()), "cuModuleLoadData")?;
            cuda.check(get(&mut function, module, c"spin".as_ptr()), "cuModuleGetFunction")?;
            cuda.check(allocate(&mut out, (blocks * BLOCK) as usize * 4), "cuMemAlloc")?;
        }
        // SAFETY: the types are those of cuda.h.
        let (launch, synchronize) =
            unsafe { (library.function(c"cuLaunchKernel")?, library.function(c"cuStreamSynchronize")?) };
        Ok(Spinner { cuda, stream, function, out, blocks, iterations: 0, launch, synchronize })
    }

    /// Sets the length of the next kernels.
    pub fn set_iterations(&mut self, n: u32) {
        self.iterations = n.into();
    }

    /// Launches one kernel.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn launch(&self) -> Result<()> {
        let (mut n, mut out) = (self.iterations, self.out);
        let mut arguments = [(&raw mut n).cast::<c_void>(), (&raw mut out).cast::<c_void>()];
        // SAFETY: stream and function are alive; the arguments have the kernel's types, are copied before the call
        // returns, and `out` has a word for each thread.
        let status = unsafe {
            (self.launch)(
                self.function,
                self.blocks,
                1,
                1,
                BLOCK,
                1,
                1,
                0,
                self.stream,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        };
        self.cuda.check(status, "cuLaunchKernel")
    }

    /// Waits for all launched kernels.
    ///
    /// # Errors
    /// Returns an error that names the failed call.
    pub fn finish(&self) -> Result<()> {
        // SAFETY: the stream is alive.
        self.cuda.check(unsafe { (self.synchronize)(self.stream) }, "cuStreamSynchronize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_identities_are_written_as_elsewhere() {
        assert_eq!((version_text(13000), version_text(12080)), ("13.0".to_owned(), "12.8".to_owned()));
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid_text("NVIDIA H200", &bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert!(uuid_text("NVIDIA H200 MIG 1g.18gb", &bytes).starts_with("MIG-"));
    }
}
