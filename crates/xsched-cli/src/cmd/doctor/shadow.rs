//! Library that is preloaded into a program before libxsched.so and answers its calls, seen from outside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, ReadCache};
use xsched_proto::files;

use super::process;

/// Launch functions: one of each interface, which every program of that interface uses.
pub(super) const LAUNCHES: [&str; 5] =
    ["clEnqueueNDRangeKernel", "cuLaunchKernel", "hipLaunchKernel", "hipModuleLaunchKernel", "simLaunchKernel"];

/// Files that LD_PRELOAD of a program names.
pub(super) fn preloads(value: &OsStr) -> Vec<&Path> {
    let files = value.as_bytes().split(|b| b" :".contains(b)).filter(|file| !file.is_empty());
    files.map(|file| Path::new(OsStr::from_bytes(file))).collect()
}

/// Reports whether a file has the library's name.
pub(super) fn is_ours(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libxsched"))
}

/// Library and function, by the value of LD_PRELOAD when the program was started.
pub(super) fn of(pid: u32, preloaded: &OsStr) -> Option<(String, &'static str)> {
    let files = preloads(preloaded);
    let own = files.iter().position(|file| is_ours(file))?;
    // Its own files, where it has other folders than this process.
    files[..own].iter().find_map(|file| Some((file.display().to_string(), defined(&process::path_in(pid, file))?)))
}

/// First of these functions that a library defines.
pub(super) fn defined(library: &Path) -> Option<&'static str> {
    let cache = ReadCache::new(files::read_only(library).ok()?);
    let elf: ElfFile64<object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
    let defines = |name: &str| elf.dynamic_symbols().any(|s| s.is_definition() && s.name() == Ok(name));
    LAUNCHES.into_iter().find(|name| defines(name))
}
