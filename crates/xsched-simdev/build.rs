//! Link options of libsimdev.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    xsched_floor::link();
    // Programs link with -lsimdev. Its threads run its code, so it must never be unloaded. And what it calls of its
    // own, or hands out through simGetProcAddress, must be its own, whatever a preloaded library is called like.
    for option in ["-soname,libsimdev.so", "-z,nodelete", "-Bsymbolic"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{option}");
    }
}
