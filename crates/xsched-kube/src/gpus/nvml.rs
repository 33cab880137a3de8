//! GPUs and their faults, from NVIDIA's management library, which is opened when needed and never linked.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;
use tokio::sync::mpsc;
use xsched_proto::Error;

use super::Gpu;
use crate::log;

const LIBRARY: &str = "libnvidia-ml.so.1";
const SUCCESS: c_int = 0;
const TIMEOUT: c_int = 10;
/// `nvmlEventTypeXidCriticalError`.
const XID: c_ulonglong = 8;
/// Length of one wait for an event, in ms. The wait cannot be interrupted; the thread ends with the program.
const WAIT_MS: c_uint = 1000;
/// Xids that report a fault of a program and leave the GPU healthy, as in the list of NVIDIA's own plugin
/// (k8s-device-plugin).
const OF_PROGRAMS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// `nvmlDevice_t`, `nvmlEventSet_t`.
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

/// `nvmlEventData_t`.
#[repr(C)]
struct Event {
    device: Handle,
    kind: c_ulonglong,
    data: c_ulonglong,
    instances: [c_uint; 2],
}

macro_rules! functions {
    ($($field:ident: $name:literal ($($argument:ty),*);)*) => {
        /// Functions of the library; `None` for those that it lacks.
        struct Api {
            $($field: Option<unsafe extern "C" fn($($argument),*) -> c_int>,)*
        }

        impl Api {
            fn of(library: &Library) -> Api {
                // SAFETY: the types are those of nvml.h. The library is never closed: see `open`.
                unsafe { Api { $($field: library.get($name).ok().map(|function| *function),)* } }
            }
        }
    };
}

functions! {
    init: c"nvmlInit_v2" ();
    count: c"nvmlDeviceGetCount_v2" (*mut c_uint);
    by_index: c"nvmlDeviceGetHandleByIndex_v2" (c_uint, *mut Handle);
    uuid: c"nvmlDeviceGetUUID" (Handle, *mut c_char, c_uint);
    minor: c"nvmlDeviceGetMinorNumber" (Handle, *mut c_uint);
    pci: c"nvmlDeviceGetPciInfo_v3" (Handle, *mut Pci);
    mig_mode: c"nvmlDeviceGetMigMode" (Handle, *mut c_uint, *mut c_uint);
    mig_count: c"nvmlDeviceGetMaxMigDeviceCount" (Handle, *mut c_uint);
    mig_by_index: c"nvmlDeviceGetMigDeviceHandleByIndex" (Handle, c_uint, *mut Handle);
    new_events: c"nvmlEventSetCreate" (*mut Handle);
    events_of: c"nvmlDeviceRegisterEvents" (Handle, c_ulonglong, Handle);
    wait: c"nvmlEventSetWait_v2" (Handle, *mut Event, c_uint);
}

/// Calls a function that the library may lack, and evaluates to whether the call succeeded.
macro_rules! done {
    ($api:expr, $field:ident ($($argument:expr),*)) => {
        match $api.$field {
            // SAFETY: pointers are to values of this function's own, of the types of nvml.h; handles are the library's.
            Some(function) => unsafe { function($($argument),*) == SUCCESS },
            None => false,
        }
    };
}

/// UUIDs of boards that fail.
pub type Faults = mpsc::UnboundedReceiver<String>;

/// GPUs of this node, and the UUIDs of boards as they fail.
///
/// # Errors
/// If NVIDIA's library is missing or cannot be used.
pub fn list() -> Result<(Vec<Gpu>, Faults), Error> {
    let api = open()?;
    if !done!(api, init()) {
        return Err(Error::environment(format!("{LIBRARY} cannot be used: is NVIDIA's driver loaded?")));
    }
    let mut count = 0;
    if !done!(api, count(&raw mut count)) {
        return Err(Error::environment(format!("{LIBRARY} does not tell which GPUs there are")));
    }
    let mut boards = Vec::new();
    let mut gpus = Vec::new();
    for index in 0..count {
        let mut handle: Handle = std::ptr::null_mut();
        if !done!(api, by_index(index, &raw mut handle)) {
            log(format!("GPU {index} cannot be used: the driver does not hand it out"));
            continue;
        }
        let Some(board) = uuid(&api, handle) else {
            log(format!("GPU {index} has no UUID and is not offered"));
            continue;
        };
        let mut minor: c_uint = 0;
        let minor = done!(api, minor(handle, &raw mut minor)).then_some(minor);
        let numa = numa(&api, handle);
        let gpu = |uuid| Gpu { uuid, board: board.clone(), minor, numa, is_simulated: false };
        gpus.extend(parts(&api, handle).unwrap_or_else(|| vec![board.clone()]).into_iter().map(gpu));
        boards.push((handle as usize, board));
    }
    let (sender, faults) = mpsc::unbounded_channel();
    std::thread::spawn(move || watch(&api, &boards, &sender));
    Ok((gpus, faults))
}

