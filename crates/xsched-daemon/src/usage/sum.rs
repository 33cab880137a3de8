//! Adds records up.

use std::collections::{BTreeMap, HashSet};

use xsched_proto::usage::{UsageBy, UsageRow};

use super::folder::Folder;
use super::{Query, Record};
use crate::Error;
use crate::tuning::USAGE_ROWS_MAX;

/// Answer to a query: a row for each key, that with the most device time first. Past [`USAGE_ROWS_MAX`] the rest is one row, `others`.
///
/// # Errors
/// Fails if the records cannot be read.
pub(crate) fn rows(files: &Folder, query: &Query) -> Result<Vec<UsageRow>, Error> {
    let mut sums = Sums::default();
    let may = |record: &Record| query.of_user.as_ref().is_none_or(|user| *user == record.identity.user);
    let read = files.each(query.of_user.as_deref(), query.since_ms, |record| {
        if may(&record) {
            sums.add(query.by, &record);
        }
    });
    read.map_err(|e| Error::environment(format!("the records of usage cannot be read: {e}")))?;
    Ok(sums.rows())
}

#[derive(Default)]
struct Sums {
    rows: BTreeMap<Option<String>, UsageRow>,
    /// Processes that were counted, by the row.
    seen: HashSet<(Option<String>, u32, u64)>,
}

impl Sums {
    fn add(&mut self, by: UsageBy, record: &Record) {
        let identity = &record.identity;
        let key = match by {
            UsageBy::User => Some(identity.user.clone()),
            UsageBy::Job => identity.job.clone(),
            UsageBy::Program => Some(identity.program.clone()),
            UsageBy::Class => Some(record.class.name().to_owned()),
            UsageBy::Device => Some(record.device.clone()),
        };
        let row = self.rows.entry(key.clone()).or_insert_with(|| UsageRow { key: key.clone(), ..UsageRow::default() });
        row.gpu_ns = row.gpu_ns.saturating_add(record.gpu_ns);
        row.by_driver_ns = row.by_driver_ns.saturating_add(record.by_driver_ns);
        row.at_most_ns = row.at_most_ns.saturating_add(record.at_most_ns);
        row.resident_ns = row.resident_ns.saturating_add(record.resident_ns);
        row.memory_kib_s = row.memory_kib_s.saturating_add(record.memory_kib_s);
        row.host_kib_s = row.host_kib_s.saturating_add(record.host_kib_s);
        row.programs += u64::from(self.seen.insert((key, identity.pid, identity.start)));
    }

    fn rows(self) -> Vec<UsageRow> {
        let mut rows: Vec<UsageRow> = self.rows.into_values().collect();
        rows.sort_by(|a, b| b.gpu_ns.cmp(&a.gpu_ns).then_with(|| a.key.cmp(&b.key)));
        if rows.len() > USAGE_ROWS_MAX {
            let mut others = UsageRow { key: Some("others".into()), ..UsageRow::default() };
            for row in rows.drain(USAGE_ROWS_MAX..) {
                others.gpu_ns = others.gpu_ns.saturating_add(row.gpu_ns);
                others.by_driver_ns = others.by_driver_ns.saturating_add(row.by_driver_ns);
                others.at_most_ns = others.at_most_ns.saturating_add(row.at_most_ns);
                others.resident_ns = others.resident_ns.saturating_add(row.resident_ns);
                others.memory_kib_s = others.memory_kib_s.saturating_add(row.memory_kib_s);
                others.host_kib_s = others.host_kib_s.saturating_add(row.host_kib_s);
                others.programs += row.programs;
            }
            rows.push(others);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xsched_proto::class::Class;

    use super::super::Identity;
    use super::*;

    fn record(user: &str, pid: u32, program: &str, job: Option<&str>, device: &str, gpu_ns: u64) -> Record {
        let identity = Identity {
            pid,
            start: 1,
            user: user.into(),
            job: job.map(str::to_owned),
            program: program.into(),
            container: None,
            pod: None,
            container_name: None,
            pod_name: None,
            namespace: None,
        };
        Record {
            from_ms: 10,
            to_ms: 20,
            identity: Arc::new(identity),
            class: Class::Low,
            device: device.into(),
            gpu_ns,
            by_driver_ns: gpu_ns / 2,
            at_most_ns: gpu_ns / 4,
            resident_ns: 2 * gpu_ns,
            memory_kib_s: 3 * gpu_ns,
            host_kib_s: 5 * gpu_ns,
        }
    }

    #[test]
    fn records_are_added_up_by_what_is_asked_and_a_user_is_told_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Folder::new(&folder.path().join("usage"));
        let records = [
            record("1000", 1, "a.py", None, "sim:0", 100),
            record("1000", 1, "a.py", None, "sim:1", 200),
            record("1000", 2, "b.py", Some("j"), "sim:0", 400),
            record("1001", 3, "a.py", Some("j"), "sim:0", 800),
        ];
        files.append(&records).unwrap();
        let ask = |by, of_user: Option<&str>| {
            let query = Query { conn: 1, of_user: of_user.map(str::to_owned), since_ms: 0, by };
            let rows = rows(&files, &query).unwrap();
            assert!(rows.iter().all(|row| [row.memory_kib_s, row.host_kib_s] == [3 * row.gpu_ns, 5 * row.gpu_ns]));
            rows.into_iter().map(|r| (r.key.unwrap_or("-".into()), r.gpu_ns, r.programs)).collect::<Vec<_>>()
        };
        let row = |key: &str, ns, programs| (key.to_owned(), ns, programs);
        assert_eq!(ask(UsageBy::User, None), [row("1001", 800, 1), row("1000", 700, 2)]);
        assert_eq!(ask(UsageBy::Program, None), [row("a.py", 1_100, 2), row("b.py", 400, 1)]);
        assert_eq!(ask(UsageBy::Job, None), [row("j", 1_200, 2), row("-", 300, 1)]);
        assert_eq!(ask(UsageBy::Device, Some("1000")), [row("sim:0", 500, 2), row("sim:1", 200, 1)]);
        assert_eq!(ask(UsageBy::Class, Some("1001")), [row("low", 800, 1)]);
    }

    #[test]
    fn very_many_rows_end_in_one_for_the_rest() {
        let mut sums = Sums::default();
        for n in 0..USAGE_ROWS_MAX as u32 + 10 {
            sums.add(UsageBy::Program, &record("1", n, &format!("p{n}"), None, "sim:0", 4_000 - u64::from(n)));
        }
        let rows = sums.rows();
        assert_eq!((rows.len(), rows.last().unwrap().programs), (USAGE_ROWS_MAX + 1, 10));
    }
}
