//! Environment of `demo`, `check` and `compare`: a folder and daemons of their own. The user's daemon, configuration and state are left
//! alone.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::children::Guarded;
use crate::failure::{Error, Result};
use crate::preload;

/// Private folder; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Private {
    /// Path of this program.
    pub(crate) exe: PathBuf,
    /// Path of the preload library.
    pub(crate) library: PathBuf,
    folder: tempfile::TempDir,
}

/// Private daemon; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    _process: Guarded,
}

impl Private {
    /// Makes the folder; `name` is the command's.
    ///
    /// # Errors
    /// Returns one line for the user.
    pub(crate) fn new(name: &str) -> Result<Private> {
        let library = preload::find()?;
        let exe = std::env::current_exe()
            .map_err(|e| Error::environment(format!("cannot tell where this program lies: {e}")))?;
        // The folder is under /tmp even where TMPDIR is long: a socket's path has room for 107 bytes.
        let folder = tempfile::Builder::new()
            .prefix(&format!("xsched-{name}-"))
            .tempdir_in("/tmp")
            .map_err(|e| Error::environment(format!("cannot make a folder under /tmp: {e}")))?;
        Ok(Private { exe, library, folder })
    }

    /// Path of the folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Path of a file in the folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a daemon that listens at `NAME.sock`, and waits until it answers.
    ///
    /// # Errors
    /// Returns one line for the user.
    pub(crate) fn daemon(&self, name: &str, args: &[&OsStr]) -> Result<Daemon> {
        let socket = self.join(&format!("{name}.sock"));
        let mut daemon = clean(Command::new(&self.exe));
        daemon.arg("daemon").arg("--socket").arg(&socket).args(args);
        // The daemon's output is of no interest on the user's terminal.
        daemon.arg("--log").arg(self.join(&format!("{name}.log")));
        // The daemon gets no configuration: the machine's or the user's might name another policy, or have a mistake.
        daemon.arg("--no-usual-config").env("XDG_STATE_HOME", self.folder());
        let process = Guarded::spawn(daemon, "a daemon of its own")?;
        process.answers_at(&socket)?;
        Ok(Daemon { socket, _process: process })
    }

    /// Socket of the simulated device of [`Self::sim_device`].
    pub(crate) fn sim_socket(&self) -> PathBuf {
        self.join("sim.sock")
    }

    /// Starts a simulated device.
    ///
    /// # Errors
    /// Returns one line for the user.
    pub(crate) fn sim_device(&self) -> Result<Guarded> {
        let mut command = clean(Command::new(&self.exe));
        command.args(["sim-device", "--socket"]).arg(self.sim_socket());
        let device = Guarded::spawn(command, "the simulated device")?;
        device.answers_at(&self.sim_socket())?;
        Ok(device)
    }
}

/// Removes variables for other programs from the environment of one of our own.
pub(crate) fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"XSCHED_") && bytes != b"XSCHED_LOG" {
            command.env_remove(&name);
        }
    }
    command
}

/// Fails early where a file cannot be written; leaves no file behind that was not there.
///
/// # Errors
/// Fails with exit code 2.
pub(crate) fn writable<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    for file in files {
        let was_there = file.exists();
        let opened = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(file);
        opened.map_err(|e| Error::input(format!("cannot write {}: {e}", file.display())))?;
        if !was_there {
            let _ = std::fs::remove_file(file);
        }
    }
    Ok(())
}

/// Writes an answer to a file.
///
/// # Errors
/// Returns one line for the user.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).map_err(|e| Error::environment(format!("cannot write {}: {e}", file.display())))
}
