//! What the linked library tells the body of it: its major, its exported symbols; and `hipGetProcAddress`, which gives
//! them out.

use crate::result::{Error, Result};
use crate::stats;
use fakecuda::{Out, Text};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A symbol of the linked library.
#[repr(C)]
pub(crate) struct Symbol {
    name: *const c_char,
    /// What it runs, not what another library may have put before it.
    address: *const c_void,
    /// 100 times major and minor of its version node, added: 4.2 is 402.
    node: u64,
}

// SAFETY: static data of the linked library.
unsafe impl Sync for Symbol {}

/// An exported function of this very library, called by name, as programs do: another library may stand before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plt {
    Malloc,
    MemcpyAsync,
    ModuleLaunchKernel,
}

/// As many entries as [`Plt`] has.
pub(crate) const PLT: usize = 3;

struct Library {
    major: c_int,
    symbols: &'static [Symbol],
    plt: [usize; PLT],
    reenters: bool,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Takes in what the linked library is. False if that was said before.
///
/// # Safety
/// `symbols` is an array of `count`, `plt` one of three addresses, both static.
pub(crate) unsafe fn begin(major: c_int, symbols: *const Symbol, count: usize, plt: *const [usize; PLT]) -> bool {
    // SAFETY: as the caller says.
    let (symbols, plt) = unsafe { (std::slice::from_raw_parts(symbols, count), plt.read()) };
    LIBRARY.set(Library { major, symbols, plt, reenters: stats::is_set("FAKEHIP_REENTER") }).is_ok()
}

/// A function that is not implemented was called.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fakehip_unsupported(name: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    stats::unsupported(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
    Error::NOT_SUPPORTED.0
}

/// HIP's major that this library is.
pub(crate) fn major() -> c_int {
    LIBRARY.get().map_or(5, |library| library.major)
}

/// The exported function to call instead of doing the same here, if this library is to behave so.
pub(crate) fn reenter(function: Plt) -> Option<usize> {
    LIBRARY.get().filter(|library| library.reenters).map(|library| library.plt[function as usize])
}

/// hipDriverProcAddressQueryResult.
const FOUND: c_int = 0;
const NO_SYMBOL: c_int = 1;
const TOO_NEW: c_int = 2;

/// HIP_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
const PER_THREAD: u64 = 2;

/// `version`: 100 times major and minor, added.
fn search(name: &str, version: u64, per_thread: bool) -> std::result::Result<*const c_void, c_int> {
    let symbols = LIBRARY.get().map_or(&[][..], |library| library.symbols);
    let find = |wanted: &str| {
        // SAFETY: the names of the linked library.
        symbols.iter().find(|symbol| unsafe { CStr::from_ptr(symbol.name) }.to_bytes() == wanted.as_bytes())
    };
    let variant = per_thread.then(|| find(&format!("{name}_spt"))).flatten();
    // The new layout of the properties is what this name means since 6.0.
    let renamed = (version >= 600 && ["hipGetDeviceProperties", "hipChooseDevice"].contains(&name))
        .then(|| find(&format!("{name}R0600")))
        .flatten();
    match variant.or(renamed).or_else(|| find(name)) {
        Some(symbol) if symbol.node <= version => Ok(symbol.address),
        Some(_) => Err(TOO_NEW),
        None => Err(NO_SYMBOL),
    }
}

fn look_up(name: Text, version: u64, flags: u64, out: Out<*const c_void>, status: Out<c_int>) -> Result<()> {
    let (name, out) = (name.get()?, out.required()?);
    if name.is_empty() || flags > PER_THREAD {
        return Err(Error::INVALID_VALUE);
    }
    let found = search(&name, version, flags == PER_THREAD);
    out.maybe(found.unwrap_or(std::ptr::null()));
    status.maybe(found.err().unwrap_or(FOUND));
    found.map(drop).map_err(|_| Error::NOT_FOUND)
}

/// `version` as `HIP_VERSION`, or as 100 times the major and the minor.
pub(crate) fn proc_address(
    name: Text,
    out: Out<*const c_void>,
    version: c_int,
    flags: u64,
    status: Out<c_int>,
) -> Result<()> {
    let version = u64::try_from(version).map_err(|_| Error::INVALID_VALUE)?;
    let version = if version > 100_000 { version / 10_000_000 * 100 + version / 100_000 % 100 } else { version };
    look_up(name, version, flags, out, status)
}

fn entry_point(per_thread: bool, name: Text, out: Out<*const c_void>, flags: u64, status: Out<c_int>) -> Result<()> {
    look_up(name, u64::MAX, if per_thread && flags == 0 { PER_THREAD } else { flags }, out, status)
}

pub(crate) fn driver_entry_point(name: Text, out: Out<*const c_void>, flags: c_uint, status: Out<c_int>) -> Result<()> {
    entry_point(false, name, out, flags.into(), status)
}

pub(crate) fn driver_entry_point_spt(
    name: Text,
    out: Out<*const c_void>,
    flags: c_uint,
    status: Out<c_int>,
) -> Result<()> {
    entry_point(true, name, out, flags.into(), status)
}
