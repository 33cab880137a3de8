//! Links shipped files against the oldest supported glibc, whatever glibc the building machine has.
//!
//! A linker binds a program to the newest version of each function in the libraries that it finds, and the program then
//! loads with no older glibc. So build scripts let it find other libraries: shared libraries without code, with the
//! names and versions of glibc 2.28, generated from a list by the C compiler that links the program anyway; and an
//! archive of the few functions that a program of that glibc carries in itself. (`_dl_find_object`, which a newer
//! libgcc_eh.a calls, is defined by the crates that link that archive.)

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIST: &str = include_str!("../glibc-2.28.txt");
/// Sources of the archive.
const NONSHARED: [(&str, &str); 2] =
    [("nonshared", include_str!("../nonshared.c")), ("start", include_str!("../start.c"))];

type Version = (u32, u32, u32);

/// Newest version of a glibc symbol that programs and libraries may require.
const FLOOR: Version = (2, 28, 0);
/// Newest version of a glibc symbol that the preload library may require: it must load into any process, and does
/// nothing in one whose glibc is older than [`FLOOR`].
const PRELOAD: Version = (2, 4, 0);

/// Libraries that the compiler links beside the C library.
const OTHERS: [(&str, &str); 5] = [
    ("dl", "libdl.so.2"),
    ("m", "libm.so.6"),
    ("pthread", "libpthread.so.0"),
    ("rt", "librt.so.1"),
    ("util", "libutil.so.1"),
];

/// A function, or data of this many bytes.
struct Symbol {
    version: Version,
    size: Option<u32>,
}

type Symbols = BTreeMap<&'static str, Symbol>;

/// Sets the link options of a program or a library, from its build script.
pub fn link() {
    let folder = folder();
    make(&folder);
    println!("cargo:rustc-link-arg=-L{}", folder.display());
    // This machine's libgcc_s.so.1 may require newer symbols of its own glibc. The one where the program runs fits the
    // glibc there.
    println!("cargo:rustc-link-arg=-Wl,--allow-shlib-undefined");
}

/// Writes the libraries that a compiler finds with `-L` and this folder. The compiler also needs
/// `-Wl,--allow-shlib-undefined`.
///
/// # Panics
/// If the folder cannot be written or there is no compiler.
pub fn make(folder: &Path) {
    let libc = with_loader(FLOOR);
    nonshared(folder, &[]);
    for (name, library) in OTHERS {
        let mut symbols = exported(library, FLOOR);
        // A function that the C library has too is taken from there.
        symbols.retain(|name, _| !libc.contains_key(name));
        stub(folder, library, &format!("lib{name}.so"), &symbols);
    }
    stub(folder, "libc.so.6", "libc-floor.so", &libc);
    script(folder);
}

