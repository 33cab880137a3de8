//! Facts about the linked library, which it passes to its body at its start: its major version and its exported
//! symbols; and `hipGetProcAddress`, which hands those out.

use crate::result::{Error, Result};
use crate::stats;
use fakecuda::{Out, Text};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A symbol of the linked library.
#[repr(C)]
pub(crate) struct Symbol {
    name: *const c_char,
    /// Address of this library's own function, even where another library has put one of the same name before it.
    address: *const c_void,
    /// Version of the symbol's node, as 100 times the major plus the minor: 402 for 4.2.
    node: u64,
}

// SAFETY: static data of the linked library.
unsafe impl Sync for Symbol {}

/// An exported function of this very library, to be called by name, as programs call it: another library may stand
/// before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plt {
    Malloc,
    MemcpyAsync,
    ModuleLaunchKernel,
}

/// Number of entries of [`Plt`].
pub(crate) const PLT: usize = 3;

struct Library {
    major: c_int,
    symbols: &'static [Symbol],
    plt: [usize; PLT],
    reenters: bool,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Stores the facts about the linked library. Returns false if they are stored already.
///
/// # Safety
/// `symbols` points to `count` symbols, `plt` to an array of addresses; both are static.
pub(crate) unsafe fn begin(major: c_int, symbols: *const Symbol, count: usize, plt: *const [usize; PLT]) -> bool {
    // SAFETY: as the caller says.
    let (symbols, plt) = unsafe { (std::slice::from_raw_parts(symbols, count), plt.read()) };
    LIBRARY.set(Library { major, symbols, plt, reenters: stats::is_set("FAKEHIP_REENTER") }).is_ok()
}

/// Counts a call of a function that is not implemented, and returns its error.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fakehip_unsupported(name: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    stats::unsupported(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
    Error::NOT_SUPPORTED.0
}

/// HIP's major version of this library.
pub(crate) fn major() -> c_int {
    LIBRARY.get().map_or(5, |library| library.major)
}

/// The exported function to call instead of the internal one, if FAKEHIP_REENTER asks for that.
pub(crate) fn reenter(function: Plt) -> Option<usize> {
    LIBRARY.get().filter(|library| library.reenters).map(|library| library.plt[function as usize])
}

/// hipDriverProcAddressQueryResult.
const FOUND: c_int = 0;
const NO_SYMBOL: c_int = 1;
const TOO_NEW: c_int = 2;

/// HIP_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
const PER_THREAD: u64 = 2;

/// Finds a symbol by name. `version` is 100 times the major plus the minor.
fn search(name: &str, version: u64, per_thread: bool) -> std::result::Result<*const c_void, c_int> {
    let symbols = LIBRARY.get().map_or(&[][..], |library| library.symbols);
    let find = |wanted: &str| {
        // SAFETY: the names of the linked library.
        symbols.iter().find(|symbol| unsafe { CStr::from_ptr(symbol.name) }.to_bytes() == wanted.as_bytes())
    };
    let variant = per_thread.then(|| find(&format!("{name}_spt"))).flatten();
    // Since 6.0, this name means the new layout of the properties.
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

/// `version` is a `HIP_VERSION`, or 100 times the major plus the minor.
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
