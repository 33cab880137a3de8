//! The simulated device's library, which is called like a vendor's.

use std::path::{Path, PathBuf};

/// File name of the library.
const NAME: &str = "libsimdev.so";

/// Path of libsimdev.so: beside this program, else `../lib/xsched/` from there, as a wheel has it.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    library_of(exe.parent().unwrap_or(Path::new("/")))
}

/// Path of the library that belongs to a program in this folder.
fn library_of(folder: &Path) -> PathBuf {
    let beside = folder.join(NAME);
    // The first place is named where there is none, so that the loader's error says where it belongs.
    let apart = folder.join("../lib/xsched").join(NAME).canonicalize();
    if beside.is_file() { beside } else { apart.unwrap_or(beside) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lies_beside_the_program_or_in_the_folder_of_libraries() {
        let place = std::env::temp_dir().join(format!("xsched-vendor-{}", std::process::id()));
        let (bin, lib) = (place.join("bin"), place.join("lib/xsched"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        let place = place.canonicalize().unwrap();
        assert_eq!(library_of(&bin), bin.join(NAME), "none: the place where it belongs");
        std::fs::write(lib.join(NAME), "").unwrap();
        assert_eq!(library_of(&bin), place.join("lib/xsched").join(NAME));
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(library_of(&bin), bin.join(NAME));
        std::fs::remove_dir_all(place).unwrap();
    }
}
