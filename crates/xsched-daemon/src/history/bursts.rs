//! File of bursts, for measurements: one line of JSON for each time in which a program wanted its device.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::Error;

/// File of bursts.
pub(crate) struct Bursts(File);

impl Bursts {
    /// Opens the file, empty.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Bursts, Error> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path);
        file.map(Bursts).map_err(|e| Error::Input(format!("cannot write {}: {e}", path.display())))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn write(&mut self, line: &str) -> std::io::Result<()> {
        self.0.write_all(line.as_bytes())
    }
}