fn open() -> Result<Api, Error> {
    // SAFETY: its constructors are trusted as its owner trusts them.
    let library = unsafe { Library::new(LIBRARY) }
        .map_err(|e| Error::environment(format!("cannot load {LIBRARY}: {e}; --simulated N offers GPUs without it")))?;
    let api = Api::of(&library);
    // The library may have threads of its own, so it is never closed.
    std::mem::forget(library);
    Ok(api)
}

fn uuid(api: &Api, handle: Handle) -> Option<String> {
    let mut text = [0 as c_char; 96];
    done!(api, uuid(handle, text.as_mut_ptr(), text.len() as c_uint)).then(|| text_of(&text))
}

fn text_of(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|&c| c as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// UUIDs of the parts of a board in MIG mode; `None` for another board.
fn parts(api: &Api, board: Handle) -> Option<Vec<String>> {
    let (mut current, mut pending, mut most) = (0, 0, 0);
    let is_split = done!(api, mig_mode(board, &raw mut current, &raw mut pending)) && current == 1;
    if !is_split || !done!(api, mig_count(board, &raw mut most)) {
        return None;
    }
    let part = |index| {
        let mut handle: Handle = std::ptr::null_mut();
        done!(api, mig_by_index(board, index, &raw mut handle)).then(|| uuid(api, handle))?
    };
    Some((0..most).filter_map(part).collect())
}

/// NUMA node of a board, which the kernel lists by the board's PCI address; the kernel's -1 means none.
fn numa(api: &Api, board: Handle) -> Option<i64> {
    let mut pci = Pci { legacy: [0; 16], domain: 0, bus: 0, device: 0, ids: [0; 2], address: [0; 32] };
    if !done!(api, pci(board, &raw mut pci)) {
        return None;
    }
    let address = format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{address}/numa_node")).ok()?;
    text.trim().parse().ok().filter(|node| *node >= 0)
}

/// Sends the boards that fail; never returns.
fn watch(api: &Api, boards: &[(usize, String)], sender: &mpsc::UnboundedSender<String>) {
    let mut set: Handle = std::ptr::null_mut();
    if !done!(api, new_events(&raw mut set)) {
        return log("the driver does not tell of faults: the GPUs count as well");
    }
    for (handle, board) in boards {
        if !done!(api, events_of(*handle as Handle, XID, set)) {
            log(format!("{board}: the driver does not tell of its faults: it counts as well"));
        }
    }
    let Some(wait) = api.wait else { return };
    loop {
        let mut event = Event { device: std::ptr::null_mut(), kind: 0, data: 0, instances: [0; 2] };
        // SAFETY: the set is the library's, `event` is valid for it to write.
        match unsafe { wait(set, &raw mut event, WAIT_MS) } {
            SUCCESS if event.kind == XID => {
                let board = boards.iter().find(|(handle, _)| *handle == event.device as usize);
                let Some((_, board)) = board else { continue };
                if OF_PROGRAMS.contains(&event.data) {
                    log(format!("{board}: Xid {}, a program's fault: the GPU goes on", event.data));
                } else {
                    log(format!(
                        "{board}: Xid {}: no further container gets it until this plugin is restarted",
                        event.data
                    ));
                    if sender.send(board.clone()).is_err() {
                        return;
                    }
                }
            }
            SUCCESS | TIMEOUT => {}
            code => {
                log(format!("waiting for faults failed with NVML's code {code}: no further container gets a GPU"));
                for (_, board) in boards {
                    let _ = sender.send(board.clone());
                }
                return;
            }
        }
    }
}
