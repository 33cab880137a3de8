//! Place of the specification: one file with one owner.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use xsched_proto::paths::SYSTEM_SOCKET;

use super::Generate;
use super::spec::{self, KIND, Outside, Specification};
use crate::failure::{Error, Result, print, say};
use crate::preload;

/// Folders in which engines look, unless they are told otherwise; a file in a later one takes precedence.
const USUAL: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// File name with vendor and class, as the interface requires.
const NAME: &str = "xsched.dev-class.json";

/// Writes, checks or removes the file.
pub(super) fn main(wanted: &Generate) -> Result {
    let folder = match &wanted.output {
        Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        None => PathBuf::from(USUAL[0]),
    };
    let path = folder.join(NAME);
    let is_there = owned(&path)?;
    if wanted.remove {
        return match is_there {
            None => print(&format!("there is no {}\n", path.display())),
            Some(_) => {
                std::fs::remove_file(&path).map_err(|e| cannot("remove", &path, &e))?;
                print(&format!("removed {}\n", path.display()))
            }
        };
    }
    let text = wanted_text(wanted)?;
    for other in others(&path, &USUAL.map(PathBuf::from)) {
        match other {
            Other::SameFolder(file) => {
                return Err(Error::environment(format!(
                    "{} defines {KIND} too, so that engines would take neither; remove it",
                    file.display()
                )));
            }
            Other::Before(file) => say(&format!("{} defines {KIND} too, and counts instead", file.display())),
            Other::After(file) => say(&format!("{} defines {KIND} too, and does not count", file.display())),
        }
    }
    if wanted.check {
        return match is_there {
            Some(there) if there == text => print(&format!("{} is as it would be written\n", path.display())),
            Some(_) => Err(Error::environment(format!(
                "{} is not as it would be written; run `xsched cdi generate`",
                path.display()
            ))),
            None => Err(Error::environment(format!("there is no {}; run `xsched cdi generate`", path.display()))),
        };
    }
    write(&folder, &path, &text).map_err(|e| cannot("write", &path, &e))?;
    if !USUAL.map(Path::new).contains(&folder.as_path()) {
        say(&format!("engines look into {} unless they are told otherwise", USUAL.join(" and ")));
    }
    print(&format!("wrote {}: use it as `--device {KIND}=low`\n", path.display()))
}

fn wanted_text(wanted: &Generate) -> Result<String> {
    let socket = wanted.socket.clone().unwrap_or_else(|| PathBuf::from(SYSTEM_SOCKET));
    let socket = std::path::absolute(&socket).unwrap_or(socket);
    let command = std::env::current_exe()
        .and_then(|exe| exe.canonicalize())
        .map_err(|e| Error::environment(format!("cannot tell where this program lies: {e}")))?;
    let outside = Outside { library: preload::find()?, command, socket };
    for path in [&outside.library, &outside.command, &outside.socket] {
        if path.to_str().is_none_or(|path| path.contains(char::is_control)) {
            return Err(Error::input(format!("{} is no path that JSON can hold", path.display())));
        }
    }
    if outside.socket.parent().is_none_or(|folder| folder == Path::new("/")) {
        return Err(Error::input(format!("--socket: {} is in no folder of its own", outside.socket.display())));
    }
    Ok(spec::of(&outside).text())
}

/// Text of the file at a path, if the file is ours.
fn owned(path: &Path) -> Result<Option<String>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && path.symlink_metadata().is_err() => return Ok(None),
        text => text.unwrap_or_default(),
    };
    let is_ours = serde_json::from_str::<Specification>(&text).is_ok_and(|spec| spec.is_ours());
    match is_ours && path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        true => Ok(Some(text)),
        false => Err(Error::environment(format!(
            "{} is not of `xsched cdi generate`, and stays as it is; move it away",
            path.display()
        ))),
    }
}

/// Error for a file that cannot be written or removed, without its temporary name.
fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "; run it as root, or name a folder of yours by --output",
        _ => "",
    };
    Error::environment(format!("cannot {what} {}: {}{hint}", path.display(), error.kind()))
}

