//! `cargo xtask generate`: writes the committed generated files, or checks that they are up to date.

use std::path::Path;

use crate::{cuda, hip, opencl};

const OPENCL: &str = "crates/xsched-shim/src/platform/opencl";
const CUDA: &str = "crates/xsched-shim/src/platform/cuda";
const HIP: &str = "crates/xsched-shim/src/platform/hip";

/// Writes the generated files; with `check`, compares instead and fails when they differ.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), String> {
    run_opencl(root, check)?;
    run_cuda(root, check)?;
    run_hip(root, check)
}

/// The files made from the OpenCL headers.
pub(crate) fn run_opencl(root: &Path, check: bool) -> Result<(), String> {
    let made = opencl::generate(root)?;
    let files = [(format!("{OPENCL}/signatures.rs"), &made.signatures), (format!("{OPENCL}/types.rs"), &made.types)];
    settle(root, check, &files)?;
    println!("{OPENCL}: {} functions, {}", made.functions, if check { "up to date" } else { "written" });
    Ok(())
}

/// The files made from `cuda.h`.
pub(crate) fn run_cuda(root: &Path, check: bool) -> Result<(), String> {
    let made = cuda::generate(&root.join("target"))?;
    let files = [(format!("{CUDA}/signatures.rs"), &made.signatures), ("testing/cuda/names.txt".into(), &made.names)];
    settle(root, check, &files)?;
    println!("{CUDA}: {} functions, {}", made.functions, if check { "up to date" } else { "written" });
    Ok(())
}

/// The files made from HIP's header.
pub(crate) fn run_hip(root: &Path, check: bool) -> Result<(), String> {
    let made = hip::generate(&root.join("target"))?;
    settle(root, check, &[(format!("{HIP}/signatures.rs"), &made.signatures)])?;
    println!("{HIP}: {} functions, {}", made.functions, if check { "up to date" } else { "written" });
    Ok(())
}

fn settle(root: &Path, check: bool, files: &[(String, &String)]) -> Result<(), String> {
    for (name, text) in files {
        let path = root.join(name);
        if check {
            let found = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if found != **text {
                return Err(format!("{name} is out of date: run `cargo xtask generate`"));
            }
        } else {
            let folder = path.parent().unwrap_or(root);
            std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}
