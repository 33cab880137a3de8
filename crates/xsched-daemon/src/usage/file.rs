//! Files of records: one that grows, and those that were put aside when they had grown enough, `.1` the youngest. In a file put aside, the
//! records of a program within an hour are merged. The oldest file is removed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::Record;
use crate::tuning::{USAGE_ASIDE_MAX, USAGE_ASIDE_MAX_BYTES, USAGE_FILE_MAX_BYTES, USAGE_LINE_MAX_BYTES};

const HOUR_MS: u64 = 3_600_000;

/// Files with the records of one user.
pub(crate) struct Files {
    path: PathBuf,
    max_bytes: u64,
    max_aside_bytes: u64,
}

impl Files {
    pub(crate) fn new(path: &Path) -> Files {
        Files { path: path.to_owned(), max_bytes: USAGE_FILE_MAX_BYTES, max_aside_bytes: USAGE_ASIDE_MAX_BYTES }
    }

    /// Files with other limits, in bytes.
    #[cfg(test)]
    fn with(path: &Path, max_bytes: u64, max_aside_bytes: u64) -> Files {
        Files { max_bytes, max_aside_bytes, ..Files::new(path) }
    }

    /// Appends records. Returns whether a file was put aside. What is whole there stays where this fails; the next record begins on a
    /// line of its own.
    ///
    /// # Errors
    /// Returns the system's error, or fails if the file is not the daemon's own.
    pub(crate) fn append(&self, records: &[&Record]) -> std::io::Result<bool> {
        let text = lines(records)?;
        let (mut file, bytes) = self.begin()?;
        let is_full = bytes >= self.max_bytes;
        if is_full {
            self.put_aside()?;
            file = self.begin()?.0;
        }
        file.write_all(&text)?;
        Ok(is_full)
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        let aside = (1..=USAGE_ASIDE_MAX).map(|number| self.aside(number)).take_while(|path| path.exists());
        let files = [self.path.clone()].into_iter().chain(aside);
        files.map(|path| path.metadata().map_or(0, |meta| meta.len())).sum()
    }

