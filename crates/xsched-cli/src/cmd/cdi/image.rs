//! Check that the library loads in the programs of an image, by the image's loader and libc.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::inside::Root;
use crate::target::elf;

/// Path at which programs of this machine's kind expect glibc's loader, as the ABI defines it.
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";

/// Other loaders, by which an image shows what it is made for.
const OTHERS: [(&str, &str); 7] = [
    ("/lib/ld-musl-x86_64.so.1", "linked to musl, the library needs glibc"),
    ("/lib/ld-musl-aarch64.so.1", "made for another machine (aarch64)"),
    ("/lib64/ld-linux-x86-64.so.2", "made for another machine (x86-64)"),
    ("/lib/ld-linux-aarch64.so.1", "made for another machine (aarch64)"),
    ("/lib/ld-linux-armhf.so.3", "made for another machine (arm)"),
    ("/lib/ld-linux.so.2", "32-bit, the library is 64-bit"),
    ("/lib64/ld64.so.2", "made for another machine (ppc64)"),
];

/// Folders that a loader searches by itself, Debian's and others'. Libc is in one of them where it is not beside its loader.
#[cfg(target_arch = "x86_64")]
const LIBRARIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
#[cfg(target_arch = "aarch64")]
const LIBRARIES: [&str; 6] =
    ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Returns the reason for which the library does not load, in words that fit "its programs are …".
pub(super) fn look(root: &Root, command: &[String], search: Option<&str>) -> Result<(), String> {
    let loader = Path::new(LOADER);
    if root.file(loader).is_err() {
        let other = OTHERS.iter().find(|(path, _)| root.place(Path::new(path)).is_ok());
        return Err(
            other.map_or_else(|| format!("linked statically: it has no {LOADER}"), |(_, why)| (*why).to_owned())
        );
    }
    let beside = root.resolved(loader).ok().and_then(|path| path.parent().map(Path::to_owned));
    let folders = beside.into_iter().chain(LIBRARIES.map(PathBuf::from));
    let Some((libc, file)) =
        folders.map(|f| f.join("libc.so.6")).find_map(|path| Some((root.file(&path).ok()?, path))).map(|(f, p)| (p, f))
    else {
        return Err("linked to a libc that is not found".to_owned());
    };
    let facts = elf::facts(file).map_err(|why| format!("linked to a libc, {}, that is {why}", libc.display()))?;
    if !facts.libc_floor {
        return Err(format!("linked to a glibc older than 2.28 ({})", libc.display()));
    }
    // Programs that it starts may differ, and cannot be checked. This one would not start.
    let program = command.first().and_then(|name| found(root, name, search));
    if let Some(facts) = program.and_then(|path| elf::facts(root.file(&path).ok()?).ok())
        && facts.address_sanitizer
    {
        return Err("built with AddressSanitizer, which may end a program that is given a library".to_owned());
    }
    Ok(())
}

fn found(root: &Root, name: &str, search: Option<&str>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(Path::new("/").join(name));
    }
    let folders = std::env::split_paths(OsStr::new(search.unwrap_or("/usr/local/bin:/usr/bin:/bin")));
    folders.map(|folder| Path::new("/").join(folder).join(name)).find(|path| root.file(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str]) -> Result<(), String> {
        let image = tempfile::tempdir().unwrap();
        for file in files {
            let path = image.path().join(&file[1..]);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::copy(std::fs::canonicalize(LOADER).unwrap(), path).unwrap();
        }
        look(&Root::open(image.path()).unwrap(), &[], None)
    }

    #[test]
    fn images_of_other_kinds_are_told() {
        assert_eq!(of(&[]).unwrap_err(), format!("linked statically: it has no {LOADER}"));
        assert_eq!(of(&["/lib/ld-musl-x86_64.so.1"]).unwrap_err(), "linked to musl, the library needs glibc");
        assert_eq!(of(&["/lib/ld-linux-aarch64.so.1"]).unwrap_err(), "made for another machine (aarch64)");
        assert_eq!(of(&[LOADER]).unwrap_err(), "linked to a libc that is not found");
    }

    #[test]
    fn libc_is_found_wherever_its_loader_finds_it() {
        let libc = std::fs::canonicalize(LOADER).unwrap().with_file_name("libc.so.6");
        for folder in LIBRARIES {
            let image = tempfile::tempdir().unwrap();
            for (from, to) in [(Path::new(LOADER), LOADER.to_owned()), (&libc, format!("{folder}/libc.so.6"))] {
                let to = image.path().join(&to[1..]);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(from, to).unwrap();
            }
            assert_eq!(look(&Root::open(image.path()).unwrap(), &[], None), Ok(()), "{folder}");
        }
    }

    #[test]
    fn an_older_libc_is_told_by_the_symbols_that_it_lacks() {
        let image = tempfile::tempdir().unwrap();
        for folder in ["lib64", "usr/lib64"] {
            std::fs::create_dir_all(image.path().join(folder)).unwrap();
        }
        let (loader, libc) = (std::fs::canonicalize(LOADER).unwrap(), image.path().join("usr/lib64/libc.so.6"));
        std::fs::copy(&loader, image.path().join(&LOADER[1..])).unwrap();
        let mut bytes = std::fs::read(loader.with_file_name("libc.so.6")).unwrap();
        std::fs::write(&libc, &bytes).unwrap();
        let root = Root::open(image.path()).unwrap();
        assert_eq!(look(&root, &[], None), Ok(()));
        let floor = b"GLIBC_2.28";
        while let Some(at) = bytes.windows(floor.len()).position(|name| name == floor) {
            bytes[at + 6] = b'1';
        }
        std::fs::write(&libc, &bytes).unwrap();
        assert_eq!(look(&root, &[], None).unwrap_err(), "linked to a glibc older than 2.28 (/usr/lib64/libc.so.6)");
    }

    #[test]
    fn this_machine_is_one_where_it_loads() {
        let root = Root::open(Path::new("/")).unwrap();
        assert_eq!(look(&root, &["sh".to_owned()], None), Ok(()));
    }
}
