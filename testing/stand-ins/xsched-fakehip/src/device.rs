//! Properties of devices. The answers are those of an MI50 (gfx906), so that libraries find code for it, except where
//! they would promise features that are missing here.

use crate::event::events;
use crate::graph::execs;
use crate::lookup::major;
use crate::memory;
use crate::result::{Error, Result, describe};
use crate::runtime::{Device, choose, current, current_number, driver, given, runtime};
use crate::stream::streams;
use fakecuda::{In, Out, Text};
use std::ffi::{CStr, c_char, c_int, c_uint};

/// `gcnArchName`: that of an MI50, unless FAKEHIP_ARCH names another.
fn architecture() -> String {
    let given = std::env::var("FAKEHIP_ARCH").ok().filter(|name| name.starts_with("gfx") && name.len() < 256);
    given.unwrap_or_else(|| "gfx906:sramecc+:xnack-".into())
}

/// Major, minor, and the number in old properties: 9, 0 and 910 for gfx90a.
fn capability(architecture: &str) -> [c_int; 3] {
    let name = architecture.split(':').next().unwrap_or_default();
    let digits: Vec<c_int> =
        name.trim_start_matches("gfx").chars().filter_map(|c| Some(c.to_digit(16)? as c_int)).collect();
    match digits[..] {
        [ref major @ .., minor, step] if !major.is_empty() => {
            let major = major.iter().fold(0, |all, digit| all * 10 + digit);
            [major, minor, major * 100 + minor * 10 + step]
        }
        _ => [9, 0, 906],
    }
}

const UNITS: c_int = 60;
const WAVE: c_int = 64;

/// hipRuntimeGetVersion: the newest release of each major that the table of symbols was taken from.
pub(crate) fn version(out: Out<c_int>) -> Result<()> {
    Ok(out.put(match major() {
        5 => 50_221_153,
        6 => 60_443_484,
        _ => 70_253_211,
    })?)
}

