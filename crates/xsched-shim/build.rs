//! Limits the run-time dependencies of the preload library to the C library that each program has: the library must
//! load into any program.

/// Functions that not every C library has in libc.so.6; src/interpose/absent.rs defines stand-ins for them.
const WRAPPED: [&str; 25] = [
    "clock_gettime",
    "clock_nanosleep",
    "dladdr",
    "dlerror",
    "dlopen",
    "fstat",
    "fstat64",
    "getauxval",
    "gnu_get_libc_version",
    "lstat64",
    "pthread_attr_getguardsize",
    "pthread_attr_getstack",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_getattr_np",
    "pthread_getspecific",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setaffinity_np",
    "pthread_setname_np",
    "pthread_setspecific",
    "pthread_sigmask",
    "stat64",
];

fn main() {
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    // The linker finds this text file of the shared library's name first, and is sent to the static archive instead of
    // libgcc_s.so.1.
    std::fs::write(format!("{folder}/libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("cannot write a linker script");
    println!("cargo:rustc-cdylib-link-arg=-L{folder}");
    println!("cargo:rerun-if-changed=build.rs");
    xsched_floor::link_preload(&WRAPPED);
}