/// Sets the link options of the preload library, from its build script. The library may require only the C library,
/// which each program has. `wrapped` are functions that were once in other libraries, or are newer: the preload library
/// defines `__wrap_NAME` for them, and `__real_NAME` may be missing at run time.
pub fn link_preload(wrapped: &[&str]) {
    let folder = folder();
    nonshared(&folder, &["-DPRELOAD"]);
    for (name, _) in OTHERS {
        write(&folder.join(format!("lib{name}.a")), "!<arch>\n");
    }
    let mut libc = with_loader(PRELOAD);
    libc.retain(|name, _| !wrapped.contains(name));
    stub(&folder, "libc.so.6", "libc-floor.so", &libc);
    script(&folder);
    println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs");
    for name in wrapped {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}

fn folder() -> PathBuf {
    println!("cargo:rerun-if-env-changed=CC");
    let folder = Path::new(&std::env::var("OUT_DIR").expect("cargo sets it")).join("floor");
    fs::create_dir_all(&folder).expect("cargo's folder is writable");
    folder
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn version(text: &str) -> Version {
    let mut numbers = text.split('.').map(|number| number.parse().expect("a number"));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// Exports of a library, each name with its newest version up to `newest`.
fn exported(library: &str, newest: Version) -> Symbols {
    let mut symbols = Symbols::new();
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    for line in lines.filter_map(|line| line.strip_prefix(library)?.strip_prefix(' ')) {
        let mut words = line.split(' ');
        let version = version(words.next().expect("a version"));
        for word in words.filter(|_| version <= newest) {
            let (name, size) = match word.split_once(':') {
                Some((name, size)) => (name, Some(size.parse().expect("a size"))),
                None => (word, None),
            };
            if symbols.get(name).is_none_or(|known| known.version < version) {
                symbols.insert(name, Symbol { version, size });
            }
        }
    }
    symbols
}

/// The C library, with the loader's exports added. The loader is in every process too, so it need not be a dependency.
fn with_loader(newest: Version) -> Symbols {
    let mut symbols = exported("ld-linux-x86-64.so.2", newest);
    symbols.extend(exported("libc.so.6", newest));
    symbols
}

fn name_of((major, minor, patch): Version) -> String {
    let patch = if patch == 0 { String::new() } else { format!(".{patch}") };
    format!("GLIBC_{major}.{minor}{patch}")
}

/// Compiles a shared library with these symbols.
fn stub(folder: &Path, soname: &str, file: &str, symbols: &Symbols) {
    let (mut code, mut data) = (String::from(".text\n"), String::from(".data\n"));
    let mut versions: BTreeMap<Version, String> = BTreeMap::new();
    for (name, symbol) in symbols {
        let names = versions.entry(symbol.version).or_default();
        match symbol.size {
            // Bound by its version only: the symbol without one is in the archive.
            None if *name == "__libc_start_main" => {
                let version = name_of(symbol.version);
                let _ =
                    writeln!(code, ".symver start, {name}@{version}\n.globl start\n.type start, @function\nstart: ret");
                continue;
            }
            None => {
                let _ = writeln!(code, ".globl {name}\n.type {name}, @function\n{name}: ret");
            }
            Some(size) => {
                let _ =
                    writeln!(data, ".globl {name}\n.type {name}, @object\n.size {name}, {size}\n{name}: .zero {size}");
            }
        }
        let _ = write!(names, " {name};");
    }
    let mut map = String::new();
    for (version, names) in versions {
        let names = if names.is_empty() { names } else { format!(" global:{names}") };
        let _ = writeln!(map, "{} {{{names} }};", name_of(version));
    }
    let _ = writeln!(map, "LOCAL {{ local: *; }};");
    let (source, script) = (folder.join(format!("{file}.s")), folder.join(format!("{file}.map")));
    write(&source, &(code + &data + ".section .note.GNU-stack,\"\",@progbits\n"));
    write(&script, &map);
    let map = format!("-Wl,--version-script={}", script.display());
    let soname = format!("-Wl,-soname,{soname}");
    compile(&["-shared", "-nostdlib", &map, &soname, "-o", &text(&folder.join(file)), &text(&source)]);
}

/// Compiles the archive of functions that a program carries in itself.
fn nonshared(folder: &Path, more: &[&str]) {
    let objects = NONSHARED.map(|(name, code)| {
        let (source, object) = (folder.join(format!("{name}.c")), text(&folder.join(format!("{name}.o"))));
        write(&source, code);
        // Each function has a section of its own, so that unused ones are left out.
        let plain = ["-O2", "-fPIC", "-fno-stack-protector", "-fno-builtin", "-ffunction-sections", "-w"];
        let words: Vec<&str> = plain.iter().chain(more).copied().collect();
        compile(&[&words[..], &["-c", "-o", &object, &text(&source)]].concat());
        object
    });
    let mut ar = Command::new("ar");
    ar.arg("crsD").arg(folder.join("libnonshared.a")).args(objects);
    succeed(&mut ar);
}

/// Writes the file that `-lc` finds.
fn script(folder: &Path) {
    let (library, archive) = (folder.join("libc-floor.so"), folder.join("libnonshared.a"));
    write(&folder.join("libc.so"), &format!("INPUT(\"{}\" \"{}\")\n", library.display(), archive.display()));
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path that the compiler can be told").to_owned()
}

fn compile(words: &[&str]) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut parts = compiler.split_whitespace();
    succeed(Command::new(parts.next().unwrap_or("cc")).args(parts).args(words));
}

fn succeed(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_of(library: &str, name: &str, newest: Version) -> Option<Version> {
        exported(library, newest).get(name).map(|symbol| symbol.version)
    }

    #[test]
    fn a_function_has_its_newest_version_up_to_the_floor() {
        assert_eq!(version_of("libc.so.6", "memcpy", FLOOR), Some((2, 14, 0)));
        assert_eq!(version_of("libc.so.6", "memcpy", PRELOAD), Some((2, 2, 5)));
        assert_eq!(version_of("libc.so.6", "statx", FLOOR), Some((2, 28, 0)));
        assert_eq!(version_of("libc.so.6", "statx", PRELOAD), None);
        assert_eq!(version_of("libm.so.6", "pow", FLOOR), Some((2, 2, 5)));
    }

    #[test]
    fn a_function_is_where_glibc_2_28_had_it() {
        assert_eq!(version_of("libc.so.6", "dlsym", FLOOR), None);
        assert_eq!(version_of("libdl.so.2", "dlsym", FLOOR), Some((2, 2, 5)));
        assert_eq!(version_of("libpthread.so.0", "pthread_create", FLOOR), Some((2, 2, 5)));
        for gone in ["stat64", "gettid", "_dl_find_object"] {
            assert_eq!(version_of("libc.so.6", gone, FLOOR), None, "{gone}");
        }
    }

    #[test]
    fn versions_and_names_are_each_others() {
        assert_eq!(["2.2.5", "2.28"].map(|text| name_of(version(text))), ["GLIBC_2.2.5", "GLIBC_2.28"]);
    }
}
