//! The program that `run` starts: its path, and whether the preload library can be loaded into it.
//!
//! Some programs are loaded without a preload library, silently, and some fail with one. Both kinds are found here, before anything is
//! started.

pub(crate) mod elf;
mod script;
mod verdict;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) use self::verdict::Verdict;
use crate::failure::Error;

/// Largest length of a chain of scripts that name scripts as their interpreters; the kernel has about this limit.
const CHAIN_MAX: usize = 5;

/// Finds the program as a shell would: a name with a slash is a path, any other is looked up in PATH.
///
/// # Errors
/// Exit code 127 if there is no such program, 126 if it cannot be executed.
pub(crate) fn resolve(name: &OsStr) -> Result<PathBuf, Error> {
    let shown = name.to_string_lossy();
    if name.is_empty() {
        return Err(Error::NotFound("the command's name is empty".into()));
    }
    if name.as_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Ok(()) => Ok(PathBuf::from(name)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.kind() == std::io::ErrorKind::NotADirectory => {
                Err(Error::NotFound(format!("{shown}: not found")))
            }
            Err(e) => Err(Error::NotExecutable(format!("{shown}: cannot execute: {}", reason(&e)))),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        // An empty entry of PATH means the current folder; `./` makes the name a path.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let candidate = folder.join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && candidate.exists() => {
                refused.get_or_insert((candidate, e));
            }
            Err(_) => {}
        }
    }
    match refused {
        Some((file, e)) => Err(Error::NotExecutable(format!("{}: cannot execute: {}", file.display(), reason(&e)))),
        None => Err(Error::NotFound(format!("{shown}: command not found"))),
    }
}

fn reason(e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        _ => e.to_string(),
    }
}

/// Checks that a path is a file that this user may execute.
fn executable(path: &Path) -> std::io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD};
    if std::fs::metadata(path)?.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(())
}

/// Examines a program, through the interpreters of scripts.
///
/// # Errors
/// Exit code 127 when an interpreter is missing.
pub(crate) fn inspect(program: &Path) -> Result<Verdict, Error> {
    let mut file = program.to_owned();
    for _ in 0..CHAIN_MAX {
        match script::interpreter(&file) {
            Ok(script::Kind::NotAScript) => return elf::inspect(&file),
            Ok(script::Kind::Interpreters(interpreters)) => {
                // All but the last (such as `env`) only start the next one, but they pass the environment on.
                let mut next = None;
                for (i, name) in interpreters.iter().enumerate() {
                    let found = resolve(name).map_err(|_| {
                        let name = name.to_string_lossy();
                        Error::NotFound(format!("{}: its interpreter {name} is not found", file.display()))
                    })?;
                    if i + 1 < interpreters.len() {
                        let verdict = elf::inspect(&found)?;
                        if matches!(verdict, Verdict::Cannot { .. }) {
                            return Ok(verdict);
                        }
                    }
                    next = Some(found);
                }
                match next {
                    Some(next) => file = next,
                    None => return Ok(Verdict::keeps_out(&file, "a script without an interpreter")),
                }
            }
            // The kernel can execute a file that this process cannot read; its kind stays unknown.
            Err(e) => return Ok(Verdict::keeps_out(&file, format!("not readable ({})", reason(&e)))),
        }
    }
    Ok(Verdict::keeps_out(&file, "at the end of too long a chain of scripts"))
}
