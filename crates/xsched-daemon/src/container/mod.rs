//! Which container a process is in, as its cgroup's path tells, and what is known of it.

pub mod record;

use crate::glob::glob;

/// Digits of a container's id that are enough to name it.
const SHORT_ID: usize = 12;

/// The names of the containers around a process, the outermost first: ids of Docker, containerd, CRI-O and Podman, uids of
/// Kubernetes pods, names of LXC containers and systemd-nspawn machines.
fn names(cgroup: &str) -> impl Iterator<Item = String> {
    cgroup.split('/').filter_map(name)
}

/// The name of the innermost container around a process.
pub(crate) fn innermost(cgroup: &str) -> Option<String> {
    names(cgroup).last()
}

/// The uid of the Kubernetes pod that a process is in.
pub(crate) fn pod(cgroup: &str) -> Option<String> {
    names(cgroup).find(|name| name.len() == 36 && cgroup.contains("pod") && !is_id(name))
}

fn name(part: &str) -> Option<String> {
    let scope = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".slice")).unwrap_or(part);
    for prefix in ["docker-", "cri-containerd-", "crio-", "libpod-", "containerd-"] {
        if let Some(id) = scope.strip_prefix(prefix).filter(|id| is_id(id)) {
            return Some(id.to_owned());
        }
    }
    if let Some(name) = scope.strip_prefix("lxc.payload.").or_else(|| scope.strip_prefix("machine-")) {
        return Some(name.to_owned());
    }
    // kubepods-burstable-pod<uid>.slice, with _ for -; or pod<uid>.
    if let Some((_, uid)) = scope.rsplit_once("-pod").or_else(|| scope.split_once("pod").filter(|(s, _)| s.is_empty()))
    {
        let uid = uid.replace('_', "-");
        let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
        if digits == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
            return Some(uid);
        }
    }
    is_id(scope).then(|| scope.to_owned())
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a process of this cgroup is in a container that `pattern` names.
pub(crate) fn matches(pattern: &str, cgroup: &str) -> bool {
    let short = pattern.len() >= SHORT_ID && pattern.bytes().all(|b| b.is_ascii_hexdigit());
    names(cgroup).any(|name| glob(pattern, &name) || short && is_id(&name) && name.starts_with(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_cgroup() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let uid = "6b8f1c1e-8a5e-4d0a-9d7e-1f2a3b4c5d6e";
        let kube =
            format!("/kubepods.slice/kubepods-burstable-pod{}.slice/cri-containerd-{id}.scope", uid.replace('-', "_"));
        for (cgroup, pattern, is) in [
            (format!("/system.slice/docker-{id}.scope"), id, true),
            (format!("/system.slice/docker-{id}.scope"), "0123456789ab", true),
            (format!("/system.slice/docker-{id}.scope"), "0123456789a", false),
            (format!("/docker/{id}"), "*", true),
            (format!("/machine.slice/libpod-{id}.scope/container"), "0123456789abcdef", true),
            (kube.clone(), uid, true),
            (kube.clone(), "0123456789ab", true),
            (format!("/kubepods/besteffort/pod{uid}/{id}"), "6b8f1c1e*", true),
            ("/lxc.payload.web1".into(), "web*", true),
            ("/machine.slice/machine-build.scope".into(), "build", true),
            ("/user.slice/user-1000.slice/session-3.scope".into(), "*", false),
            ("/system.slice/podman.service".into(), "*", false),
            (String::new(), "*", false),
        ] {
            assert_eq!(matches(pattern, &cgroup), is, "{cgroup} {pattern}");
        }
    }
}
