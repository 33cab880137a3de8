//! The node's CDI specification of this project's classes, written by `xsched cdi generate`. Its edits are applied
//! directly to a container whose runtime does not resolve the CDI devices of plugins.

use std::path::PathBuf;

use serde::Deserialize;
use xsched_proto::class::Class;

use crate::api::nri;
use crate::delivery::KIND;

/// Default folders that runtimes read. A file in a later folder takes precedence.
pub const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// Name of the specification's file.
const NAME: &str = "xsched.dev-class.json";

/// The folders of specifications.
#[derive(Clone, Debug)]
pub struct Cdi {
    /// The folders. Of two files, the one in the later folder counts.
    pub folders: Vec<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    kind: String,
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

/// Edits of a container. An unknown edit is an error: without it, a container would get only a part of what it needs.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Edits {
    env: Vec<String>,
    mounts: Vec<Mount>,
    hooks: Vec<Hook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Mount {
    host_path: String,
    container_path: String,
    #[serde(default)]
    options: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Hook {
    hook_name: HookName,
    path: String,
    #[serde(default)]
    args: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum HookName {
    CreateContainer,
    Poststop,
}

impl Cdi {
    /// Edits of a class, as an adjustment. Reads the file each time, since an upgrade replaces it.
    ///
    /// # Errors
    /// Reason in one line: there is no file, or it has edits that the runtime's interface cannot express.
    pub fn adjustment(&self, class: Class) -> Result<nri::ContainerAdjustment, String> {
        let files = self.folders.iter().rev().map(|folder| folder.join(NAME));
        let Some(file) = files.into_iter().find(|file| file.exists()) else {
            let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(format!("there is no {NAME} in {}; run `xsched cdi generate`", folders.join(" or ")));
        };
        let read = std::fs::read(&file).map_err(|e| e.to_string());
        let edits = read.and_then(|text| Specification::edits(&text, class));
        edits.map_err(|why| format!("{}: {why}; run `xsched cdi generate`", file.display()))
    }
}

impl Specification {
    fn edits(text: &[u8], class: Class) -> Result<nri::ContainerAdjustment, String> {
        let specification: Specification = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if specification.kind != KIND {
            return Err(format!("its kind is {}, and not {KIND}", specification.kind));
        }
        let device = specification.devices.into_iter().find(|device| device.name == class.name());
        let device = device.ok_or_else(|| format!("it has no device {class}"))?;
        let mut adjust = nri::ContainerAdjustment::default();
        let mut hooks = nri::Hooks::default();
        for edits in [specification.container_edits, device.container_edits] {
            for variable in edits.env {
                let (key, value) = variable.split_once('=').ok_or_else(|| format!("'{variable}' is no variable"))?;
                adjust.env.push(nri::KeyValue { key: key.to_owned(), value: value.to_owned() });
            }
            adjust.mounts.extend(edits.mounts.into_iter().map(|mount| nri::Mount {
                destination: mount.container_path,
                kind: "bind".to_owned(),
                source: mount.host_path,
                options: mount.options,
            }));
            for Hook { hook_name, path, args } in edits.hooks {
                let at = match hook_name {
                    HookName::CreateContainer => &mut hooks.create_container,
                    HookName::Poststop => &mut hooks.poststop,
                };
                at.push(nri::Hook { path, args });
            }
        }
        adjust.hooks = (hooks != nri::Hooks::default()).then_some(hooks);
        Ok(adjust)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(devices: &str) -> String {
        format!(r#"{{"cdiVersion": "0.3.0", "kind": "xsched.dev/class", "devices": [{devices}]}}"#)
    }

    #[test]
    fn the_file_of_the_later_folder_counts_and_one_that_is_missing_or_wrong_is_told() {
        let place = tempfile::tempdir().unwrap();
        let folders: Vec<PathBuf> = ["etc", "run"].map(|name| place.path().join(name)).to_vec();
        let write = |folder: usize, text: &str| {
            std::fs::create_dir_all(&folders[folder]).unwrap();
            std::fs::write(folders[folder].join(NAME), text).unwrap();
        };
        let cdi = Cdi { folders: folders.clone() };
        let error = cdi.adjustment(Class::Low).unwrap_err();
        assert!(error.starts_with("there is no xsched.dev-class.json in /"), "{error}");
        write(0, &of(r#"{"name": "low", "containerEdits": {"env": ["A=etc"]}}"#));
        assert_eq!(cdi.adjustment(Class::Low).unwrap().env[0].value, "etc");
        write(1, &of(r#"{"name": "low", "containerEdits": {"env": ["A=run=1"]}}"#));
        let adjust = cdi.adjustment(Class::Low).unwrap();
        assert_eq!((adjust.env[0].key.as_str(), adjust.env[0].value.as_str()), ("A", "run=1"));
        assert_eq!(adjust.hooks, None);
        for (text, why) in [
            (of(""), "it has no device low"),
            (of("").replace("class", "other"), "its kind is xsched.dev/other"),
            (of(r#"{"name": "low", "containerEdits": {"env": ["A"]}}"#), "'A' is no variable"),
            (of(r#"{"name": "low", "containerEdits": {"deviceNodes": []}}"#), "unknown field `deviceNodes`"),
            (
                of(r#"{"name": "low", "containerEdits": {"hooks": [{"hookName": "prestart", "path": "/x"}]}}"#),
                "unknown variant `prestart`",
            ),
        ] {
            write(1, &text);
            let error = cdi.adjustment(Class::Low).unwrap_err();
            assert!(error.contains(why) && error.ends_with("run `xsched cdi generate`"), "{error}");
        }
    }
}
