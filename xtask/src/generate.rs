//! `cargo xtask generate`: writes the committed generated files, or checks that they are up to date.

use std::path::Path;

use crate::opencl;

const FOLDER: &str = "crates/xsched-shim/src/platform/opencl";

/// Writes the generated files; with `check`, compares instead and fails when they differ.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), String> {
    let generated = opencl::generate(root)?;
    let folder = root.join(FOLDER);
    for (name, text) in [("signatures.rs", &generated.signatures), ("types.rs", &generated.types)] {
        let path = folder.join(name);
        if check {
            let found = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if found != *text {
                return Err(format!("{FOLDER}/{name} is out of date: run `cargo xtask generate`"));
            }
        } else {
            std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    println!("{FOLDER}: {} functions, {}", generated.functions, if check { "up to date" } else { "written" });
    Ok(())
}
