//! HIP functions that `doctor` and `check` call, found at run time.

use std::ffi::{CStr, c_char, c_int};

use xsched_proto::Error;

use crate::{Library, Result};

type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;

/// File names of the runtime, the newest first.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;

/// Facts about this machine from the runtime.
#[derive(Debug, PartialEq)]
pub struct Hip {
    /// Name and PCI address of each device.
    pub devices: Vec<String>,
    /// Preemption levels that all of them support.
    pub levels: Vec<u8>,
}

/// Queries the first runtime that the loader finds.
///
/// # Errors
/// Returns an error that names the missing part.
pub fn look() -> Result<Hip> {
    let library = open()?;
    // SAFETY: the types are the header's.
    let (count_of, version_of, name_of, address_of) = unsafe {
        (
            library.function::<Count>(c"hipGetDeviceCount")?,
            library.function::<Count>(c"hipRuntimeGetVersion")?,
            library.function::<Text>(c"hipDeviceGetName")?,
            library.function::<Text>(c"hipDeviceGetPCIBusId")?,
        )
    };
    let (mut count, mut version) = (0, 0);
    // SAFETY: pointers to locals.
    let (rc, _) = unsafe { (count_of(&mut count), version_of(&mut version)) };
    let version = format!("{}.{}", version / 10_000_000, version / 100_000 % 100);
    match rc {
        0 if count > 0 => {}
        0 | NO_DEVICE | INVALID_DEVICE => {
            return Err(Error::environment(format!(
                "the HIP runtime {version} is here, but no device: is /dev/kfd yours to open?"
            )));
        }
        rc => return Err(Error::environment(format!("hipGetDeviceCount of the HIP runtime {version} answers {rc}"))),
    }
    let named: Vec<(String, String)> =
        (0..count).map(|n| (text(name_of, n), text(address_of, n).to_lowercase())).collect();
    let gates = named.iter().all(|(name, _)| has_gates(name));
    let devices = named.into_iter().map(|(name, at)| format!("{name} at {at} (HIP {version})")).collect();
    let levels = [(1, true), (2, gates), (3, can_suspend())];
    Ok(Hip { devices, levels: levels.into_iter().filter(|(_, has)| *has).map(|(level, _)| level).collect() })
}

/// Opens the first runtime that the loader finds.
///
/// # Errors
/// Fails if there is none.
pub fn open() -> Result<Library> {
    let mut tried = NAMES.iter().map(|name| Library::open(*name));
    tried
        .find(Result::is_ok)
        .unwrap_or_else(|| Err(Error::environment("no libamdhip64.so found: is ROCm's lib folder known to ldconfig?")))
}

/// Reports whether the library uses gates on a device automatically: it does on none of AMD's.
fn has_gates(name: &str) -> bool {
    ["NVIDIA ", "Simulated "].iter().any(|prefix| name.starts_with(prefix))
}

/// Reports whether AMD's driver would suspend queues for this user.
fn can_suspend() -> bool {
    let saves = std::fs::read_to_string("/sys/module/amdgpu/parameters/cwsr_enable").is_ok_and(|v| v.trim() != "0");
    saves && std::fs::OpenOptions::new().read(true).write(true).open("/dev/kfd").is_ok()
}

fn text(ask: Text, device: c_int) -> String {
    let mut text: [c_char; 256] = [0; 256];
    // SAFETY: the buffer has the length given and one more, so that a NUL ends it.
    let rc = unsafe { ask(text.as_mut_ptr(), text.len() as c_int - 1, device) };
    if rc != 0 {
        return "?".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}
