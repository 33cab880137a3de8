//! ELF files: how the loader will treat LD_PRELOAD in them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

use super::verdict::Verdict;
use crate::failure::{Error, Result};

/// Machine that this program and the library are built for.
#[cfg(target_arch = "x86_64")]
const HERE: u16 = elf::EM_X86_64.0;
#[cfg(target_arch = "aarch64")]
const HERE: u16 = elf::EM_AARCH64.0;

/// Path of glibc's loader on machines of the usual layout.
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";
/// Path of musl's loader.
#[cfg(target_arch = "x86_64")]
const MUSL_LOADER: &str = "/lib/ld-musl-x86_64.so.1";
#[cfg(target_arch = "aarch64")]
const MUSL_LOADER: &str = "/lib/ld-musl-aarch64.so.1";

/// Symbol version without which the library schedules nothing: it steps aside on an older libc (`enabled.rs` of the library).
const LIBC_FLOOR: &str = "GLIBC_2.28";

/// Largest dynamic string table that is read, in bytes.
const STRINGS_MAX: u64 = 256 << 20;

/// Facts about one ELF file that matter for preloading.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    interpreter: Option<PathBuf>,
    /// True if it is built with the address sanitizer. `run` sets the option by which the sanitizer's runtime accepts a place behind the
    /// library; an engine's hook does not.
    pub(crate) address_sanitizer: bool,
    /// True if it has symbols of the oldest libc with which the library schedules.
    pub(crate) libc_floor: bool,
}

/// Examines an executable.
///
/// # Errors
/// Exit code 127 when its loader is missing.
pub(super) fn inspect(path: &Path) -> Result<Verdict> {
    let cannot = |why: String| Ok(Verdict::keeps_out(path, why));
    let facts = match read(path) {
        Ok(facts) => facts,
        // The file is for another loader, an emulator or a helper of the kernel, which ignore a library that is not for them.
        Err(why) => return Ok(Verdict::Cannot { file: path.to_owned(), why: why.to_string(), hands_on: true }),
    };
    if secure(path) {
        return cannot("setuid, setgid or has file capabilities, so the loader ignores LD_PRELOAD".to_owned());
    }
    // The file may be the loader itself, which runs a program named as its argument and reads LD_PRELOAD as usual.
    let itself = || path.canonicalize().ok().filter(|path| is_glibc_loader(&name_of(path)));
    let Some(interpreter) = facts.interpreter.or_else(itself) else {
        return Ok(of_launcher(path, Path::new(LOADER), Path::new(MUSL_LOADER)));
    };
    let loader = name_of(&interpreter);
    if loader.starts_with("ld-musl") {
        return cannot("linked to musl, the library needs glibc".to_owned());
    }
    if !is_glibc_loader(&loader) {
        return cannot(format!("loaded by {}, the library needs glibc's loader", interpreter.display()));
    }
    let Ok(loader) = interpreter.canonicalize() else {
        return Err(Error::NotFound(format!("{}: its loader {} is not found", path.display(), interpreter.display())));
    };
    match old_libc(&loader) {
        Some(libc) => cannot(format!("linked to a glibc older than 2.28 ({})", libc.display())),
        None => Ok(Verdict::Attaches),
    }
}

/// Path of a loader's C library, if that is too old for the library. Distributions keep both in one folder. If there is no C library in it,
/// its version is unknown, and the loader decides.
fn old_libc(loader: &Path) -> Option<PathBuf> {
    let libc = loader.with_file_name("libc.so.6");
    read(&libc).is_ok_and(|facts| !facts.libc_floor).then_some(libc)
}

