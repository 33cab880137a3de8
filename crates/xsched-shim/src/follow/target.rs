//! Check whether this library can be loaded into a program that is about to be executed: the program's loader must be
//! glibc's, and the library's file must exist, which it may not after a `chroot`. The library would end a musl program,
//! and a 32-bit program would print a complaint.

use std::ffi::{CStr, c_char, c_int};

/// Upper limit of a chain of scripts that name scripts as their interpreters; about the kernel's own.
const CHAIN_MAX: usize = 5;
/// Number of bytes read from the beginning of a file: the kernel reads as much of a script.
const HEAD: usize = 256;
/// Longest path, in bytes.
const PATH_MAX: usize = 4096;
/// Upper limit of program headers read.
const HEADERS_MAX: usize = 64;
const PT_INTERP: u32 = 3;
const X86_64: u16 = 62;

/// The program that is to be executed.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The file at a path.
    Path(*const c_char),
    /// The file of this name, searched for in the folders of `PATH` unless it contains a slash.
    Name(*const c_char),
    /// An open file.
    Descriptor(c_int),
    /// The file at a path below an open folder.
    Below(c_int, *const c_char),
}

impl Target {
    /// Reports whether the library can be loaded into the program. `library` is its path.
    ///
    /// # Safety
    /// Strings are valid ones, or null.
    pub(super) unsafe fn takes(self, library: &[u8]) -> bool {
        is_there(library)
            && match self {
                // SAFETY: as promised.
                Target::Path(path) => !path.is_null() && look(unsafe { CStr::from_ptr(path) }, 0),
                Target::Name(name) if name.is_null() => false,
                Target::Name(name) => {
                    // SAFETY: as promised.
                    let name = unsafe { CStr::from_ptr(name) };
                    if name.to_bytes().contains(&b'/') { look(name, 0) } else { search(name) }
                }
                Target::Descriptor(fd) => look_at(fd, 0),
                Target::Below(_, path) if path.is_null() => false,
                // SAFETY: as promised.
                Target::Below(fd, path) if unsafe { *path } == 0 => look_at(fd, 0),
                // SAFETY: as promised.
                Target::Below(folder, path) => opened(unsafe { libc::openat(folder, path, FLAGS) }, 0),
            }
    }
}

const FLAGS: c_int = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Reports whether the library's file exists. A library named without a slash is searched for by the loader, so it
/// counts as there.
fn is_there(library: &[u8]) -> bool {
    !library.contains(&b'/') || with_path(&[library], |path| can(path, libc::R_OK)) == Some(true)
}

fn can(path: &CStr, mode: c_int) -> bool {
    // SAFETY: a C string.
    unsafe { libc::access(path.as_ptr(), mode) == 0 }
}

/// Joins pieces to a path, on the stack; `None` if it is too long.
fn with_path<R>(pieces: &[&[u8]], act: impl FnOnce(&CStr) -> R) -> Option<R> {
    let mut path = [0u8; PATH_MAX];
    let mut end = 0;
    for piece in pieces {
        path.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    CStr::from_bytes_until_nul(&path).ok().map(act)
}

/// Checks the first executable file of a name in the folders of `PATH`, in the C library's order.
fn search(name: &CStr) -> bool {
    // SAFETY: reads the environment, as the C library is about to.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: a C string, unless it is null.
    let folders = if path.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) } };
    for folder in folders.to_bytes().split(|byte| *byte == b':') {
        let folder: &[u8] = if folder.is_empty() { b"." } else { folder };
        let seen = with_path(&[folder, b"/", name.to_bytes()], |path| can(path, libc::X_OK).then(|| look(path, 0)));
        if let Some(Some(takes)) = seen {
            return takes;
        }
    }
    false
}

fn look(path: &CStr, depth: usize) -> bool {
    // SAFETY: a C string.
    opened(unsafe { libc::open(path.as_ptr(), FLAGS) }, depth)
}

fn opened(fd: c_int, depth: usize) -> bool {
    if fd < 0 {
        return false;
    }
    let takes = look_at(fd, depth);
    // SAFETY: opened for this, and used no more.
    unsafe { libc::close(fd) };
    takes
}

fn look_at(fd: c_int, depth: usize) -> bool {
    let mut head = [0u8; HEAD];
    let length = read_at(fd, &mut head, 0);
    let head = &head[..length];
    if depth > CHAIN_MAX {
        return false;
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_start();
        let program = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        return with_path(&[program], |path| look(path, depth + 1)) == Some(true);
    }
    if !head.starts_with(b"\x7fELF") {
        // A text without `#!` is run by a shell, if at all.
        return !head.contains(&0) && look(c"/bin/sh", depth + 1);
    }
    is_for_glibc(fd, head)
}