fn write(folder: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(folder)?;
    // Engines do not read files with such a name.
    let mut file = tempfile::Builder::new().prefix(".xsched-").suffix(".new").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

/// Further file that defines devices of this kind.
#[derive(Debug, PartialEq, Eq)]
enum Other {
    /// In the same folder: engines refuse devices that two files of one folder define.
    SameFolder(PathBuf),
    /// In a folder that takes precedence over ours.
    Before(PathBuf),
    /// In a folder over which ours takes precedence.
    After(PathBuf),
}

fn others(path: &Path, folders: &[PathBuf]) -> Vec<Other> {
    let own = path.parent().map(Path::to_owned).unwrap_or_default();
    let rank = |folder: &Path| folders.iter().position(|usual| usual == folder);
    let mut all = folders.to_vec();
    if rank(&own).is_none() {
        all.push(own.clone());
    }
    let mut found = Vec::new();
    for folder in all {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<_> = entries.filter(|file| file != path && defines_it(file)).collect();
        files.sort();
        found.extend(files.into_iter().map(|file| match (rank(&folder), rank(&own)) {
            _ if folder == own => Other::SameFolder(file),
            (Some(its), Some(ours)) if its > ours => Other::Before(file),
            _ => Other::After(file),
        }));
    }
    found
}

/// Reports whether a file defines [`KIND`]. In YAML the kind stands in a line of its own, in quotes or without.
fn defines_it(file: &Path) -> bool {
    let kind = |ext: &str| file.extension().is_some_and(|its| its == ext);
    let text = std::fs::read_to_string(file).unwrap_or_default();
    if kind("json") {
        let value = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        return value["kind"] == KIND;
    }
    let says = |line: &str| line.split('#').next().unwrap_or("").trim().trim_matches(['"', '\'']) == KIND;
    (kind("yaml") || kind("yml")) && text.lines().filter_map(|line| line.strip_prefix("kind:")).any(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_write_is_told_what_to_do() {
        let line = |kind: ErrorKind| {
            let error = std::io::Error::new(kind, "at path \"/etc/cdi/.fresh\"");
            cannot("write", Path::new("/etc/cdi/x.json"), &error).to_string()
        };
        let denied =
            "cannot write /etc/cdi/x.json: permission denied; run it as root, or name a folder of yours by --output";
        assert_eq!(line(ErrorKind::PermissionDenied), denied);
        assert_eq!(line(ErrorKind::StorageFull), "cannot write /etc/cdi/x.json: no storage space");
    }

    #[test]
    fn others_that_define_the_kind_are_found_in_the_order_of_the_folders() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["etc", "run"].map(|name| place.path().join(name));
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("a.yaml"), "cdiVersion: 0.3.0\nkind: \"xsched.dev/class\" # so\n").unwrap();
            std::fs::write(folder.join("b.json"), "{\"kind\": \"xsched.dev/class\"}").unwrap();
            std::fs::write(folder.join("c.json"), "{\"kind\": \"nvidia.com/gpu\"}").unwrap();
            std::fs::write(folder.join("d.txt"), "kind: xsched.dev/class\n").unwrap();
        }
        let of = |folder: &Path| others(&folder.join(NAME), &folders);
        let at = |folder: usize, file: &str| folders[folder].join(file);
        assert_eq!(
            of(&folders[0]),
            [
                Other::SameFolder(at(0, "a.yaml")),
                Other::SameFolder(at(0, "b.json")),
                Other::Before(at(1, "a.yaml")),
                Other::Before(at(1, "b.json")),
            ]
        );
        assert_eq!(of(&folders[1])[..2], [Other::After(at(0, "a.yaml")), Other::After(at(0, "b.json"))]);
        assert!(matches!(of(place.path())[..], [Other::After(_), Other::After(_), Other::After(_), Other::After(_)]));
    }
}
