//! Keeps libgcc_s.so.1 out of what the library needs at run time: a text file of that name, found first by the linker,
//! sends it to the static archive instead. (A preload library must load wherever its host does.)

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(format!("{folder}/libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("cannot write a linker script");
    println!("cargo:rustc-cdylib-link-arg=-L{folder}");
    println!("cargo:rerun-if-changed=build.rs");
}
