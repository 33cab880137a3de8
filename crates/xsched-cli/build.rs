//! Link options of the command.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    xsched_floor::link();
}
