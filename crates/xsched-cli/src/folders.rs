//! The folder for what lives as long as the user's session: the socket and links to the preload library; and where
//! the configuration lies.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::failure::{Error, Result};

pub(crate) use xsched_proto::paths::{shared_tmp, user_folder as runtime};

/// `$XDG_STATE_HOME/xsched`, for what outlives the session; none where no variable says where that is.
pub(crate) fn state() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
    // A relative path would be another one for each who reads it.
    home.filter(|path| path.is_absolute()).map(|path| path.join("xsched"))
}

/// Where configuration files usually are, in order.
pub(crate) fn configuration() -> Vec<PathBuf> {
    let user = match std::env::var_os("XDG_CONFIG_HOME").filter(|v| !v.is_empty()) {
        Some(dir) => Some(PathBuf::from(dir)),
        None => std::env::var_os("HOME").filter(|v| !v.is_empty()).map(|home| PathBuf::from(home).join(".config")),
    };
    let usual = [Some(PathBuf::from("/etc")), user];
    usual.into_iter().flatten().map(|d| d.join("xsched/config.toml")).collect()
}

/// Makes the folder unless it is there, and checks that it is ours alone: anybody may make names under `/tmp`.
///
/// # Errors
/// One line.
pub(crate) fn private(folder: &Path) -> Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::environment(format!("cannot make the folder {}: {e}", folder.display()))),
    }
    let meta = std::fs::symlink_metadata(folder)
        .map_err(|e| Error::environment(format!("cannot look at {}: {e}", folder.display())))?;
    if !meta.is_dir() {
        return Err(Error::environment(format!("{} is no folder; remove it", folder.display())));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::environment(format!(
            "{} belongs to user {}; remove it or give --socket",
            folder.display(),
            meta.uid()
        )));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(Error::environment(format!("others may write to {}; `chmod 700` it", folder.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_others_could_have_prepared_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("fresh");
        private(&fresh).unwrap();
        assert_eq!(std::fs::metadata(&fresh).unwrap().mode() & 0o777, 0o700);
        private(&fresh).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private(&fresh).unwrap_err().line().contains("others may write"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(private(&link).unwrap_err().line().contains("no folder"));
    }
}
