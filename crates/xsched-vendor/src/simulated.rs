//! The simulated device's library, which is called like a vendor's.

use std::path::PathBuf;

/// Path of libsimdev.so, beside this program.
pub fn library() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("libsimdev.so")
}
