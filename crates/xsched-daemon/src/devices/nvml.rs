//! NVIDIA's management library, opened when it is needed and never linked. Values that its version does not provide are left out.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use libloading::Library;
use xsched_proto::device::{DeviceProcess, DeviceState, Source, Throttle};

use super::driver::{DeviceLabel, Driver, Look};
use crate::clock::now_ns;

const LIBRARY: &str = "libnvidia-ml.so.1";

/// `nvmlReturn_t`.
type Return = c_int;
const SUCCESS: Return = 0;
const NOT_SUPPORTED: Return = 3;
/// `nvmlDevice_t`.
type Handle = *mut c_void;

/// `nvmlPciInfo_t`.
#[repr(C)]
struct Pci {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    address: [c_char; 32],
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
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlProcessInfo_t`, the same in the second and the third version of the function.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    memory: c_ulonglong,
    instances: [c_uint; 2],
}

/// `nvmlMemory_v2`.
const MEMORY_2: c_uint = size_of::<Memory2>() as c_uint | 2 << 24;
/// `NVML_TEMPERATURE_GPU`, `NVML_TEMPERATURE_THRESHOLD_SLOWDOWN`, `NVML_CLOCK_SM`.
const SENSOR: c_int = 0;
const SLOWDOWN: c_int = 1;
const CLOCK_SM: c_int = 1;
/// Largest number of processes that are asked for; if there are more, none is reported.
const PROCESSES_MAX: usize = 256;
/// Bits of `nvmlClocksEventReasons`.
const REASONS: [(u64, Throttle); 5] = [
    (0x4, Throttle::PowerCap),
    (0x20, Throttle::SwThermal),
    (0x40, Throttle::HwThermal),
    (0x80, Throttle::PowerBrake),
    (0x8, Throttle::HwSlowdown),
];

macro_rules! functions {
    ($($field:ident: $name:literal ($($argument:ty),*);)*) => {
        /// Functions of the library that exist.
        struct Api {
            $($field: Option<unsafe extern "C" fn($($argument),*) -> Return>,)*
        }

        impl Api {
            fn of(library: &Library) -> Api {
                // SAFETY: the types are those of nvml.h. The library is never closed: see `api`.
                unsafe { Api { $($field: library.get($name).ok().map(|function| *function),)* } }
            }
        }
    };
}

functions! {
    init: c"nvmlInit_v2" ();
    shutdown: c"nvmlShutdown" ();
    version: c"nvmlSystemGetDriverVersion" (*mut c_char, c_uint);
    count: c"nvmlDeviceGetCount_v2" (*mut c_uint);
    by_index: c"nvmlDeviceGetHandleByIndex_v2" (c_uint, *mut Handle);
    pci: c"nvmlDeviceGetPciInfo_v3" (Handle, *mut Pci);
    name: c"nvmlDeviceGetName" (Handle, *mut c_char, c_uint);
    uuid: c"nvmlDeviceGetUUID" (Handle, *mut c_char, c_uint);
    mig_instance: c"nvmlDeviceGetGpuInstanceId" (Handle, *mut c_uint);
    mig_mode: c"nvmlDeviceGetMigMode" (Handle, *mut c_uint, *mut c_uint);
    mig_count: c"nvmlDeviceGetMaxMigDeviceCount" (Handle, *mut c_uint);
    mig_by_index: c"nvmlDeviceGetMigDeviceHandleByIndex" (Handle, c_uint, *mut Handle);
    memory_2: c"nvmlDeviceGetMemoryInfo_v2" (Handle, *mut Memory2);
    memory: c"nvmlDeviceGetMemoryInfo" (Handle, *mut Memory);
    utilization: c"nvmlDeviceGetUtilizationRates" (Handle, *mut Utilization);
    temperature: c"nvmlDeviceGetTemperature" (Handle, c_int, *mut c_uint);
    threshold: c"nvmlDeviceGetTemperatureThreshold" (Handle, c_int, *mut c_uint);
    power: c"nvmlDeviceGetPowerUsage" (Handle, *mut c_uint);
    power_limit: c"nvmlDeviceGetEnforcedPowerLimit" (Handle, *mut c_uint);
    reasons: c"nvmlDeviceGetCurrentClocksEventReasons" (Handle, *mut c_ulonglong);
    reasons_before: c"nvmlDeviceGetCurrentClocksThrottleReasons" (Handle, *mut c_ulonglong);
    clock: c"nvmlDeviceGetClockInfo" (Handle, c_int, *mut c_uint);
    processes_3: c"nvmlDeviceGetComputeRunningProcesses_v3" (Handle, *mut c_uint, *mut Process);
    processes_2: c"nvmlDeviceGetComputeRunningProcesses_v2" (Handle, *mut c_uint, *mut Process);
}

/// Opens the library once, if possible. It is never closed again, since it may have threads of its own.
fn api() -> Option<&'static Api> {
    static API: OnceLock<(Library, Api)> = OnceLock::new();
    if API.get().is_none() {
        // SAFETY: its constructors are trusted as its owner trusts them.
        let library = unsafe { Library::new(LIBRARY) }.ok()?;
        let api = Api::of(&library);
        // If another thread was quicker, both have the same library.
        let _ = API.set((library, api));
    }
    API.get().map(|(_, api)| api)
}

/// Device that the library knows.
struct Device {
    key: String,
    handle: Handle,
    /// Handle of the board that it is a part of, which has the sensors; its own where it is no part.
    board: Handle,
}

struct Nvml {
    api: &'static Api,
    devices: Vec<Device>,
    /// Keys that were wanted when `devices` was found.
    found_for: BTreeSet<String>,
}

/// Opens the library for use. While it is in use the driver cannot be unloaded; dropping this ends the use.
pub(super) fn open() -> Option<Box<dyn Driver>> {
    Some(Box::new(Nvml::open()?))
}

/// Version of the driver; none = there is no library, or it does not work here.
pub(super) fn version() -> Option<String> {
    let nvml = Nvml::open()?;
    let version = nvml.api.version?;
    // SAFETY: as `text` asks.
    text(|buffer, room| unsafe { version(buffer, room) })
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Some(shutdown) = self.api.shutdown {
            // SAFETY: no handle is used after.
            unsafe { shutdown() };
        }
    }
}

impl Nvml {
    fn open() -> Option<Nvml> {
        let api = api()?;
        let init = api.init?;
        // SAFETY: needs nothing.
        let done = unsafe { init() } == SUCCESS;
        done.then(|| Nvml { api, devices: Vec::new(), found_for: BTreeSet::new() })
    }

    fn find(&mut self) {
        self.devices.clear();
        let api = self.api;
        let (Some(count), Some(by_index)) = (api.count, api.by_index) else { return };
        // SAFETY: pointers to locals.
        let count = value(|out| unsafe { count(out) }).unwrap_or(0);
        for index in 0..count {
            // SAFETY: as above.
            let Some(board) = handle(|out| unsafe { by_index(index, out) }) else { continue };
            self.devices.extend(self.address(board).map(|key| Device { key, handle: board, board }));
            self.find_parts(board);
        }
    }

    /// Finds the MIG devices of a GPU.
    fn find_parts(&mut self, board: Handle) {
        let api = self.api;
        let (Some(mode), Some(count), Some(by_index)) = (api.mig_mode, api.mig_count, api.mig_by_index) else {
            return;
        };
        let mut pending = 0;
        // SAFETY: a live handle and pointers to locals.
        if value(|out| unsafe { mode(board, out, &mut pending) }) != Some(1) {
            return;
        }
        // SAFETY: as above.
        for index in 0..value(|out| unsafe { count(board, out) }).unwrap_or(0) {
            // SAFETY: as above.
            let Some(part) = handle(|out| unsafe { by_index(board, index, out) }) else { continue };
            self.devices.extend(self.instance(part).map(|key| Device { key, handle: part, board }));
        }
    }

    fn address(&self, device: Handle) -> Option<String> {
        let get = self.api.pci?;
        let mut pci = Pci { legacy: [0; 16], domain: 0, bus: 0, device: 0, ids: [0; 2], address: [0; 32] };
        // SAFETY: a live handle and a structure of the size that the third version fills.
        let done = unsafe { get(device, &mut pci) } == SUCCESS;
        done.then(|| format!("pci:{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device))
    }

    fn instance(&self, part: Handle) -> Option<String> {
        let get = self.api.uuid?;
        // SAFETY: a live handle; as `text` asks.
        let uuid = text(|buffer, room| unsafe { get(part, buffer, room) })?;
        Some(format!("mig:{}", uuid.strip_prefix("MIG-")?.to_ascii_lowercase()))
    }

    /// Reads the state of a device; none where the device is gone.
    fn read(&self, device: &Device) -> Option<Look> {
        let at_ns = now_ns();
        let api = self.api;
        let (handle, board) = (device.handle, device.board);
        let (used, total) = self.memory(handle)?;
        let number = |get: Option<unsafe extern "C" fn(Handle, *mut c_uint) -> Return>| {
            // SAFETY: a live handle and a pointer to a local.
            get.and_then(|get| value(|out| unsafe { get(board, out) }))
        };
        let chosen = |get: Option<unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> Return>, which| {
            // SAFETY: as above.
            get.and_then(|get| value(|out| unsafe { get(board, which, out) }))
        };
        let utilization = self.utilization(handle);
        let name = api.name.and_then(|get| {
            // SAFETY: a live handle; as `text` asks.
            text(|buffer, room| unsafe { get(handle, buffer, room) })
        });
        let state = DeviceState {
            memory_used_bytes: used,
            memory_total_bytes: total,
            active_percent: utilization.as_ref().map(|u| u.gpu),
            memory_active_percent: utilization.as_ref().map(|u| u.memory),
            temperature_c: chosen(api.temperature, SENSOR).map(c_uint::cast_signed),
            temperature_limit_c: chosen(api.threshold, SLOWDOWN).map(c_uint::cast_signed),
            power_w: number(api.power).map(|mw| mw / 1_000),
            power_limit_w: number(api.power_limit).map(|mw| mw / 1_000),
            sm_clock_mhz: chosen(api.clock, CLOCK_SM),
            throttle: self.throttle(board),
            ..DeviceState::default()
        };
        let label = DeviceLabel {
            uuid: api.uuid.and_then(|get| {
                // SAFETY: a live handle; as `text` asks.
                text(|buffer, room| unsafe { get(board, buffer, room) })
            }),
            // SAFETY: a live handle and a pointer to a local.
            instance: api
                .mig_instance
                .filter(|_| handle != board)
                .and_then(|get| value(|out| unsafe { get(handle, out) })),
        };
        let processes = self.processes(handle);
        Some(Look { at_ns, device: device.key.clone(), source: Source::Nvml, name, label, state, processes })
    }

    /// Bytes in use and total bytes, as far as the library reports them; none = the device is gone.
    fn memory(&self, device: Handle) -> Option<(Option<u64>, Option<u64>)> {
        let mut memory = Memory2 { version: MEMORY_2, ..Memory2::default() };
        let mut before = Memory::default();
        // The first version counts memory that the driver keeps for itself as used.
        let code = match (self.api.memory_2, self.api.memory) {
            // SAFETY: a live handle and a local of the type.
            (Some(get), _) => unsafe { get(device, &mut memory) },
            (None, Some(get)) => {
                // SAFETY: as above.
                let code = unsafe { get(device, &mut before) };
                (memory.used, memory.total) = (before.used, before.total);
                code
            }
            (None, None) => NOT_SUPPORTED,
        };
        match code {
            SUCCESS => Some((Some(memory.used), Some(memory.total))),
            NOT_SUPPORTED => Some((None, None)),
            _ => None,
        }
    }

    fn utilization(&self, device: Handle) -> Option<Utilization> {
        let get = self.api.utilization?;
        let mut utilization = Utilization::default();
        // SAFETY: a live handle and a pointer to a local.
        (unsafe { get(device, &mut utilization) } == SUCCESS).then_some(utilization)
    }

    fn throttle(&self, board: Handle) -> Option<Vec<Throttle>> {
        let get = self.api.reasons.or(self.api.reasons_before)?;
        // SAFETY: a live handle and a pointer to a local.
        let bits: u64 = value(|out| unsafe { get(board, out) })?;
        Some(REASONS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| reason).collect())
    }

    fn processes(&self, device: Handle) -> Option<Vec<DeviceProcess>> {
        let get = self.api.processes_3.or(self.api.processes_2)?;
        let mut found = vec![Process::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        // SAFETY: a live handle, and room for as many as is said.
        if unsafe { get(device, &mut count, found.as_mut_ptr()) } != SUCCESS {
            return None;
        }
        found.truncate(count as usize);
        let process = |p: &Process| DeviceProcess {
            pid: p.pid,
            name: name_of(p.pid),
            // A value with all bits set means: not available.
            memory_bytes: Some(p.memory).filter(|bytes| *bytes != u64::MAX),
            outside: false,
        };
        Some(found.iter().map(process).collect())
    }
}

impl Driver for Nvml {
    fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look> {
        if *wanted != self.found_for {
            self.find();
            self.found_for.clone_from(wanted);
        }
        let devices = || self.devices.iter().filter(|device| wanted.contains(&device.key));
        let looks: Vec<Look> = devices().filter_map(|device| self.read(device)).collect();
        if looks.len() < devices().count() {
            // A device is gone, or MIG was set up anew: the devices are searched again at the next poll.
            self.found_for.clear();
        }
        looks
    }
}

fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Value that a function stores, if the function reports success.
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
        let sizes = [size_of::<Pci>(), size_of::<Memory2>(), size_of::<Memory>(), size_of::<Process>()];
        assert_eq!((sizes, MEMORY_2), ([68, 40, 24, 24], 0x0200_0028));
    }
}
