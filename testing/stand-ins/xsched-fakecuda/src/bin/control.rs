//! A fake `nvidia-cuda-mps-control`, built on the software driver.

fn main() -> std::process::ExitCode {
    fakecuda::control::main()
}
