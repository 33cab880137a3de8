//! Link options of libsimdev.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    xsched_floor::link();
    // Programs link with -lsimdev. The library's threads run its code, so it must never be unloaded. Its own calls, and
    // the functions that simGetProcAddress returns, must be its own even if a preloaded library defines the same names.
    for option in ["-soname,libsimdev.so", "-z,nodelete", "-Bsymbolic"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{option}");
    }
}
