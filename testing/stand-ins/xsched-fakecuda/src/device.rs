//! Properties of devices. They are those of an H200, except where that would promise unimplemented features.

use crate::edge::{In, Out};
use crate::process::{device, driver, of_the_machine};
use crate::result::{Error, Result, describe};
use std::ffi::{c_char, c_int, c_void};
use xsched_sim::client::DeviceMemory;

/// CUDA 13.5, the version of the header that lists the names.
pub(crate) const VERSION: c_int = 13050;

pub(crate) fn version(out: Out<c_int>) -> Result<()> {
    out.put(VERSION)
}

pub(crate) fn count(out: Out<c_int>) -> Result<()> {
    out.put(driver()?.devices as c_int)
}

pub(crate) fn get(out: Out<c_int>, ordinal: c_int) -> Result<()> {
    out.put(device(ordinal)? as c_int)
}

fn put_text(out: Out<c_char>, room: c_int, text: &str) -> Result<()> {
    let room = usize::try_from(room).ok().filter(|&n| n > 0).ok_or(Error::INVALID_VALUE)?;
    let used = &text.as_bytes()[..text.len().min(room - 1)];
    out.required()?.list(used.iter().chain(&[0]).map(|&byte| byte as c_char));
    Ok(())
}

pub(crate) fn name(out: Out<c_char>, room: c_int, number: c_int) -> Result<()> {
    device(number)?;
    put_text(out, room, "Simulated CUDA device")
}

/// PCI bus of the first device; the others follow.
const FIRST_BUS: usize = 0x0a;

/// PCI address of a device, from its number within this process.
fn address(number: usize) -> String {
    format!("0000:{:02X}:00.0", FIRST_BUS + of_the_machine(number))
}

pub(crate) fn pci_bus_id(out: Out<c_char>, room: c_int, number: c_int) -> Result<()> {
    put_text(out, room, &address(device(number)?))
}

pub(crate) fn by_pci_bus_id(out: Out<c_int>, text: crate::edge::Text) -> Result<()> {
    let wanted = text.get()?.to_ascii_uppercase();
    let found = (0..driver()?.devices).find(|&index| address(index).ends_with(&wanted));
    out.put(found.filter(|_| !wanted.is_empty()).ok_or(Error::INVALID_VALUE)? as c_int)
}

pub(crate) fn uuid(out: Out<[u8; 16]>, number: c_int) -> Result<()> {
    let mut uuid = *b"simulated cuda  ";
    uuid[15] = of_the_machine(device(number)?) as u8;
    out.put(uuid)
}

pub(crate) fn total_memory(out: Out<usize>, number: c_int) -> Result<()> {
    let device = of_the_machine(device(number)?);
    out.put(DeviceMemory::of(device as u64)?.capacity as usize)
}

pub(crate) fn compute_capability(major: Out<c_int>, minor: Out<c_int>, number: c_int) -> Result<()> {
    device(number)?;
    major.put(9)?;
    minor.put(0)
}

pub(crate) fn attribute(out: Out<c_int>, which: c_int, number: c_int) -> Result<()> {
    let device = device(number)?;
    out.put(match which {
        1..=3 => 1024,               // threads per block, block dimensions
        4 => 64,                     // block dimension z
        5 => 0x7fff_ffff,            // grid dimension x
        6 | 7 => 65_535,             // grid dimensions y and z
        8 => 48 << 10,               // shared memory per block
        9 => 64 << 10,               // constant memory
        10 => 32,                    // warp
        11 => 0x7fff_ffff,           // pitch
        12 | 82 => 65_536,           // registers per block, per multiprocessor
        13 => 1_980_000,             // clock, kHz
        14 => 512,                   // texture alignment
        15 | 19 | 31 | 41 | 78 => 1, // overlap, mapped host memory, concurrent kernels, unified addresses, priorities
        16 => 132,                   // multiprocessors
        33 => (FIRST_BUS + device) as c_int,
        36 => 3_201_000,                        // memory clock, kHz
        37 => 6144,                             // memory bus, bits
        38 => 60 << 20,                         // L2 cache
        39 => 2048,                             // threads per multiprocessor
        40 => 3,                                // copy engines
        51 => 32,                               // texture pitch alignment
        75 => 9,                                // compute capability
        79 | 80 | 90 => 1,                      // L1 caches, compute preemption
        81 | 97 => 227 << 10,                   // shared memory per multiprocessor, per block if asked for
        102 | 110 => 1,                         // virtual memory management, for network cards, too
        103 => 1,                               // memory shared by descriptors
        92..=94 | 122 | 123 => 1,               // stream memory operations, their 64-bit words, NOR
        91 | 99 => 1,                           // registered host memory, by its own address
        95 => 1,                                // cooperative launches
        106 => 32,                              // blocks per multiprocessor
        115 => 1,                               // memory pools
        120 => 1,                               // clusters
        141 | 145 => 1,                         // virtual memory management of the host's memory
        133 => driver()?.pool.is_some().into(), // MPS
        _ if (1..=161).contains(&which) => 0,   // all that is not there
        _ => return Err(Error::INVALID_VALUE),
    })
}

pub(crate) fn p2p_attribute(out: Out<c_int>, _: c_int, one: c_int, other: c_int) -> Result<()> {
    device(one)?;
    device(other)?;
    out.put(0)
}

pub(crate) fn error_name(result: c_int, out: Out<*const c_char>) -> Result<()> {
    let Some((name, _)) = describe(result) else {
        out.maybe(std::ptr::null());
        return Err(Error::INVALID_VALUE);
    };
    out.put(name.as_ptr().cast())
}

pub(crate) fn error_string(result: c_int, out: Out<*const c_char>) -> Result<()> {
    let Some((_, text)) = describe(result) else {
        out.maybe(std::ptr::null());
        return Err(Error::INVALID_VALUE);
    };
    out.put(text.as_ptr().cast())
}

/// Answers that there are no private tables.
pub(crate) fn export_table(table: Out<*const c_void>, _: In<[u8; 16]>) -> Result<()> {
    table.maybe(std::ptr::null());
    Err(Error::NOT_FOUND)
}
