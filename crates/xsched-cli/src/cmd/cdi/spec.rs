//! Specification with a device for each class.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xsched_proto::class::Class;

/// Kind of device that a class is.
pub(super) const KIND: &str = "xsched.dev/class";
/// Oldest version of the interface that has all parts used here. Engines refuse a version that they do not know.
const VERSION: &str = "0.3.0";

/// Paths in a container.
pub(super) const LIBRARY: &str = "/usr/lib/xsched/libxsched.so";
const COMMAND: &str = "/usr/bin/xsched";
pub(super) const SOCKET_FOLDER: &str = "/run/xsched";

/// Paths outside of containers.
pub(super) struct Outside {
    pub(super) library: PathBuf,
    pub(super) command: PathBuf,
    pub(super) socket: PathBuf,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Specification {
    cdi_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) name: String,
    container_edits: Edits,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<Hook>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: String,
    options: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    hook_name: String,
    path: PathBuf,
    args: Vec<String>,
}

/// The specification of this machine.
///
/// `LD_PRELOAD` is not in it: that variable is the image's own, and the hook, which checks the image first, reports why an image is not
/// scheduled. The socket's folder is not in it either, since it may be missing: a mount without its source would keep the container from
/// starting, and the hook does not.
pub(super) fn of(outside: &Outside) -> Specification {
    let folder = outside.socket.parent().unwrap_or(Path::new("/"));
    let socket = outside.socket.file_name().unwrap_or_default().to_string_lossy();
    let hook = |name: &str, what: &[&str]| Hook {
        hook_name: name.to_owned(),
        path: outside.command.clone(),
        args: ["xsched", "cdi", "hook"]
            .iter()
            .chain(what)
            .map(ToString::to_string)
            .chain(["--socket-folder".to_owned(), folder.display().to_string()])
            .collect(),
    };
    let mount = |host_path: &Path, container_path: &str| Mount {
        host_path: host_path.to_owned(),
        container_path: container_path.to_owned(),
        options: ["ro", "nosuid", "nodev", "bind"].map(str::to_owned).to_vec(),
    };
    let device = |class: Class| Device {
        name: class.name().to_owned(),
        container_edits: Edits {
            env: vec![format!("XSCHED_PRIORITY={class}")],
            hooks: vec![hook("createContainer", &["--class", class.name()])],
            ..Edits::default()
        },
    };
    Specification {
        cdi_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        devices: Class::ALL.into_iter().rev().map(device).collect(),
        container_edits: Edits {
            env: vec![format!("XSCHED_SOCKET={SOCKET_FOLDER}/{socket}")],
            mounts: vec![mount(&outside.library, LIBRARY), mount(&outside.command, COMMAND)],
            hooks: vec![hook("poststop", &["--ended"])],
        },
    }
}

impl Specification {
    /// Reports whether it was made by [`of`], of whatever version.
    pub(super) fn is_ours(&self) -> bool {
        let is_our_hook = |hook: &Hook| hook.args.get(1..3).is_some_and(|words| words == ["cdi", "hook"]);
        self.kind == KIND && self.devices.iter().flat_map(|device| &device.container_edits.hooks).any(is_our_hook)
    }

    /// Text of the file.
    pub(super) fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Specification {
        of(&Outside {
            library: "/opt/lib/libxsched.so".into(),
            command: "/opt/bin/xsched".into(),
            socket: "/run/xsched/xsched.sock".into(),
        })
    }

    /// The requirements of the interface's specification, version 0.3.0, and no static preload.
    #[test]
    fn the_specification_is_one_of_the_interface() {
        let text = example().text();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), ["cdiVersion", "containerEdits", "devices", "kind"]);
        assert_eq!(value["kind"], "xsched.dev/class");
        let names: Vec<&str> =
            value["devices"].as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["system", "realtime", "high", "normal", "low"]);
        let edits = value["devices"].as_array().unwrap().iter().map(|device| &device["containerEdits"]);
        for edits in edits.chain([&value["containerEdits"]]) {
            assert!(!keys(edits).is_empty(), "an empty edit is refused");
            for variable in edits["env"].as_array().unwrap() {
                let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
                assert!(!value.is_empty() && name != "LD_PRELOAD");
            }
            for mount in edits["mounts"].as_array().into_iter().flatten() {
                assert_eq!(keys(mount), ["containerPath", "hostPath", "options"]);
                assert!(mount["hostPath"].as_str().unwrap().starts_with('/'));
            }
            for hook in edits["hooks"].as_array().unwrap() {
                assert_eq!(keys(hook), ["args", "hookName", "path"]);
                assert!(["createContainer", "poststop"].contains(&hook["hookName"].as_str().unwrap()));
                assert!(hook["path"].as_str().unwrap().starts_with('/'));
            }
        }
        assert!(serde_json::from_str::<Specification>(&text).unwrap().is_ours());
    }
}
