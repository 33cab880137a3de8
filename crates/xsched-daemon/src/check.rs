//! Check of a configuration without starting a daemon.

use std::path::PathBuf;

use crate::Error;
use crate::config::Config;

/// Reads configuration files as a daemon does. Returns its remarks on them, a line each.
///
/// # Errors
/// What a daemon would refuse to start for: the file, the line, and what is accepted.
pub fn check_config(paths: &[PathBuf]) -> Result<Vec<String>, Error> {
    Config::read(paths).map(|config| config.notices)
}