    /// Removes the file that was put aside longest ago. Returns its bytes; 0 = there is none.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn remove_oldest(&self) -> std::io::Result<u64> {
        let aside = (1..=USAGE_ASIDE_MAX).map(|number| self.aside(number)).take_while(|path| path.exists());
        let Some(oldest) = aside.last() else { return Ok(0) };
        let bytes = oldest.metadata()?.len();
        std::fs::remove_file(oldest)?;
        Ok(bytes)
    }

    /// Opens the file to go on after what it holds.
    fn begin(&self) -> std::io::Result<(File, u64)> {
        if let Some(folder) = self.path.parent() {
            std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        }
        let mut options = OpenOptions::new();
        let mut file = own(options.read(true).append(true).create(true).mode(0o600), &self.path)?;
        let bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last != *b"\n" {
            // A daemon was killed while it wrote.
            file.write_all(b"\n")?;
        }
        Ok((file, bytes))
    }

    fn put_aside(&self) -> std::io::Result<()> {
        let there = (1..USAGE_ASIDE_MAX).find(|number| !self.aside(*number).exists()).unwrap_or(USAGE_ASIDE_MAX);
        for number in (1..=there).rev() {
            let from = if number == 1 { self.path.clone() } else { self.aside(number - 1) };
            std::fs::rename(from, self.aside(number))?;
        }
        self.make_hourly(&self.aside(1))?;
        let mut bytes = 0;
        for path in (1..=there).map(|number| self.aside(number)) {
            bytes += path.metadata().map_or(0, |meta| meta.len());
            if bytes > self.max_aside_bytes {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Makes the records of a program within an hour one. The file is whole at any time.
    fn make_hourly(&self, path: &Path) -> std::io::Result<()> {
        let mut merged: Vec<Record> = Vec::new();
        let mut places: HashMap<_, usize> = HashMap::new();
        read(path, 0, &mut |record: Record| {
            let hour = record.to_ms.saturating_sub(1) / HOUR_MS;
            let key = (record.identity.clone(), record.class, record.device.clone(), hour);
            match places.entry(key) {
                Entry::Occupied(place) => merged[*place.get()].merge(&record),
                Entry::Vacant(place) => {
                    place.insert(merged.len());
                    merged.push(record);
                }
            }
        })?;
        let fresh = path.with_extension("new");
        let mut options = OpenOptions::new();
        own(options.write(true).create(true).truncate(true).mode(0o600), &fresh)?
            .write_all(&lines(&Vec::from_iter(&merged))?)?;
        std::fs::rename(fresh, path)
    }

    fn aside(&self, number: usize) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(format!(".{number}"));
        path.into()
    }

    /// Calls for each record that ends after a time, in ms since 1970. Lines that are none are left out.
    ///
    /// # Errors
    /// Returns the system's error, or fails if a file is not the daemon's own.
    pub(crate) fn each(&self, since_ms: u64, mut take: impl FnMut(Record)) -> std::io::Result<()> {
        let aside = (1..=USAGE_ASIDE_MAX).map(|number| self.aside(number)).take_while(|path| path.exists());
        for path in [self.path.clone()].into_iter().chain(aside) {
            read(&path, since_ms, &mut take)?;
        }
        Ok(())
    }
}

fn lines(records: &[&Record]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for record in records {
        serde_json::to_writer(&mut text, record)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Calls for each record of a file that ends after a time.
fn read(path: &Path, since_ms: u64, take: &mut impl FnMut(Record)) -> std::io::Result<()> {
    let file = match own(OpenOptions::new().read(true), path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let changed = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    if u64::try_from(changed.as_millis()).unwrap_or(u64::MAX) < since_ms {
        return Ok(());
    }
    let mut lines = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    while (&mut lines).take(USAGE_LINE_MAX_BYTES).read_until(b'\n', &mut line)? > 0 {
        if let Ok(record) = serde_json::from_slice::<Record>(&line)
            && record.to_ms > since_ms
        {
            take(record);
        }
        line.clear();
    }
    Ok(())
}

/// Opens a file that must be the daemon's own: others could have it believe what it never recorded.
fn own(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(std::io::Error::other(format!("{} is not a file of the daemon's user", path.display())));
    }
    Ok(file)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use xsched_proto::class::Class;

    use super::super::Identity;
    use super::*;

    pub(crate) fn record(n: u64) -> Record {
        let identity = Identity {
            pid: 7,
            start: 1,
            user: "1000".into(),
            job: None,
            program: "train.py".into(),
            container: None,
            pod: None,
            container_name: None,
            pod_name: None,
            namespace: None,
        };
        Record {
            from_ms: n,
            to_ms: n + 1,
            identity: Arc::new(identity),
            class: Class::Low,
            device: "sim:0".into(),
            gpu_ns: n,
            by_driver_ns: 0,
            at_most_ns: 0,
            resident_ns: n,
            memory_kib_s: 0,
            host_kib_s: 0,
        }
    }

    fn numbers(files: &Files, since_ms: u64) -> Vec<u64> {
        let mut found = Vec::new();
        files.each(since_ms, |r| found.push(r.gpu_ns)).unwrap();
        found
    }

    #[test]
    fn records_outlive_the_one_who_wrote_them_and_a_line_cut_short_costs_itself_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/usage.jsonl");
        Files::new(&path).append(&[&record(1), &record(2)]).unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"from_ms\":3,\"to_m");
        std::fs::write(&path, &text).unwrap();
        let files = Files::new(&path);
        files.append(&[&record(4)]).unwrap();
        files.append(&[&record(5)]).unwrap();
        assert_eq!(numbers(&files, 0), [1, 2, 4, 5]);
        assert_eq!(numbers(&files, 2), [2, 4, 5], "it ended at 3");
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn files_are_put_aside_by_the_hour_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::with(&folder.path().join("usage.jsonl"), 20_000, 2_000);
        for n in 0..5_000 {
            files.append(&[&Record { to_ms: n * HOUR_MS / 100 + 1, ..record(1) }]).unwrap();
        }
        let (mut sum, mut last, mut hours) = (0, 0, std::collections::BTreeSet::new());
        files
            .each(0, |r| {
                sum += r.gpu_ns;
                last = last.max(r.to_ms);
                hours.insert(r.to_ms / HOUR_MS);
            })
            .unwrap();
        assert_eq!(last, 4_999 * HOUR_MS / 100 + 1);
        // Some of 50 hours are gone; the others are complete but for the first.
        assert!((3..20).contains(&hours.len()), "{hours:?}");
        assert!(sum > 100 * (hours.len() as u64 - 2) && sum <= 100 * hours.len() as u64, "{sum} in {hours:?}");
        let bytes: u64 = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes < 24_000, "{bytes}");
    }

    #[test]
    fn what_is_not_the_daemons_own_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        Files::new(&file).append(&[&record(1)]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(Files::new(&link).append(&[&record(2)]).is_err());
        assert!(Files::new(&link).each(0, |_| ()).is_err());
        assert_eq!(numbers(&Files::new(&file), 0), [1]);
    }
}
