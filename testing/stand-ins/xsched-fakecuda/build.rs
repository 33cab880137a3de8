//! Generates code from the list of the driver's names: entry points for the functions that are not implemented, and the
//! versions by which `cuGetProcAddress` finds functions. Also sets link options.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

fn main() {
    // Programs know the driver by this name. Its threads run its code, so it must never be unloaded.
    for option in ["-soname,libcuda.so.1", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{option}");
    }
    // A preloaded `ioctl` looks this function up in the server too.
    println!("cargo:rustc-link-arg-bin=nvidia-cuda-mps-server=-Wl,--export-dynamic-symbol=fakeRmIoctl");
    // Read at run time, not when this script was compiled: several checkouts may share a folder of artifacts.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let here = Path::new(&here);
    let read = |name: &str| {
        let path = here.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    println!("cargo:rerun-if-changed=build.rs");
    let (names, table, versions) = (read("../../ladders/cuda/names.txt"), read("src/table.rs"), read("versions.txt"));
    let names: Vec<&str> = names.lines().filter(|line| !line.starts_with('#')).collect();
    let implemented: BTreeSet<&str> = table.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    // Implemented in src/lookup.rs.
    let lookup = ["cuGetProcAddress", "cuGetProcAddress_v2"];
    let missing: Vec<&str> =
        names.iter().copied().filter(|name| !implemented.contains(name) && !lookup.contains(name)).collect();

    let mut out = format!("unsupported! {{ {} }}\n\n", missing.join(" "));
    out.push_str("/// Symbol and the version of CUDA that brought it, in tens of its minor number.\n");
    out.push_str("pub(crate) const VERSIONS: &[(&str, i32)] = &[\n");
    for line in versions.lines() {
        let (symbol, version) = line.split_once(' ').expect("versions.txt: SYMBOL VERSION");
        let _ = writeln!(out, "    (\"{symbol}\", {version}),");
    }
    out.push_str("];\n");
    let mut counts = String::new();
    for name in &names {
        let _ = writeln!(counts, "pub(crate) static {name}: AtomicU64 = AtomicU64::new(0);");
    }
    let all: Vec<String> = names.iter().map(|name| format!("(\"{name}\", &{name})")).collect();
    let _ =
        writeln!(counts, "\n/// All of them.\npub(crate) static ALL: &[(&str, &AtomicU64)] = &[{}];", all.join(", "));
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    for (name, text) in [("generated.rs", out), ("counts.rs", counts)] {
        std::fs::write(Path::new(&folder).join(name), text).expect("cargo's folder is writable");
    }
}
