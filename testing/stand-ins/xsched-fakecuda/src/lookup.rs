//! `cuGetProcAddress`, which returns the functions of the table and itself.

use crate::counts;
use crate::device::VERSION;
use crate::edge::{Need, Out, Text, edge};
use crate::result::{Error, Result};
use crate::table::{Entry, TABLE, UNSUPPORTED, VERSIONS};
use std::ffi::{c_int, c_void};

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
const PER_THREAD: u64 = 2;

/// CU_GET_PROC_ADDRESS_...
const FOUND: c_int = 0;
const NO_SYMBOL: c_int = 1;
const TOO_NEW: c_int = 2;

/// Base name of a symbol, and whether it is the per-thread variant: `cuMemcpy2D_v2_ptds` is `cuMemcpy2D`, per thread.
fn split(symbol: &str) -> (&str, bool) {
    let stem = symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds"));
    let (rest, per_thread) = stem.map_or((symbol, false), |stem| (stem, true));
    let base = match rest.rsplit_once("_v") {
        Some((base, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => rest,
    };
    (base, per_thread)
}

/// Symbol for a base name at a version; if there is none, the status that says whether a newer version has one.
fn search(name: &str, version: i32, per_thread: bool) -> std::result::Result<&'static str, c_int> {
    let of = |variant: bool| VERSIONS.iter().filter(move |(symbol, _)| split(symbol) == (name, variant));
    let newest = |variant: bool| of(variant).filter(|&&(_, since)| since <= version).max_by_key(|&&(_, since)| since);
    let found = if per_thread { newest(true).or_else(|| newest(false)) } else { newest(false) };
    match found {
        Some(&(symbol, _)) => Ok(symbol),
        None if of(false).next().is_some() => Err(TOO_NEW),
        None => Err(NO_SYMBOL),
    }
}

pub(crate) fn address(symbol: &str) -> *const c_void {
    let entry = TABLE.iter().chain(UNSUPPORTED).chain(OWN).find(|entry| entry.name == symbol);
    entry.map_or(std::ptr::null(), |entry| entry.address.cast())
}

fn look_up(name: Text, version: c_int, flags: u64) -> Result<std::result::Result<*const c_void, c_int>> {
    if flags > PER_THREAD || version > VERSION {
        return Err(Error::INVALID_VALUE);
    }
    Ok(search(&name.get()?, version, flags == PER_THREAD).map(address))
}

fn get(name: Text, out: Out<*const c_void>, version: c_int, flags: u64) -> Result<()> {
    let (out, found) = (out.required()?, look_up(name, version, flags)?);
    out.put(found.unwrap_or(std::ptr::null()))?;
    found.map(drop).map_err(|_| Error::NOT_FOUND)
}

fn get_v2(name: Text, out: Out<*const c_void>, version: c_int, flags: u64, status: Out<c_int>) -> Result<()> {
    let (out, found) = (out.required()?, look_up(name, version, flags)?);
    status.maybe(found.err().unwrap_or(FOUND));
    out.put(found.unwrap_or(std::ptr::null()))
}

/// See cuda.h.
///
/// # Safety
/// Arguments must be what cuda.h says.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    name: Text,
    out: Out<*const c_void>,
    version: c_int,
    flags: u64,
) -> c_int {
    edge(Need::Nothing, &counts::cuGetProcAddress, "cuGetProcAddress", || get(name, out, version, flags))
}

/// See cuda.h.
///
/// # Safety
/// Arguments must be what cuda.h says.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: Text,
    out: Out<*const c_void>,
    version: c_int,
    flags: u64,
    status: Out<c_int>,
) -> c_int {
    let body = || get_v2(name, out, version, flags, status);
    edge(Need::Nothing, &counts::cuGetProcAddress_v2, "cuGetProcAddress_v2", body)
}

/// The functions defined here.
static OWN: &[Entry] = &[
    Entry { name: "cuGetProcAddress", address: cuGetProcAddress as *const () },
    Entry { name: "cuGetProcAddress_v2", address: cuGetProcAddress_v2 as *const () },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_symbols() {
        assert_eq!(search("cuMemAlloc", 2000, false), Ok("cuMemAlloc"));
        assert_eq!(search("cuMemAlloc", 12000, true), Ok("cuMemAlloc_v2"), "no variant per thread");
        assert_eq!(search("cuMemcpyHtoD", 12000, true), Ok("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(search("cuStreamBeginCapture", 10000, false), Ok("cuStreamBeginCapture"));
        assert_eq!(search("cuStreamBeginCapture", 10010, false), Ok("cuStreamBeginCapture_v2"));
        assert_eq!(search("cuLaunchKernelEx", 11000, false), Err(TOO_NEW));
        assert_eq!(search("cuMemAlloc_v2", 12000, false), Err(NO_SYMBOL));
    }

    #[test]
    fn every_symbol_can_be_found() {
        for &(symbol, since) in VERSIONS {
            let (base, per_thread) = split(symbol);
            assert_eq!(search(base, since, per_thread), Ok(symbol));
            assert!(!address(symbol).is_null(), "{symbol}");
        }
        let names = include_str!("../../../ladders/cuda/names.txt");
        assert_eq!(names.lines().filter(|line| !line.starts_with('#')).count(), VERSIONS.len());
    }
}
