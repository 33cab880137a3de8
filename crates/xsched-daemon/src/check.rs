//! Check of a configuration without starting a daemon.

use std::path::PathBuf;

use crate::Error;
use crate::config::Config;

/// Reads configuration files as a daemon does. Returns its remarks on them, a line each.
///
/// # Errors
/// Returns the fault for which a daemon would refuse to start: the file, the line, and the accepted values.
pub fn check_config(paths: &[PathBuf]) -> Result<Vec<String>, Error> {
    Config::read(paths).map(|config| config.notices)
}
