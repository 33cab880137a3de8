//! The bill of materials: CycloneDX 1.5 in JSON, of the crates compiled into the command and its libraries, from `cargo metadata` and
//! `Cargo.lock`. Equal checkouts give equal bills.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Target of all builds.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Bill of materials for these packages of the workspace.
pub(crate) fn of(root: &Path, packages: &[&str], version: &str, epoch: u64) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET]).current_dir(root);
    let output = command.output().map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let lock = root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let bill = bill(&metadata, &checksums(&lock), packages, version, epoch)?;
    Ok(format!("{bill:#}\n"))
}

/// SHA-256 of each crate from a registry, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |part: &str, name: &str| {
        let line = part.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let entry = |part: &str| Some(((field(part, "name")?, field(part, "version")?), field(part, "checksum")?));
    lock.split("[[package]]").filter_map(entry).collect()
}

fn bill(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    packages: &[&str],
    version: &str,
    epoch: u64,
) -> Result<Value, String> {
    let empty = Vec::new();
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let by_id: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    // Only linked packages count: build scripts and tests are left out.
    let linked = |node: &Value| -> Vec<String> {
        let is_normal = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let id = |dep: &Value| dep["pkg"].as_str().map(str::to_owned);
        list(&node["deps"]).iter().filter(|dep| is_normal(dep)).filter_map(id).collect()
    };
    let needs: BTreeMap<&str, Vec<String>> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, linked(node))))
        .collect();
    let mut begin = Vec::new();
    for name in packages {
        let found = by_id.iter().find(|(_, package)| package["name"] == *name && package["source"].is_null());
        begin.push(found.map(|(id, _)| (*id).to_owned()).ok_or_else(|| format!("there is no package {name}"))?);
    }
    let (mut found, mut open) = (BTreeSet::new(), VecDeque::from(begin.clone()));
    while let Some(id) = open.pop_front() {
        if found.insert(id.clone()) {
            open.extend(needs.get(id.as_str()).into_iter().flatten().cloned());
        }
    }
    let text = |package: &Value, field: &str| package[field].as_str().unwrap_or("").to_owned();
    let name = |id: &str| {
        let package = by_id.get(id).copied().unwrap_or(&Value::Null);
        format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
    };
    let component = |id: &String| {
        let package = by_id.get(id.as_str()).copied().unwrap_or(&Value::Null);
        let key = (text(package, "name"), text(package, "version"));
        let mut component =
            json!({ "type": "library", "bom-ref": name(id), "name": key.0, "version": key.1, "purl": name(id) });
        if let Some(licence) = package["license"].as_str() {
            // Older crates write MIT/Apache-2.0, which is no expression of SPDX.
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(sum) = checksums.get(&key) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let own = format!("pkg:generic/xsched@{version}");
    let depends = |id: &String| {
        let on: BTreeSet<String> = needs.get(id.as_str()).into_iter().flatten().map(|id| name(id)).collect();
        json!({ "ref": name(id), "dependsOn": on })
    };
    let mut dependencies =
        vec![json!({ "ref": own, "dependsOn": begin.iter().map(|id| name(id)).collect::<BTreeSet<_>>() })];
    dependencies.extend(found.iter().map(depends));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time(epoch),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "xsched",
                "version": version,
                "licenses": [{ "license": { "id": "Apache-2.0" } }],
                "purl": own,
            },
        },
        "components": found.iter().map(component).collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

/// Seconds since 1970, in the form of ISO 8601.
pub(crate) fn time(epoch: u64) -> String {
    let (days, rest) = (epoch / 86_400, epoch % 86_400);
    // Days are counted from 1 March of the year 0, so that a leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(time(1_764_000_000), "2025-11-24T16:00:00Z");
    }

    #[test]
    fn the_bill_has_what_is_linked_with_licence_and_hash_and_no_build_dependency() {
        let dep = |pkg: &str, kind: Value| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
        let registry = "registry+https://example";
        let metadata = json!({
            "packages": [
                { "id": "a", "name": "xsched-cli", "version": "0.1.0", "license": "Apache-2.0", "source": null },
                { "id": "b", "name": "libc", "version": "0.2.1", "license": "MIT/Apache-2.0", "source": registry },
                { "id": "c", "name": "cc", "version": "1.0.0", "license": "MIT", "source": registry },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [dep("b", Value::Null), dep("c", json!("build"))] },
                { "id": "b", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"x\"\nversion = \"1\"\n";
        let bill = bill(&metadata, &checksums(lock), &["xsched-cli"], "0.1.0", 0).unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["xsched-cli", "libc"]);
        let libc = &bill["components"][1];
        assert_eq!(libc["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(libc["hashes"][0]["content"], "ab");
        assert_eq!(bill["dependencies"][1]["dependsOn"], json!(["pkg:cargo/libc@0.2.1"]));
    }
}
