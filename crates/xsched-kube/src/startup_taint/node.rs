//! The part of a `Node` of the API that is used here: its taints, and whether it is shutting down.

use serde::{Deserialize, Serialize};

/// The taint's key.
pub const KEY: &str = "xsched.dev/not-ready";
/// Effect with which the taint is set: no new pod is placed on the node, and pods that are there stay. `NoExecute`
/// would evict all of them each time, including those that need no class.
pub const EFFECT: &str = "NoSchedule";
/// Effect that keeps no pod away.
const SOFT: &str = "PreferNoSchedule";
/// Beginning of the kubelet's message while the node's system shuts down, for which there is no condition.
const SHUTS_DOWN: &str = "node is shutting down";

/// A node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata of the node.
    pub metadata: Metadata,
    spec: Spec,
    status: Status,
}

/// Metadata of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Version of the object, which a patch can name to change this version only.
    pub resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    /// List of taints. The API leaves out an empty list.
    taints: Option<Vec<Taint>>,
}

/// A taint, with all further members that others have written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    key: String,
    #[serde(default)]
    effect: String,
    #[serde(flatten)]
    more: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: String,
}

impl Node {
    /// List of the node's taints with ours added or removed; `None` if nothing has to change.
    pub fn taints_with(&self, is_wanted: bool) -> Option<Vec<Taint>> {
        let all = self.spec.taints.as_deref().unwrap_or_default();
        let is_ours = |taint: &&Taint| taint.key == KEY;
        if is_wanted {
            let is_there = all.iter().filter(is_ours).any(|taint| taint.effect != SOFT);
            let ours = Taint { key: KEY.to_owned(), effect: EFFECT.to_owned(), more: serde_json::Map::new() };
            return (!is_there).then(|| [all, &[ours]].concat());
        }
        // Effect and value do not matter: the cluster may create nodes with other ones.
        all.iter().any(|taint| taint.key == KEY).then(|| all.iter().filter(|taint| !is_ours(taint)).cloned().collect())
    }

    /// Reports whether the node's system is shutting down, by the kubelet's message.
    pub fn shuts_down(&self) -> bool {
        let is_it = |condition: &Condition| {
            condition.kind == "Ready" && condition.status != "True" && condition.message.contains(SHUTS_DOWN)
        };
        self.status.conditions.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}})).unwrap()
    }

    fn changed(taints: Value, is_wanted: bool) -> Option<Value> {
        node(taints).taints_with(is_wanted).map(|taints| serde_json::to_value(taints).unwrap())
    }

    #[test]
    fn taints_of_others_are_kept_as_they_are() {
        let other = json!({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
        let ours = json!({"key": "xsched.dev/not-ready", "effect": "NoSchedule"});
        let made = json!({"key": "xsched.dev/not-ready", "value": "x", "effect": "NoExecute"});
        assert_eq!(changed(json!([other]), true), Some(json!([other, ours])));
        assert_eq!(changed(json!(null), true), Some(json!([ours])));
        assert_eq!(changed(json!([made, other]), true), None);
        assert_eq!(changed(json!([ours, other, made]), false), Some(json!([other])));
        assert_eq!(changed(json!([ours]), false), Some(json!([])));
        assert_eq!(changed(json!([other]), false), None);
        // A taint that keeps no pod away does not count as set.
        let soft = json!({"key": "xsched.dev/not-ready", "effect": "PreferNoSchedule"});
        assert_eq!(changed(json!([soft]), true), Some(json!([soft, ours])));
    }

    #[test]
    fn a_node_that_shuts_down_is_known_by_the_kubelets_message() {
        for (status, message, so) in [
            ("False", "node is shutting down", true),
            ("False", "[container runtime is down, node is shutting down]", true),
            ("False", "container runtime is down", false),
            ("True", "kubelet is posting ready status", false),
        ] {
            let condition = json!({"type": "Ready", "status": status, "message": message});
            let node: Node = serde_json::from_value(json!({"status": {"conditions": [condition]}})).unwrap();
            assert_eq!(node.shuts_down(), so, "{status} {message}");
        }
    }
}
