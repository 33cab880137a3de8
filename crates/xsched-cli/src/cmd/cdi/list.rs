//! `xsched cdi list`: records that hooks have kept of the present containers.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use xsched_daemon::container_record::{self, Record};
use xsched_proto::paths::{Origin, SYSTEM_SOCKET, socket_path};

use super::List;
use crate::failure::{Result, print, print_json};

/// Lists the machine's containers, and those of the requesting user.
pub(super) fn main(wanted: &List) -> Result {
    let socket = match socket_path(wanted.socket.clone()) {
        (named, Origin::Explicit) => named,
        _ => PathBuf::from(SYSTEM_SOCKET),
    };
    let shared = container_record::folder(socket.parent().unwrap_or(Path::new("/")));
    let own = container_record::folder_of_user(rustix::process::geteuid().as_raw());
    let records: Vec<Record> = [shared, own].iter().flat_map(|folder| of(folder)).collect();
    if wanted.json {
        return print_json(&json!({ "version": 1, "containers": records }));
    }
    print(&table(&records))
}

fn of(folder: &Path) -> Vec<Record> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let ids = entries.filter_map(|name| Some(name.to_str()?.strip_suffix(".json")?.to_owned()));
    let mut records: Vec<Record> = ids.filter_map(|id| Some(Record::read(folder, &id).ok()?.0)).collect();
    records.sort_by(|a, b| (&a.namespace, &a.pod, &a.name, &a.id).cmp(&(&b.namespace, &b.pod, &b.name, &b.id)));
    records
}

fn table(records: &[Record]) -> String {
    let mut text = format!("{:<12}  {:<24}  {:<9}  {}\n", "CONTAINER", "NAME", "CLASS", "PROGRAMS");
    for record in records {
        let names = [&record.namespace, &record.pod, &record.name].into_iter().flatten();
        let name = names.cloned().collect::<Vec<_>>().join("/");
        let class = record.class.map_or("-", |class| class.name());
        let why = record.unscheduled.as_deref().map_or("scheduled".to_owned(), |why| format!("not scheduled: {why}"));
        let id = record.id.get(..12).unwrap_or(&record.id);
        let _ = writeln!(text, "{id:<12}  {name:<24}  {class:<9}  {why}");
    }
    text
}