/// Reports whether the loader of an ELF file, if it names one, is glibc's for this machine.
fn is_for_glibc(fd: c_int, head: &[u8]) -> bool {
    let short = |at: usize| head.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let (Some([_, _, _, _, 2, 1, ..]), Some(X86_64)) = (head.first_chunk::<16>(), short(18)) else { return false };
    let (Some(start), Some(size), Some(count)) = (long(head, 32), short(54), short(56)) else { return false };
    for at in 0..usize::from(count).min(HEADERS_MAX) {
        let mut header = [0u8; 56];
        let place = start.wrapping_add(at as u64 * u64::from(size));
        if read_at(fd, &mut header, place) < header.len() {
            return false;
        }
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if kind == PT_INTERP {
            let mut loader = [0u8; HEAD];
            let length = read_at(fd, &mut loader, long(&header, 8).unwrap_or(u64::MAX));
            let loader = loader[..length].split(|byte| *byte == 0).next().unwrap_or_default();
            let name = loader.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            return name.starts_with(b"ld-linux") || name.starts_with(b"ld-2.");
        }
    }
    // Linked statically: the programs that it starts inherit its environment.
    true
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Reads at most as many bytes as fit, and returns their number.
fn read_at(fd: c_int, bytes: &mut [u8], place: u64) -> usize {
    let Ok(place) = i64::try_from(place) else { return 0 };
    // SAFETY: a buffer with its length.
    let length = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), place) };
    usize::try_from(length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::path::Path;

    fn takes(target: Target) -> bool {
        let own = std::env::current_exe().unwrap().into_os_string().into_encoded_bytes();
        // SAFETY: the tests' own strings.
        unsafe { target.takes(&own) }
    }

    #[test]
    fn only_what_glibc_loads_takes_the_library() {
        let folder = std::env::temp_dir().join(format!("xsched-target-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.join(name), bytes).unwrap();
            CString::new(folder.join(name).into_os_string().into_encoded_bytes()).unwrap()
        };
        let path = |path: &CStr| takes(Target::Path(path.as_ptr()));
        assert!(path(&file("glibc", &own)));
        let at = own.windows(9).position(|bytes| bytes == b"/ld-linux").unwrap();
        let mut musl = own.clone();
        musl[at..at + 9].copy_from_slice(b"/ld-musl-");
        let musl = file("musl", &musl);
        assert!(!path(&musl));
        let (mut short, mut arm) = (own.clone(), own.clone());
        (short[4], arm[18]) = (1, 183);
        assert!(!path(&file("32-bit", &short)) && !path(&file("arm", &arm)));
        assert!(path(&file("script", b"#! /bin/sh -e\nexit\n")) && path(&file("text", b"exit\n")));
        let script = format!("#!{}\n", musl.to_str().unwrap());
        assert!(!path(&file("musl-script", script.as_bytes())));
        let circle = folder.join("circle").into_os_string().into_string().unwrap();
        assert!(!path(&file("circle", format!("#!{circle}\n").as_bytes())));
        for length in [0, 1, 19, 63, 64, 100] {
            path(&file("cut", &own[..length]));
        }
        assert!(!path(c"/nowhere/at/all") && !takes(Target::Path(std::ptr::null())));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn it_is_found_as_it_will_be_executed() {
        assert!(takes(Target::Name(c"sh".as_ptr())) && takes(Target::Name(c"/bin/sh".as_ptr())));
        assert!(!takes(Target::Name(c"no-such-program-at-all".as_ptr())));
        use std::os::fd::AsRawFd;
        let (file, folder) = (std::fs::File::open("/bin/sh").unwrap(), std::fs::File::open("/bin").unwrap());
        assert!(takes(Target::Descriptor(file.as_raw_fd())) && takes(Target::Below(file.as_raw_fd(), c"".as_ptr())));
        assert!(takes(Target::Below(folder.as_raw_fd(), c"sh".as_ptr())));
        // SAFETY: the tests' own strings.
        assert!(!unsafe { Target::Path(c"/bin/sh".as_ptr()).takes(b"/nowhere/libxsched.so") }, "as after chroot");
        assert!(Path::new("/bin/sh").exists());
    }
}
