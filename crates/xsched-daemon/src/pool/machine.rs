//! Check that this machine can have a pool, as far as that can be seen without touching a GPU.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::pool::mps::CONTROL;

/// Folder in which NVIDIA's kernel module shows its GPUs.
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// Folder in which it shows the instances that GPUs are divided into.
const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";

/// UUIDs of the GPUs that this process may open; empty where the kernel module shows none.
pub(crate) fn gpus() -> Vec<String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for folder in folders(Path::new(GPUS)) {
        let text = fs::read_to_string(folder.join("information")).unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        let (Some(uuid), Some(minor)) = (field("GPU UUID:"), field("Device Minor:")) else { continue };
        // In a container the module shows all GPUs of the machine, but only some can be opened.
        let device = format!("/dev/nvidia{minor}");
        if uuid.starts_with("GPU-") && !uuid.contains('?') && fs::File::open(&device).is_ok() {
            found.push((folder.to_string_lossy().into_owned(), uuid));
        }
    }
    // In the order of PCI addresses.
    found.sort();
    found.into_iter().map(|(_, uuid)| uuid).collect()
}

/// Reason for which there can be no pool on this machine, in one line; none = there is none.
pub(crate) fn obstacle() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if release.to_ascii_lowercase().contains("microsoft") {
        return Some("MPS does not work in WSL".into());
    }
    if on_path(CONTROL).is_none() {
        return Some(format!("{CONTROL} is not in the daemon's PATH: install NVIDIA's compute utilities"));
    }
    let is_instance = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"gi"));
    if folders(Path::new(CAPABILITIES)).iter().any(|gpu| folders(&gpu.join("mig")).iter().any(is_instance)) {
        return Some("a GPU is divided into MIG instances".into());
    }
    None
}

fn folders(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Path of the program with this name.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program)
}
