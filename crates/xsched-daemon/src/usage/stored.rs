//! Records that a daemon has left on the disk, for commands while none runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use xsched_proto::class::Class;
use xsched_proto::usage::{UsageBy, UsageRow};

use super::folder::Folder;
use super::{Query, rows};
use crate::Error;

/// Folder of the records of a socket's daemon, below its state folder.
pub(crate) fn folder_of(state: &Path, socket: &Path) -> PathBuf {
    let name = socket.to_string_lossy().trim_start_matches('/').replace('/', "-");
    state.join(format!("usage-{name}"))
}

/// Records of a daemon, read without it. Only records of this user's own daemon can be read.
pub struct StoredUsage {
    path: PathBuf,
}

/// Program on a device, as the records have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProgram {
    /// Process id.
    pub pid: u32,
    /// User: its number, or that with the number of its container.
    pub user: String,
    /// Job that was given a name.
    pub job: Option<String>,
    /// Name of the program.
    pub program: String,
    /// Class at the end.
    pub class: Class,
    /// Key of the device.
    pub device: String,
    /// End of the last record, in ms since 1970.
    pub to_ms: u64,
    /// Device time charged within the records, in ns.
    pub gpu_ns: u64,
}

impl StoredUsage {
    /// Records of the daemon of a socket, which keeps them below a state folder; none where there are none.
    pub fn find(state: &Path, socket: &Path) -> Option<StoredUsage> {
        let path = folder_of(state, socket);
        path.is_dir().then_some(StoredUsage { path })
    }

    /// Folder of the records.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sums of the records that end after a time, in ms since 1970.
    ///
    /// # Errors
    /// Fails if the records cannot be read.
    pub fn rows(&self, since_ms: u64, by: UsageBy) -> Result<Vec<UsageRow>, Error> {
        rows(&Folder::new(&self.path), &Query { conn: 0, of_user: None, since_ms, by })
    }

    /// Programs with records that end after a time, in ms since 1970; the last one first.
    ///
    /// # Errors
    /// Fails if the records cannot be read.
    pub fn programs(&self, since_ms: u64) -> Result<Vec<StoredProgram>, Error> {
        let mut found = BTreeMap::new();
        let read = Folder::new(&self.path).each(None, since_ms, |record| {
            let identity = &record.identity;
            match found.entry((identity.pid, identity.start, record.device.clone())) {
                Entry::Vacant(place) => {
                    place.insert(StoredProgram {
                        pid: identity.pid,
                        user: identity.user.clone(),
                        job: identity.job.clone(),
                        program: identity.program.clone(),
                        class: record.class,
                        device: record.device,
                        to_ms: record.to_ms,
                        gpu_ns: record.gpu_ns,
                    });
                }
                Entry::Occupied(mut place) => {
                    let program = place.get_mut();
                    program.gpu_ns = program.gpu_ns.saturating_add(record.gpu_ns);
                    if record.to_ms > program.to_ms {
                        (program.to_ms, program.class) = (record.to_ms, record.class);
                    }
                }
            }
        });
        read.map_err(|e| Error::environment(format!("the records of usage cannot be read: {e}")))?;
        let mut programs: Vec<StoredProgram> = found.into_values().collect();
        programs.sort_by_key(|program| (std::cmp::Reverse(program.to_ms), program.pid));
        Ok(programs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::super::file::tests::record;
    use super::*;

    #[test]
    fn programs_have_their_last_end_and_all_their_time() {
        let state = tempfile::tempdir().expect("a folder");
        let socket = Path::new("/run/x.sock");
        assert!(StoredUsage::find(state.path(), socket).is_none());
        let mut folder = Folder::new(&folder_of(state.path(), socket));
        let on = |n: u64, device: &str| Record { device: device.into(), ..record(n) };
        folder.append(&[on(5, "sim:0"), on(9, "sim:0"), on(7, "sim:1"), on(2, "sim:0")]).expect("written");
        let stored = StoredUsage::find(state.path(), socket).expect("they are there");
        let told: Vec<_> =
            stored.programs(3).expect("read").into_iter().map(|p| (p.device, p.to_ms, p.gpu_ns)).collect();
        assert_eq!(told, [("sim:0".to_owned(), 10, 14), ("sim:1".to_owned(), 8, 7)]);
        assert_eq!(stored.rows(0, UsageBy::Device).expect("read")[0].gpu_ns, 16);
    }
}
