//! Facts about a container from its runtime (the state on standard input, `config.json` in the bundle) and from its engine (names, in
//! annotations or in files of the engine's).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// State that a runtime passes to each hook.
#[derive(Debug, Default, Deserialize)]
pub(super) struct State {
    pub(super) id: String,
    #[serde(default)]
    pub(super) bundle: PathBuf,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Part of a bundle's `config.json` that matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Bundle {
    root: RootOf,
    pub(super) process: ProcessOf,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RootOf {
    path: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessOf {
    pub(super) args: Vec<String>,
    env: Vec<String>,
}

impl ProcessOf {
    /// Variable of the container's environment.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Names of a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) name: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) pod_uid: Option<String>,
}

impl Bundle {
    pub(super) fn read(state: &State) -> Result<Bundle, String> {
        let path = state.bundle.join("config.json");
        json(&path).ok_or_else(|| format!("its configuration, {}, cannot be read", path.display()))
    }

    /// Root of the container's file system.
    pub(super) fn root(&self, state: &State) -> PathBuf {
        state.bundle.join(&self.root.path)
    }

    pub(super) fn names(&self, state: &State) -> Names {
        let said = |keys: &[&str]| {
            let of = |key: &str| state.annotations.get(key).or_else(|| self.annotations.get(key));
            keys.iter().find_map(|key| of(key)).filter(|name| !name.is_empty()).cloned()
        };
        // Annotations of containerd, CRI-O and nerdctl.
        Names {
            name: said(&["io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name"])
                .or_else(|| of_podman(state))
                .or_else(|| of_docker(&state.id)),
            pod: said(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]),
            namespace: said(&["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"]),
            pod_uid: said(&["io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"]),
        }
    }
}

/// Files in which Podman keeps its containers' names, two folders above a bundle. Newer versions (5.4 does, 4.3 does not;
/// google/cadvisor#3684) keep those of containers that are removed when they end (`--rm`) in the second one.
const OF_PODMAN: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Name of a container in Podman's files.
fn of_podman(state: &State) -> Option<String> {
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        names: Vec<String>,
    }
    let storage = state.bundle.parent()?.parent()?;
    let mut all = OF_PODMAN.iter().filter_map(|file| json::<Vec<Entry>>(&storage.join(file))).flatten();
    all.find(|entry| entry.id == state.id)?.names.into_iter().next()
}

/// Name of a container in Docker's file for it.
fn of_docker(id: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(rename = "Name")]
        name: String,
    }
    let entry: Entry = json(&Path::new("/var/lib/docker/containers").join(id).join("config.v2.json"))?;
    Some(entry.name.trim_start_matches('/').to_owned())
}

fn json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_annotations_or_of_the_engines_files() {
        let storage = tempfile::tempdir().unwrap();
        let bundle = storage.path().join("ab12/userdata");
        std::fs::create_dir_all(&bundle).unwrap();
        std::fs::write(
            storage.path().join("containers.json"),
            r#"[{"id": "cd34", "names": ["other"]}, {"id": "ab12", "names": ["web", "alias"], "layer": "x"}]"#,
        )
        .unwrap();
        let state: State = serde_json::from_str(&format!(
            r#"{{"ociVersion": "1.0.2", "id": "ab12", "status": "created", "pid": 1, "bundle": "{}"}}"#,
            bundle.display()
        ))
        .unwrap();
        let config = |text: &str| {
            std::fs::write(bundle.join("config.json"), text).unwrap();
            Bundle::read(&state).unwrap()
        };
        let plain = config(r#"{"root": {"path": "rootfs"}, "process": {"args": ["sh"], "env": ["PATH=/bin", "A=b"]}}"#);
        assert_eq!(plain.names(&state), Names { name: Some("web".into()), ..Names::default() });
        assert_eq!(plain.root(&state), bundle.join("rootfs"));
        assert_eq!((plain.process.variable("A"), plain.process.variable("PAT")), (Some("b"), None));
        let removed_at_its_end = storage.path().join("volatile-containers.json");
        std::fs::rename(storage.path().join("containers.json"), &removed_at_its_end).unwrap();
        assert_eq!(plain.names(&state), Names { name: Some("web".into()), ..Names::default() });
        let pod = config(
            r#"{"root": {"path": "/abs"}, "annotations": {"io.kubernetes.cri.container-name": "train",
                "io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.sandbox-namespace": "team-a",
                "io.kubernetes.cri.sandbox-uid": "6b8f1c1e"}}"#,
        );
        let [name, pod_name, namespace, pod_uid] =
            ["train", "train-0", "team-a", "6b8f1c1e"].map(|text| Some(text.to_owned()));
        let expected = Names { name, pod: pod_name, namespace, pod_uid };
        assert_eq!(pod.names(&state), expected);
        assert_eq!(pod.root(&state), Path::new("/abs"));
    }
}
