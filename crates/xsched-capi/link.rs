//! Link options of a library that forwards to libxsched.so.

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let package = std::env::var("CARGO_PKG_NAME").expect("cargo sets CARGO_PKG_NAME");
    let name = package.strip_prefix("xsched-").expect("a package of this workspace");
    // As for libxsched.so: libgcc_s.so.1 is not needed at run time.
    std::fs::write(format!("{folder}/libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("cannot write a linker script");
    println!("cargo:rustc-cdylib-link-arg=-L{folder}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,lib{name}.so");
    xsched_floor::link();
    println!("cargo:rerun-if-changed=../../link.rs");
}
