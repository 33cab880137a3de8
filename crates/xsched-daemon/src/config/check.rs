//! Check of a configuration without starting a daemon.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::config::{Config, faults};
use crate::files::read_text;

/// Reads configuration files as a daemon does. Returns its remarks on them, a line each.
///
/// # Errors
/// Returns the fault for which a daemon would refuse to start: the file, the line, and the accepted values.
pub fn check_config(paths: &[PathBuf]) -> Result<Vec<String>, Error> {
    Config::read(paths).map(|config| config.notices)
}

/// Reads the text of a configuration file as a daemon does: a file that might never end is refused.
///
/// # Errors
/// Returns one line with the file and the reason.
pub fn config_text(path: &Path) -> Result<String, Error> {
    read_text(path).map_err(|why| Error::Input(format!("cannot read the configuration {}: {why}", path.display())))
}

/// All keys that a daemon accepts, by the heading of their table (`""` for the top level, `limits.users.NAME`).
pub fn config_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    faults::tables().into_iter().flat_map(|(table, keys)| keys.iter().map(move |key| (table, *key)))
}
