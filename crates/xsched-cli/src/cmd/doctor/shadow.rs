//! What is preloaded into a program before libxsched.so and answers its calls, seen from outside.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, ReadCache};
use xsched_proto::files;

/// The function of each interface that every program of it launches by.
const LAUNCHES: [&str; 5] =
    ["clEnqueueNDRangeKernel", "cuLaunchKernel", "hipLaunchKernel", "hipModuleLaunchKernel", "simLaunchKernel"];

/// The library and the function, by the environment that the program was started with.
pub(super) fn of(pid: u32, environment: &[u8]) -> Option<(String, &'static str)> {
    let preloads = environment.split(|&b| b == 0).find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="))?;
    let files = preloads.split(|b| b" :".contains(b)).filter(|file| !file.is_empty());
    let files: Vec<&Path> = files.map(|file| Path::new(OsStr::from_bytes(file))).collect();
    let is_ours = |file: &&Path| file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libxsched"));
    let own = files.iter().position(is_ours)?;
    // Its files, where it has other folders than this process.
    let seen = |file: &Path| PathBuf::from(format!("/proc/{pid}/root{}", file.display()));
    files[..own].iter().find_map(|file| Some((file.display().to_string(), defined(&seen(file))?)))
}

/// The first of these functions that a library defines.
fn defined(library: &Path) -> Option<&'static str> {
    let cache = ReadCache::new(files::read_only(library).ok()?);
    let elf: ElfFile64<object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
    let defines = |name: &str| elf.dynamic_symbols().any(|s| s.is_definition() && s.name() == Ok(name));
    LAUNCHES.into_iter().find(|name| defines(name))
}
