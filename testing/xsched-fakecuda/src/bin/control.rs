//! A stand-in for `nvidia-cuda-mps-control`, over the software driver.

fn main() -> std::process::ExitCode {
    fakecuda::control::main()
}