/// Verdict on a statically linked program, on a machine with these loaders. Programs that it starts may be of any kind. Where the library
/// would probably make them fail, as on a machine with musl only, the environment is not set.
fn of_launcher(path: &Path, loader: &Path, musl: &Path) -> Verdict {
    let keeps_out = |why: String| Verdict::keeps_out(path, format!("linked statically, and this machine has {why}"));
    match loader.canonicalize() {
        Ok(loader) => match old_libc(&loader) {
            Some(libc) => keeps_out(format!("a glibc older than 2.28 ({})", libc.display())),
            None => Verdict::HandsOn,
        },
        Err(_) if musl.exists() => keeps_out("musl, the library needs glibc".to_owned()),
        Err(_) => Verdict::HandsOn,
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_glibc_loader(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld-2.")
}

/// Reports whether the kernel will run it in secure mode, in which the loader ignores LD_PRELOAD.
fn secure(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    if rustix::fs::statvfs(path).is_ok_and(|s| s.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID)) {
        return false;
    }
    let setuid = meta.mode() & libc::S_ISUID != 0 && meta.uid() != rustix::process::getuid().as_raw();
    // Without the bit of group execution, this bit means mandatory locking.
    let setgid = meta.mode() & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
        && meta.gid() != rustix::process::getgid().as_raw();
    let capabilities = !rustix::process::getuid().is_root()
        && rustix::fs::getxattr(path, "security.capability", &mut [0u8; 0][..]).is_ok_and(|n| n > 0);
    setuid || setgid || capabilities
}

fn read(path: &Path) -> Result<Facts> {
    facts(File::open(path).map_err(|e| Error::environment(format!("not readable ({e})")))?)
}

/// Reads a 64-bit ELF file of this machine. An error message names the kind of any other file.
pub(crate) fn facts(file: File) -> Result<Facts> {
    let data = &ReadCache::new(file);
    let ident: [u8; 20] = match data.read_bytes_at(0, 20) {
        Ok(bytes) => bytes.try_into().unwrap_or([0; 20]),
        Err(()) => return Err(Error::environment("not an ELF program")),
    };
    if !ident.starts_with(b"\x7fELF") {
        return Err(Error::environment("not an ELF program"));
    }
    let big = ident[5] == elf::ELFDATA2MSB.0;
    let machine =
        if big { u16::from_be_bytes([ident[18], ident[19]]) } else { u16::from_le_bytes([ident[18], ident[19]]) };
    if ident[4] != elf::ELFCLASS64.0 {
        return Err(Error::environment("a 32-bit program, the library is 64-bit"));
    }
    if machine != HERE || big != cfg!(target_endian = "big") {
        return Err(Error::environment(format!("made for another machine ({})", machine_name(machine))));
    }
    let damaged = |e: object::Error| Error::environment(format!("a damaged ELF file ({e})"));
    let header = FileHeader64::<Endianness>::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let segments = header.program_headers(endian, data).map_err(damaged)?;
    let mut facts = Facts::default();
    let mut strings = (0, 0);
    for segment in segments {
        if let Some(name) = segment.interpreter(endian, data).map_err(damaged)? {
            use std::os::unix::ffi::OsStrExt;
            facts.interpreter = Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        }
        for entry in segment.dynamic(endian, data).map_err(damaged)?.unwrap_or_default() {
            let value: u64 = entry.d_val(endian);
            match entry.d_tag(endian) {
                elf::DT_STRTAB => strings.0 = value,
                elf::DT_STRSZ => strings.1 = value,
                _ => {}
            }
        }
    }
    // The dynamic string table has every name that the file needs, uses or offers, even in stripped files.
    let loaded = segments.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD).find_map(|s| {
        let within = strings.0.checked_sub(s.p_vaddr(endian))?;
        (within < s.p_filesz(endian)).then(|| s.p_offset(endian).checked_add(within))?
    });
    if let Some(offset) = loaded
        && strings.1 <= STRINGS_MAX
        && let Ok(table) = data.read_bytes_at(offset, strings.1)
    {
        for name in table.split(|&b| b == 0) {
            facts.address_sanitizer |= name == b"__asan_init";
            facts.libc_floor |= name == LIBC_FLOOR.as_bytes();
        }
    }
    Ok(facts)
}

fn machine_name(machine: u16) -> String {
    match elf::Machine(machine) {
        elf::EM_X86_64 => "x86-64".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_386 => "x86".to_owned(),
        elf::EM_ARM => "arm".to_owned(),
        elf::EM_RISCV => "riscv".to_owned(),
        elf::EM_PPC64 => "ppc64".to_owned(),
        elf::EM_S390 => "s390".to_owned(),
        _ => format!("ELF machine {machine}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_its_libc_are_understood() {
        let exe = std::env::current_exe().unwrap();
        assert_eq!(inspect(&exe).unwrap(), Verdict::Attaches);
        let facts = read(&exe).unwrap();
        assert!(!facts.address_sanitizer);
        let loader = facts.interpreter.unwrap().canonicalize().unwrap();
        assert!(read(&loader.with_file_name("libc.so.6")).unwrap().libc_floor);
        assert_eq!(inspect(&loader).unwrap(), Verdict::Attaches, "a program started by its loader");
    }

    #[test]
    fn a_static_launcher_hands_on_where_what_it_starts_can_live() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (loader, musl) = (at("ld-linux-x86-64.so.2"), at("ld-musl-x86_64.so.1"));
        let verdict = || of_launcher(Path::new("/l"), &loader, &musl);
        assert_eq!(verdict(), Verdict::HandsOn, "of a layout of its own");
        std::fs::write(&musl, "").unwrap();
        assert!(matches!(verdict(), Verdict::Cannot { why, hands_on: false, .. } if why.contains("musl")));
        std::fs::write(&loader, "").unwrap();
        assert_eq!(verdict(), Verdict::HandsOn, "it has both");
        let mut old = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found: Vec<usize> = (0..old.len() - 10).filter(|at| &old[*at..at + 10] == LIBC_FLOOR.as_bytes()).collect();
        found.iter().for_each(|at| old[at + 9] = b'7');
        std::fs::write(at("libc.so.6"), old).unwrap();
        assert!(matches!(verdict(), Verdict::Cannot { why, hands_on: false, .. } if why.contains("older than 2.28")));
    }

    #[test]
    fn damaged_files_are_no_reason_to_die() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut");
        for length in [0, 1, 4, 19, 20, 63, 64, 65, 200, 1000] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(matches!(inspect(&path), Ok(Verdict::Cannot { .. } | Verdict::HandsOn)), "{length} bytes");
        }
        let mut wild = whole[..4096].to_vec();
        wild[64..].fill(0xff);
        std::fs::write(&path, &wild).unwrap();
        assert!(matches!(inspect(&path), Ok(Verdict::Cannot { .. } | Verdict::HandsOn)));
    }
}
