//! NVIDIA's management library (NVML), opened when it is needed. Versions differ in what they have: what one lacks is not told.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, OnceLock};

use crate::Library;

/// File name of the library.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// `nvmlReturn_t`.
type Return = c_int;
const SUCCESS: Return = 0;
const NOT_SUPPORTED: Return = 3;
const TIMEOUT: Return = 10;
/// `nvmlDevice_t`, `nvmlEventSet_t`.
type Handle = *mut c_void;

/// `nvmlPciInfo_t` of nvml.h.
#[derive(Default)]
#[repr(C)]
pub struct Pci {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    address: [c_char; 32],
}

impl Pci {
    /// PCI address, such as `0000:41:00.0`.
    pub fn address(&self) -> String {
        format!("{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Default)]
struct Memory2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlUtilization_t`: percent of the last sample's time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Utilization {
    /// Time in which a kernel ran, percent.
    pub gpu: c_uint,
    /// Time in which memory was read or written, percent.
    pub memory: c_uint,
}

/// `nvmlProcessInfo_t`, the same in the second and the third version of the function.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    instances: [c_uint; 2],
}

/// `nvmlEventData_t`.
#[repr(C)]
struct EventData {
    device: Handle,
    kind: c_ulonglong,
    data: c_ulonglong,
    instances: [c_uint; 2],
}

/// `nvmlMemory_v2`.
const MEMORY_2: c_uint = size_of::<Memory2>() as c_uint | 2 << 24;
/// `NVML_TEMPERATURE_GPU`, `NVML_TEMPERATURE_THRESHOLD_SLOWDOWN`, `NVML_CLOCK_SM`.
const SENSOR: c_int = 0;
const SLOWDOWN: c_int = 1;
const CLOCK_SM: c_int = 1;
/// `nvmlEventTypeXidCriticalError`.
const XID: c_ulonglong = 8;
/// Largest number of processes that are asked for; if there are more, none is reported.
const PROCESSES_MAX: usize = 256;

crate::functions! {
    /// The functions that the library has, with the types of nvml.h.
    struct Api -> Return;
    optional {
        init: c"nvmlInit_v2" ();
        shutdown: c"nvmlShutdown" ();
        version: c"nvmlSystemGetDriverVersion" (*mut c_char, c_uint);
        count: c"nvmlDeviceGetCount_v2" (*mut c_uint);
        by_index: c"nvmlDeviceGetHandleByIndex_v2" (c_uint, *mut Handle);
        pci: c"nvmlDeviceGetPciInfo_v3" (Handle, *mut Pci);
        name: c"nvmlDeviceGetName" (Handle, *mut c_char, c_uint);
        uuid: c"nvmlDeviceGetUUID" (Handle, *mut c_char, c_uint);
        minor: c"nvmlDeviceGetMinorNumber" (Handle, *mut c_uint);
        mig_instance: c"nvmlDeviceGetGpuInstanceId" (Handle, *mut c_uint);
        mig_mode: c"nvmlDeviceGetMigMode" (Handle, *mut c_uint, *mut c_uint);
        mig_count: c"nvmlDeviceGetMaxMigDeviceCount" (Handle, *mut c_uint);
        mig_by_index: c"nvmlDeviceGetMigDeviceHandleByIndex" (Handle, c_uint, *mut Handle);
        memory_2: c"nvmlDeviceGetMemoryInfo_v2" (Handle, *mut Memory2);
        memory: c"nvmlDeviceGetMemoryInfo" (Handle, *mut Memory1);
        utilization: c"nvmlDeviceGetUtilizationRates" (Handle, *mut Utilization);
        temperature: c"nvmlDeviceGetTemperature" (Handle, c_int, *mut c_uint);
        threshold: c"nvmlDeviceGetTemperatureThreshold" (Handle, c_int, *mut c_uint);
        power: c"nvmlDeviceGetPowerUsage" (Handle, *mut c_uint);
        power_limit: c"nvmlDeviceGetEnforcedPowerLimit" (Handle, *mut c_uint);
        reasons: c"nvmlDeviceGetCurrentClocksEventReasons" (Handle, *mut c_ulonglong);
        reasons_before: c"nvmlDeviceGetCurrentClocksThrottleReasons" (Handle, *mut c_ulonglong);
        clock: c"nvmlDeviceGetClockInfo" (Handle, c_int, *mut c_uint);
        processes_3: c"nvmlDeviceGetComputeRunningProcesses_v3" (Handle, *mut c_uint, *mut ProcessInfo);
        processes_2: c"nvmlDeviceGetComputeRunningProcesses_v2" (Handle, *mut c_uint, *mut ProcessInfo);
        new_events: c"nvmlEventSetCreate" (*mut Handle);
        events_of: c"nvmlDeviceRegisterEvents" (Handle, c_ulonglong, Handle);
        wait: c"nvmlEventSetWait_v2" (Handle, *mut EventData, c_uint);
    }
}

/// A function that stores a number about a device.
type Number<T> = Option<unsafe extern "C" fn(Handle, *mut T) -> Return>;
/// A function that stores a number about a device, of a kind that it is told.
type NumberOfKind = Option<unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> Return>;
/// A function that stores a text about a device.
type Text = Option<unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Return>;

/// The library, once it could be opened. Never closed again: it may have threads of its own.
fn api() -> Result<&'static Api, Refusal> {
    static API: OnceLock<Api> = OnceLock::new();
    if let Some(api) = API.get() {
        return Ok(api);
    }
    let library = Library::open_lazily(LIBRARY).map_err(|error| Refusal::NotOpened(error.line().to_owned()))?;
    // SAFETY: the types are those of nvml.h.
    let api = unsafe { Api::load(|name| library.find(name)) };
    let api = api.map_err(|_| Refusal::Unusable)?;
    // Should another thread have been quicker, both are the same library.
    Ok(API.get_or_init(|| api))
}

/// A reason why the library is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The library cannot be opened; the loader's line.
    NotOpened(String),
    /// The library cannot be initialised: there is no driver, for one.
    Unusable,
}

/// A time in which the library is in use. Until it ends the driver cannot be unloaded.
struct Session {
    api: &'static Api,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(shutdown) = self.api.shutdown {
            // SAFETY: each handle keeps its session, so that none is left.
            unsafe { shutdown() };
        }
    }
}

/// The library in use. Shut down once this and all devices that it told are dropped.
pub struct Nvml(Arc<Session>);

/// A GPU, or a part of one that MIG has made.
#[derive(Clone)]
pub struct Device {
    session: Arc<Session>,
    handle: Handle,
}

// SAFETY: the library may be called from any thread; a handle is valid in all of them.
unsafe impl Send for Device {}

/// Memory of a device, bytes, as far as it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use.
    pub used: Option<u64>,
    /// Bytes that there are.
    pub total: Option<u64>,
}

/// A process that has a context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Bytes of the device's memory that it has; none where they are not told.
    pub memory: Option<u64>,
}

impl Nvml {
    /// Opens the library and initialises it.
    ///
    /// # Errors
    /// There is no library, or it cannot be used.
    pub fn open() -> Result<Nvml, Refusal> {
        let api = api()?;
        let init = api.init.ok_or(Refusal::Unusable)?;
        // SAFETY: needs nothing.
        let done = unsafe { init() } == SUCCESS;
        if done { Ok(Nvml(Arc::new(Session { api }))) } else { Err(Refusal::Unusable) }
    }

    /// The driver's version.
    pub fn version(&self) -> Option<String> {
        let version = self.0.api.version?;
        // SAFETY: as `text` asks.
        text(|buffer, room| unsafe { version(buffer, room) })
    }

    /// Number of GPUs.
    pub fn count(&self) -> Option<u32> {
        let count = self.0.api.count?;
        // SAFETY: a pointer to a local.
        value(|out| unsafe { count(out) })
    }

    /// A GPU, by its place among them; none where the driver does not hand it out.
    pub fn board(&self, index: u32) -> Option<Device> {
        let by_index = self.0.api.by_index?;
        // SAFETY: a pointer to a local.
        handle(|out| unsafe { by_index(index, out) }).map(|handle| Device { session: self.0.clone(), handle })
    }

    /// Prepares to be told of faults; none where the library does not tell of any.
    pub fn faults(&self) -> Option<Faults> {
        let (new, wait) = (self.0.api.new_events?, self.0.api.wait?);
        // SAFETY: a pointer to a local.
        let set = handle(|out| unsafe { new(out) })?;
        Some(Faults { session: self.0.clone(), set, wait })
    }
}

impl Device {
    /// Tells whether both are the same device.
    pub fn is(&self, other: &Device) -> bool {
        self.handle == other.handle
    }

    /// PCI address, such as `0000:41:00.0`.
    pub fn address(&self) -> Option<String> {
        let get = self.session.api.pci?;
        let mut pci = Pci::default();
        // SAFETY: a live handle and a structure of the size that the third version fills.
        let done = unsafe { get(self.handle, &mut pci) } == SUCCESS;
        done.then(|| pci.address())
    }

    /// UUID: `GPU-…`, or `MIG-…` of a part.
    pub fn uuid(&self) -> Option<String> {
        self.text(self.session.api.uuid)
    }

    /// Name of the product.
    pub fn name(&self) -> Option<String> {
        self.text(self.session.api.name)
    }

    /// Number of the GPU's device node.
    pub fn minor(&self) -> Option<u32> {
        self.number(self.session.api.minor)
    }

    /// Number of the GPU instance that this part lies in.
    pub fn instance(&self) -> Option<u32> {
        self.number(self.session.api.mig_instance)
    }

    /// Parts of a GPU that is in MIG mode; none where it is in no such mode.
    pub fn parts(&self) -> Option<Vec<Device>> {
        let api = self.session.api;
        let (mode, by_index) = (api.mig_mode?, api.mig_by_index?);
        let mut pending = 0;
        // SAFETY: a live handle and pointers to locals.
        if value(|out| unsafe { mode(self.handle, out, &mut pending) }) != Some(1) {
            return None;
        }
        let most: u32 = self.number(api.mig_count)?;
        let part = |index| {
            // SAFETY: as above.
            let handle = handle(|out| unsafe { by_index(self.handle, index, out) })?;
            Some(Device { session: self.session.clone(), handle })
        };
        Some((0..most).filter_map(part).collect())
    }

    /// Memory; none where the device is gone.
    pub fn memory(&self) -> Option<Memory> {
        let api = self.session.api;
        let (code, used, total) = match (api.memory_2, api.memory) {
            (Some(get), _) => {
                let mut memory = Memory2 { version: MEMORY_2, ..Memory2::default() };
                // SAFETY: a live handle and a local of the type.
                (unsafe { get(self.handle, &mut memory) }, memory.used, memory.total)
            }
            // The first version counts memory that the driver keeps for itself as used.
            (None, Some(get)) => {
                let mut memory = Memory1::default();
                // SAFETY: as above.
                (unsafe { get(self.handle, &mut memory) }, memory.used, memory.total)
            }
            (None, None) => (NOT_SUPPORTED, 0, 0),
        };
        match code {
            SUCCESS => Some(Memory { used: Some(used), total: Some(total) }),
            NOT_SUPPORTED => Some(Memory::default()),
            _ => None,
        }
    }

    /// Activity in the time since it was asked last.
    pub fn utilization(&self) -> Option<Utilization> {
        self.number(self.session.api.utilization)
    }

    /// Temperature of the GPU, °C.
    pub fn temperature(&self) -> Option<u32> {
        self.number_of_kind(self.session.api.temperature, SENSOR)
    }

    /// Temperature from which on it slows down, °C.
    pub fn temperature_limit(&self) -> Option<u32> {
        self.number_of_kind(self.session.api.threshold, SLOWDOWN)
    }

    /// Power that it takes, mW.
    pub fn power(&self) -> Option<u32> {
        self.number(self.session.api.power)
    }

    /// Power that it may take, mW.
    pub fn power_limit(&self) -> Option<u32> {
        self.number(self.session.api.power_limit)
    }

    /// Clock of the multiprocessors, MHz.
    pub fn clock(&self) -> Option<u32> {
        self.number_of_kind(self.session.api.clock, CLOCK_SM)
    }

    /// Reasons why it does not run at its highest clocks: bits of `nvmlClocksEventReasons`.
    pub fn clock_reasons(&self) -> Option<u64> {
        self.number(self.session.api.reasons.or(self.session.api.reasons_before))
    }

    /// Processes that have a context on it; none where they are not told, or where they are too many.
    pub fn processes(&self) -> Option<Vec<Process>> {
        let get = self.session.api.processes_3.or(self.session.api.processes_2)?;
        let mut found = vec![ProcessInfo::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        // SAFETY: a live handle, and room for as many as is said.
        if unsafe { get(self.handle, &mut count, found.as_mut_ptr()) } != SUCCESS {
            return None;
        }
        found.truncate(count as usize);
        // A value with all bits set means: not available.
        let memory = |bytes| Some(bytes).filter(|bytes| *bytes != u64::MAX);
        Some(found.iter().map(|process| Process { pid: process.pid, memory: memory(process.memory) }).collect())
    }

    fn number<T: Default>(&self, get: Number<T>) -> Option<T> {
        let get = get?;
        // SAFETY: a live handle and a pointer to a local.
        value(|out| unsafe { get(self.handle, out) })
    }

    fn number_of_kind(&self, get: NumberOfKind, kind: c_int) -> Option<u32> {
        let get = get?;
        // SAFETY: a live handle and a pointer to a local.
        value(|out| unsafe { get(self.handle, kind, out) })
    }

    fn text(&self, get: Text) -> Option<String> {
        let get = get?;
        // SAFETY: a live handle; as `text` asks.
        text(|buffer, room| unsafe { get(self.handle, buffer, room) })
    }
}

/// A stream of faults of the devices that are watched.
pub struct Faults {
    session: Arc<Session>,
    set: Handle,
    wait: unsafe extern "C" fn(Handle, *mut EventData, c_uint) -> Return,
}

/// Outcome of a wait for faults.
pub enum Waited {
    /// A fault of a device, by NVIDIA's number for it (Xid).
    Fault(Device, u64),
    /// Nothing that counts as a fault.
    Nothing,
    /// The library cannot wait; its code.
    Failed(i32),
}

impl Faults {
    /// Watches a device. False: the driver does not tell of its faults.
    pub fn watch(&self, device: &Device) -> bool {
        let Some(watch) = self.session.api.events_of else { return false };
        // SAFETY: live handles of the library.
        unsafe { watch(device.handle, XID, self.set) == SUCCESS }
    }

    /// Waits for the next fault, so many ms at most. The wait cannot be interrupted.
    pub fn wait(&self, ms: u32) -> Waited {
        let mut event = EventData { device: std::ptr::null_mut(), kind: 0, data: 0, instances: [0; 2] };
        // SAFETY: the set is the library's, `event` is valid for it to write.
        match unsafe { (self.wait)(self.set, &raw mut event, ms) } {
            SUCCESS if event.kind == XID => {
                Waited::Fault(Device { session: self.session.clone(), handle: event.device }, event.data)
            }
            SUCCESS | TIMEOUT => Waited::Nothing,
            code => Waited::Failed(code),
        }
    }
}

/// A value that a function stores, if it says that it did.
fn value<T: Default>(get: impl FnOnce(&mut T) -> Return) -> Option<T> {
    let mut value = T::default();
    (get(&mut value) == SUCCESS).then_some(value)
}

fn handle(get: impl FnOnce(*mut Handle) -> Return) -> Option<Handle> {
    let mut handle = std::ptr::null_mut();
    (get(&mut handle) == SUCCESS && !handle.is_null()).then_some(handle)
}

/// Text that a function stores in a buffer of the given size, with a NUL at its end.
fn text(get: impl FnOnce(*mut c_char, c_uint) -> Return) -> Option<String> {
    // The longest text in nvml.h has 96 bytes.
    let mut buffer = [0u8; 128];
    let done = get(buffer.as_mut_ptr().cast(), buffer.len() as c_uint) == SUCCESS;
    let text = CStr::from_bytes_until_nul(&buffer).ok().filter(|_| done)?;
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_in_nvml_h() {
        let sizes = [size_of::<Pci>(), size_of::<Memory2>(), size_of::<Memory1>(), size_of::<ProcessInfo>()];
        assert_eq!((sizes, MEMORY_2), ([68, 40, 24, 24], 0x0200_0028));
        assert_eq!(size_of::<EventData>(), 32);
    }
}
