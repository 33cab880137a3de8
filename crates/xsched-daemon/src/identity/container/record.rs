//! Record of a container beside its id: a file that is written when the container is made ([the hook of
//! CDI](../../../../docs/guide/containers.md)), in a folder beside that of the daemon's socket, which containers do not see.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xsched_proto::class::Class;
use xsched_proto::files;
use xsched_proto::text::check_visible;

/// Largest file that is read, in bytes.
const RECORD_MAX_BYTES: u64 = 16 << 10;
/// Longest name that is used, in bytes.
const NAME_MAX_BYTES: usize = 253;

/// Record of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id of the container, as in the paths of its cgroups.
    pub id: String,
    /// Name of the container at its engine.
    #[serde(default)]
    pub name: Option<String>,
    /// Kubernetes pod that the container is part of.
    #[serde(default)]
    pub pod: Option<String>,
    /// Namespace of the pod.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Uid of the pod.
    #[serde(default)]
    pub pod_uid: Option<String>,
    /// Class that the container was made with.
    #[serde(default)]
    pub class: Option<Class>,
    /// Reason for which its programs do not load the library; none = they load it.
    #[serde(default)]
    pub unscheduled: Option<String>,
}

/// Folder of the records of containers whose programs find the daemon's socket in `folder`: it lies beside that folder.
pub fn folder(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().map_or_else(|| OsString::from("xsched"), OsString::from);
    name.push("-containers");
    folder.with_file_name(name)
}

/// Folder of the records of a user's own containers.
pub fn folder_of_user(uid: u32) -> PathBuf {
    folder(&PathBuf::from(format!("/run/user/{uid}/xsched")))
}

impl Record {
    /// Writes the record by a rename.
    ///
    /// # Errors
    /// Also fails where its id is no file name.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (path, fresh) = (file(folder, &self.id, "json")?, file(folder, &self.id, "json.new")?);
        let _ = std::fs::remove_file(&fresh);
        let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&fresh)?;
        out.write_all(serde_json::to_string(self)?.as_bytes())?;
        std::fs::rename(&fresh, &path)
    }

    /// Reads the record of a container, and the user that has written it.
    ///
    /// # Errors
    /// Also fails where the record is another container's.
    pub fn read(folder: &Path, id: &str) -> Result<(Record, u32)> {
        let (mut text, file) = (String::new(), files::read_only(&file(folder, id, "json")?)?);
        let owner = file.metadata()?.uid();
        file.take(RECORD_MAX_BYTES).read_to_string(&mut text)?;
        let record: Record = serde_json::from_str(&text)?;
        if record.id != id {
            return Err(Error::new(ErrorKind::InvalidData, "it is another container's"));
        }
        let cut = |name: Option<String>| name.filter(|n| n.len() <= NAME_MAX_BYTES && check_visible(n, "name").is_ok());
        let Record { name, pod, namespace, pod_uid, .. } = record.clone();
        let (name, pod, namespace, pod_uid) = (cut(name), cut(pod), cut(namespace), cut(pod_uid));
        Ok((Record { name, pod, namespace, pod_uid, ..record }, owner))
    }
}

/// Path of a file of a container.
///
/// # Errors
/// Fails where the id is no file name.
pub fn file(folder: &Path, id: &str, what: &str) -> Result<PathBuf> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if id.is_empty() || id.len() > 200 || id.starts_with('.') || !id.bytes().all(fits) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("'{id}' is no id of a container")));
    }
    Ok(folder.join(format!("{id}.{what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_only_as_its_own_containers() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record {
            id: "0123abc".into(),
            name: Some("web".into()),
            class: Some(Class::High),
            namespace: Some("a\nb".into()),
            ..Record::default()
        };
        record.write(folder.path()).unwrap();
        let (read, owner) = Record::read(folder.path(), "0123abc").unwrap();
        assert_eq!(owner, rustix::process::geteuid().as_raw());
        assert_eq!(read, Record { namespace: None, ..record.clone() }, "a line break is no name's");
        std::fs::copy(folder.path().join("0123abc.json"), folder.path().join("4.json")).unwrap();
        assert!(Record::read(folder.path(), "4").is_err());
        for id in ["", "..", "../x", "a/b", ".hidden"] {
            assert!(Record::read(folder.path(), id).is_err(), "{id}");
            assert!(Record { id: id.into(), ..Record::default() }.write(folder.path()).is_err(), "{id}");
        }
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("5.json")).unwrap();
        assert!(Record::read(folder.path(), "5").is_err());
    }

    #[test]
    fn records_lie_beside_the_sockets_folder() {
        assert_eq!(folder(Path::new("/run/xsched")), Path::new("/run/xsched-containers"));
        assert_eq!(folder_of_user(7), Path::new("/run/user/7/xsched-containers"));
    }
}