pub(crate) fn init(flags: c_uint) -> Result<()> {
    if flags == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// Stores the number of devices. Without a device it stores 0 and returns an error of its own.
pub(crate) fn count(out: Out<c_int>) -> Result<()> {
    let out = out.required()?;
    match runtime() {
        Ok(runtime) => Ok(out.put(runtime.devices.len() as c_int)?),
        Err(_) => {
            out.maybe(0);
            Err(Error::NO_DEVICE)
        }
    }
}

pub(crate) fn set(number: c_int) -> Result<()> {
    choose(given(number)?.number)
}

pub(crate) fn get(out: Out<c_int>) -> Result<()> {
    Ok(out.put(current_number() as c_int)?)
}

/// A hipDevice_t is the number of its device.
pub(crate) fn by_ordinal(out: Out<c_int>, ordinal: c_int) -> Result<()> {
    Ok(out.put(given(ordinal)?.number as c_int)?)
}

fn text(room: usize, ask: impl FnOnce(*mut c_char, c_int) -> Result<()>) -> Result<String> {
    let mut buffer = vec![0 as c_char; room];
    ask(buffer.as_mut_ptr(), room as c_int)?;
    // SAFETY: the driver ends its text within the buffer, which is not empty.
    Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
}

fn put_text(out: Out<c_char>, room: c_int, text: &str) -> Result<()> {
    let room = usize::try_from(room).ok().filter(|&n| n > 0).ok_or(Error::INVALID_VALUE)?;
    let used = &text.as_bytes()[..text.len().min(room - 1)];
    out.required()?.list(used.iter().chain(&[0]).map(|&byte| byte as c_char));
    Ok(())
}

impl Device {
    fn name(&self) -> Result<String> {
        if let Ok(name) = std::env::var("FAKEHIP_NAME") {
            return Ok(name);
        }
        if !driver()?.is_real {
            return Ok("Simulated HIP device".into());
        }
        let name = text(200, |out, room| driver()?.device_name(out, room, self.number as c_int))?;
        Ok(format!("{name} behind HIP"))
    }

    /// PCI address, such as `0000:0a:00.0`.
    fn pci(&self) -> Result<String> {
        text(64, |out, room| driver()?.device_pci(out, room, self.number as c_int)).map(|text| text.to_lowercase())
    }

    /// PCI domain, bus and device.
    fn pci_numbers(&self) -> Result<[c_int; 3]> {
        let text = self.pci()?;
        let mut parts = text.split([':', '.']).map(|part| c_int::from_str_radix(part, 16).unwrap_or(0));
        Ok([(); 3].map(|()| parts.next().unwrap_or(0)))
    }

    fn memory(&self) -> Result<usize> {
        let mut bytes = 0;
        driver()?.device_memory(&raw mut bytes, self.number as c_int)?;
        Ok(bytes)
    }

    fn units(&self) -> Result<c_int> {
        let mut units = UNITS;
        if driver()?.is_real {
            driver()?.device_attribute(&raw mut units, 16, self.number as c_int)?;
        }
        Ok(units)
    }
}

pub(crate) fn name(out: Out<c_char>, room: c_int, number: c_int) -> Result<()> {
    put_text(out, room, &given(number)?.name()?)
}

pub(crate) fn pci_bus_id(out: Out<c_char>, room: c_int, number: c_int) -> Result<()> {
    put_text(out, room, &given(number)?.pci()?)
}

pub(crate) fn by_pci_bus_id(out: Out<c_int>, text: Text) -> Result<()> {
    let (out, wanted) = (out.required()?, text.get()?.to_lowercase());
    for device in &runtime()?.devices {
        if !wanted.is_empty() && device.pci()?.ends_with(&wanted) {
            return Ok(out.put(device.number as c_int)?);
        }
    }
    Err(Error::INVALID_VALUE)
}

pub(crate) fn uuid(out: Out<[u8; 16]>, number: c_int) -> Result<()> {
    let (out, device) = (out.required()?, given(number)?);
    let mut bytes = [0; 16];
    driver()?.device_uuid(&raw mut bytes, device.number as c_int)?;
    Ok(out.put(bytes)?)
}

pub(crate) fn total_memory(out: Out<usize>, number: c_int) -> Result<()> {
    Ok(out.put(given(number)?.memory()?)?)
}

pub(crate) fn compute_capability(major: Out<c_int>, minor: Out<c_int>, number: c_int) -> Result<()> {
    given(number)?;
    let [number, sub, _] = capability(&architecture());
    major.put(number)?;
    Ok(minor.put(sub)?)
}

/// hipDeviceAttribute_t of HIP 5.0 and newer.
pub(crate) fn attribute(out: Out<c_int>, which: c_int, number: c_int) -> Result<()> {
    let device = given(number)?;
    let [domain, bus, slot] = device.pci_numbers()?;
    Ok(out.put(match which {
        2 => 2,                         // asynchronous engines
        3 | 8 | 10 | 12 | 78 | 85 => 1, // mapped host memory, concurrency, cooperation, overlap, priorities, UVA
        4 | 24 | 88 | 90 => 1,          // registered by its own address, managed, pools, registering
        5 => 1_725_000,                 // clock, kHz
        19 => 4 << 20,                  // L2 cache
        23 => capability(&architecture())[0],
        26..=28 | 55 | 56 => 1024, // block
        29 => 0x7fff_ffff,         // grid x
        30 | 31 => 65_535,         // grid y and z
        57 => 2560,                // threads of a unit
        58 => 0x7fff_ffff,         // pitch
        59 => 4096,                // memory bus, bits
        60 => 1_000_000,           // memory clock, kHz
        63 | 10_015 => device.units()?,
        67 => bus,
        68 => slot,
        69 => domain,
        71 => 65_536,                 // registers a block
        74..=76 | 10_002 => 64 << 10, // shared memory
        81 => 256,                    // texture alignment
        83 => 64 << 10,               // constants
        84 => c_int::try_from(device.memory()?).unwrap_or(c_int::MAX),
        87 => WAVE,
        10_000 | 10_017 => 25_000,     // timer of the device, kHz
        10_011 | 10_013 | 10_016 => 1, // large BAR, waits for values, fine-grained memory
        0..=91 | 10_001..=10_020 => 0, // all that is not there
        _ => return Err(Error::INVALID_VALUE),
    })?)
}

pub(crate) fn p2p_attribute(out: Out<c_int>, _: c_int, one: c_int, other: c_int) -> Result<()> {
    given(one)?;
    given(other)?;
    Ok(out.put(0)?)
}

pub(crate) fn can_access_peer(out: Out<c_int>, one: c_int, other: c_int) -> Result<()> {
    given(one)?;
    given(other)?;
    Ok(out.put(0)?)
}

pub(crate) fn enable_peer_access(other: c_int, _: c_uint) -> Result<()> {
    if given(other)?.number == current_number() {
        Err(Error::INVALID_DEVICE)
    } else {
        Err(Error::PEER_ACCESS_UNSUPPORTED)
    }
}

pub(crate) fn disable_peer_access(other: c_int) -> Result<()> {
    given(other)?;
    Err(Error::PEER_ACCESS_NOT_ENABLED)
}

/// Offsets of the fields that are written to the properties, in bytes.
struct Layout {
    bytes: usize,
    memory: usize,
    shared: usize,
    registers: usize,
    wave: usize,
    block: usize,
    block_dimensions: usize,
    grid_dimensions: usize,
    clock: usize,
    memory_clock: usize,
    bus_width: usize,
    constants: usize,
    major: usize,
    units: usize,
    cache: usize,
    unit_threads: usize,
    concurrent: usize,
    pci: [usize; 3],
    unit_shared: usize,
    mapped: usize,
    architecture: usize,
    cooperative: usize,
    managed: usize,
    uuid: Option<usize>,
    priorities: Option<usize>,
    number: Option<usize>,
}

/// `hipDeviceProp_t` before 6.0, which `hipGetDeviceProperties` keeps for old programs.
const R0000: Layout = Layout {
    bytes: 792,
    memory: 256,
    shared: 264,
    registers: 272,
    wave: 276,
    block: 280,
    block_dimensions: 284,
    grid_dimensions: 296,
    clock: 308,
    memory_clock: 312,
    bus_width: 316,
    constants: 320,
    major: 328,
    units: 336,
    cache: 340,
    unit_threads: 344,
    concurrent: 360,
    pci: [364, 368, 372],
    unit_shared: 376,
    mapped: 388,
    architecture: 396,
    cooperative: 656,
    managed: 772,
    uuid: None,
    priorities: None,
    number: Some(392),
};

/// `hipDeviceProp_tR0600`.
const R0600: Layout = Layout {
    bytes: 1472,
    memory: 288,
    shared: 296,
    registers: 304,
    wave: 308,
    block: 320,
    block_dimensions: 324,
    grid_dimensions: 336,
    clock: 348,
    memory_clock: 608,
    bus_width: 612,
    constants: 352,
    major: 360,
    units: 388,
    cache: 616,
    unit_threads: 624,
    concurrent: 576,
    pci: [592, 584, 588],
    unit_shared: 1416,
    mapped: 400,
    architecture: 1160,
    cooperative: 688,
    managed: 652,
    uuid: Some(256),
    priorities: Some(628),
    number: None,
};

/// Properties of a device, as the bytes of the structure.
fn properties(layout: &Layout, device: &Device) -> Result<Vec<u8>> {
    let mut out = vec![0; layout.bytes];
    let mut bytes = |at: usize, what: &[u8]| out[at..at + what.len()].copy_from_slice(what);
    let name = device.name()?;
    bytes(0, &name.as_bytes()[..name.len().min(255)]);
    bytes(layout.architecture, architecture().as_bytes());
    if let Some(at) = layout.uuid {
        let mut uuid = [0; 16];
        driver()?.device_uuid(&raw mut uuid, device.number as c_int)?;
        bytes(at, &uuid);
    }
    let mut long = |at: usize, value: usize| bytes(at, &(value as u64).to_le_bytes());
    long(layout.memory, device.memory()?);
    long(layout.shared, 64 << 10);
    long(layout.constants, 64 << 10);
    long(layout.unit_shared, 64 << 10);
    let mut word = |at: usize, value: c_int| bytes(at, &value.to_le_bytes());
    let [domain, bus, slot] = device.pci_numbers()?;
    let [major, minor, arch] = capability(&architecture());
    for (at, value) in [
        (layout.registers, 65_536),
        (layout.wave, WAVE),
        (layout.block, 1024),
        (layout.clock, 1_725_000),
        (layout.memory_clock, 1_000_000),
        (layout.bus_width, 4096),
        (layout.major, major),
        (layout.major + 4, minor),
        (layout.units, device.units()?),
        (layout.cache, 4 << 20),
        (layout.unit_threads, 2560),
        (layout.concurrent, 1),
        (layout.pci[0], domain),
        (layout.pci[1], bus),
        (layout.pci[2], slot),
        (layout.mapped, 1),
        (layout.cooperative, 1),
        (layout.managed, 1),
    ] {
        word(at, value);
    }
    (0..3).for_each(|i| word(layout.block_dimensions + 4 * i, 1024));
    (0..3).for_each(|i| word(layout.grid_dimensions + 4 * i, if i == 0 { 0x7fff_ffff } else { 65_535 }));
    layout.priorities.into_iter().for_each(|at| word(at, 1));
    layout.number.into_iter().for_each(|at| word(at, arch));
    Ok(out)
}

pub(crate) fn properties_r0000(out: Out<u8>, number: c_int) -> Result<()> {
    let (out, device) = (out.required()?, given(number)?);
    out.list(properties(&R0000, device)?);
    Ok(())
}

pub(crate) fn properties_r0600(out: Out<u8>, number: c_int) -> Result<()> {
    let (out, device) = (out.required()?, given(number)?);
    out.list(properties(&R0600, device)?);
    Ok(())
}

/// Chooses device 0, as all devices are alike.
pub(crate) fn choose_device(out: Out<c_int>, properties: In<u8>) -> Result<()> {
    if properties.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    Ok(out.put(0)?)
}

/// Destroys the device's context with all its objects.
pub(crate) fn reset() -> Result<()> {
    let (driver, device) = (driver()?, current()?);
    if !device.lose_context() {
        return Ok(());
    }
    let number = device.number;
    streams()?.remove_if(|stream| stream.device == number);
    events()?.remove_if(|event| event.device == number);
    execs()?.remove_if(|exec| exec.device == number);
    memory::forget(number);
    driver.primary_reset(number as i32)
}

/// Accepts flags of waiting and ignores them: the flags only choose between ways to wait.
pub(crate) fn set_flags(flags: c_uint) -> Result<()> {
    if flags & !0x3f == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

pub(crate) fn get_flags(out: Out<c_uint>) -> Result<()> {
    Ok(out.put(0)?)
}

pub(crate) fn get_limit(out: Out<usize>, which: c_int) -> Result<()> {
    Ok(out.put(match which {
        0 => 1024,
        1 => 1 << 20,
        2 => 8 << 20,
        _ => return Err(Error::NOT_SUPPORTED),
    })?)
}

pub(crate) fn set_limit(which: c_int, _: usize) -> Result<()> {
    if (0..=2).contains(&which) { Ok(()) } else { Err(Error::NOT_SUPPORTED) }
}

pub(crate) fn get_config(out: Out<c_int>) -> Result<()> {
    Ok(out.put(0)?)
}

pub(crate) fn set_config(_: c_int) -> Result<()> {
    Ok(())
}

pub(crate) fn error_name(result: c_int) -> *const c_char {
    describe(result).map_or(c"hipErrorUnknown".as_ptr(), |(name, _)| name.as_ptr().cast())
}

pub(crate) fn error_string(result: c_int) -> *const c_char {
    describe(result).map_or(c"unrecognized error code".as_ptr(), |(_, text)| text.as_ptr().cast())
}

pub(crate) fn put_error_name(result: c_int, out: Out<*const c_char>) -> Result<()> {
    out.put(error_name(result))?;
    describe(result).map(drop).ok_or(Error::INVALID_VALUE)
}

pub(crate) fn put_error_string(result: c_int, out: Out<*const c_char>) -> Result<()> {
    out.put(error_string(result))?;
    describe(result).map(drop).ok_or(Error::INVALID_VALUE)
}
