//! Folders of xsched: the one for files that live as long as the user's session (the socket and links to the preload library), and the one
//! of the configuration.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use xsched_proto::paths;
pub use xsched_proto::paths::{shared_tmp, user_folder as runtime};

use crate::failure::{Error, Result};
use crate::users;

/// Path of a configuration file in its folder.
const CONFIGURATION: &str = "xsched/config.toml";

/// Folder `$XDG_STATE_HOME/xsched`, for state that outlives the session; none where no variable names it.
///
/// A folder of another user's is skipped, which these variables name after `sudo -E` or `su`: files that root creates there would keep the
/// folder's owner out. The folder is then below the home of the user database.
pub fn state() -> Option<PathBuf> {
    let below = |home: PathBuf| home.join(".local/state");
    let named = [variable("XDG_STATE_HOME"), variable("HOME").map(below)];
    let is_named = named.iter().any(Option::is_some);
    let own = || is_named.then(users::home).flatten().map(below);
    // A relative path would mean another folder for each process that reads it.
    let usable = |path: &PathBuf| path.is_absolute() && paths::belongs_to_user(path);
    let found = named.into_iter().flatten().find(usable).or_else(|| own().filter(usable));
    found.map(|path| path.join("xsched"))
}

/// Configuration file of the machine.
pub fn machine_configuration() -> PathBuf {
    Path::new("/etc").join(CONFIGURATION)
}

/// Usual places of configuration files, in order. Another user's folder is skipped, as in [`state`].
pub fn configuration() -> Vec<PathBuf> {
    let below = |home: PathBuf| home.join(".config");
    let named = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(below));
    let is_trusted = |path: &PathBuf| {
        let owner = paths::owner(&path.join("xsched"));
        owner.is_none_or(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw())
    };
    let user = named.and_then(|path| if is_trusted(&path) { Some(path) } else { users::home().map(below) });
    let of_user = user.filter(is_trusted).map(|folder| folder.join(CONFIGURATION));
    [Some(machine_configuration()), of_user].into_iter().flatten().collect()
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Makes the folder unless it exists, and checks that only this user has access: any user may create names under `/tmp`.
///
/// # Errors
/// Returns one line for the user.
pub fn private(folder: &Path) -> Result<()> {
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
