//! Container of a process, as its cgroup's path names it, and the facts about the container.

pub mod record;

use std::path::{Path, PathBuf};

use crate::config::glob::glob;
use crate::identity::User;
use record::Record;
use xsched_proto::class::Class;

/// Number of first digits of a container's id that are enough to name it.
const SHORT_ID: usize = 12;

/// Place of a process: its cgroup, and its container if it is in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cgroup: String,
    record: Option<Record>,
    /// True if the record is of root or of the daemon's user, and so not another user's wish.
    is_trusted: bool,
}

impl Place {
    /// Finds the place of a process with these lines of `/proc/PID/cgroup`. Records are searched in `folder`, then in that of the user.
    pub(crate) fn of(lines: &str, folder: &Path, user: User) -> Place {
        Place::in_folders(cgroup(lines), &[folder.to_owned(), record::folder_of_user(user.uid)], user)
    }

    fn in_folders(cgroup: &str, folders: &[PathBuf], user: User) -> Place {
        // Only a record of root, of the daemon's own user, or of the process's user counts: root and the daemon's user cannot be lied to by
        // records of others.
        let is_trusted = |owner: u32| owner == 0 || owner == rustix::process::geteuid().as_raw();
        let known = names(cgroup).filter(|name| is_id(name)).collect::<Vec<_>>().into_iter().rev();
        let found = known.flat_map(|id| folders.iter().filter_map(move |folder| Record::read(folder, &id).ok()));
        let found = found.into_iter().find(|(_, owner)| is_trusted(*owner) || *owner == user.uid);
        let is_trusted = found.as_ref().is_some_and(|(_, owner)| is_trusted(*owner));
        Place { cgroup: cgroup.to_owned(), record: found.map(|(record, _)| record), is_trusted }
    }

    #[cfg(test)]
    pub(crate) fn at(cgroup: &str) -> Place {
        Place { cgroup: cgroup.to_owned(), ..Place::default() }
    }

    /// Id or name of the innermost container.
    pub(crate) fn container(&self) -> Option<String> {
        innermost(&self.cgroup)
    }

    /// Name of the container at its engine.
    pub(crate) fn name(&self) -> Option<&str> {
        self.record.as_ref()?.name.as_deref()
    }

    /// Name of its Kubernetes pod.
    pub(crate) fn pod(&self) -> Option<&str> {
        self.record.as_ref()?.pod.as_deref()
    }

    /// Namespace of its Kubernetes pod.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.record.as_ref()?.namespace.as_deref()
    }

    /// Namespace of the pod, as given by root or the daemon's user.
    pub(crate) fn trusted_namespace(&self) -> Option<&str> {
        self.trusted()?.namespace.as_deref()
    }

    /// Uid of its Kubernetes pod: by the cgroup, or as root or the daemon's user has recorded it. Not every runtime has the uid in the paths
    /// of cgroups.
    pub(crate) fn pod_uid(&self) -> Option<String> {
        pod(&self.cgroup).or_else(|| self.trusted()?.pod_uid.clone())
    }

    /// Name that the programs of one pod have in common, and no others: its uid; without one, namespace and name in a trusted record.
    pub(crate) fn pod_key(&self) -> Option<String> {
        self.pod_uid().or_else(|| {
            let record = self.trusted()?;
            Some(format!("{}/{}", record.namespace.as_deref()?, record.pod.as_deref()?))
        })
    }

    /// Class that its container was made with, by root or the daemon's user.
    pub(crate) fn class(&self) -> Option<Class> {
        self.trusted()?.class
    }

    /// Reports whether a rule's pattern matches the container by id, name or pod's uid.
    pub(crate) fn is_in(&self, pattern: &str) -> bool {
        matches(pattern, &self.cgroup) || self.is_named(pattern, |record| &record.name)
    }

    /// Reports whether a rule's pattern matches the pod by its name.
    pub(crate) fn is_in_pod(&self, pattern: &str) -> bool {
        self.is_named(pattern, |record| &record.pod)
    }

    /// Reports whether a rule's pattern matches the pod's namespace.
    pub(crate) fn is_in_namespace(&self, pattern: &str) -> bool {
        self.is_named(pattern, |record| &record.namespace)
    }

    /// Reports whether a pattern matches a name in a trusted record. Users name their own containers as they like: such names are shown,
    /// but no rule applies by them.
    fn is_named(&self, pattern: &str, name: fn(&Record) -> &Option<String>) -> bool {
        self.trusted().and_then(|record| name(record).as_deref()).is_some_and(|name| glob(pattern, name))
    }

    fn trusted(&self) -> Option<&Record> {
        self.record.as_ref().filter(|_| self.is_trusted)
    }
}

/// Cgroup of a process among those of `/proc/PID/cgroup`: that of version 2, unless only another hierarchy names the container, as where
/// version 1 is still in use, alone or beside it.
fn cgroup(lines: &str) -> &str {
    let all = || lines.lines().filter_map(|line| line.splitn(3, ':').collect::<Vec<_>>().try_into().ok());
    let second = all().find(|[number, _, _]: &[&str; 3]| *number == "0").map(|[_, _, path]| path);
    let of_systemd = || all().find(|[_, what, _]: &[&str; 3]| *what == "name=systemd").map(|[_, _, path]| path);
    let telling = || all().map(|[_, _, path]: [&str; 3]| path).find(|path| innermost(path).is_some());
    let told = second.filter(|path| innermost(path).is_some()).or_else(telling);
    told.or(second).or_else(of_systemd).unwrap_or("")
}

/// Names of the containers around a process, the outermost first: ids of Docker, containerd, CRI-O and Podman, uids of Kubernetes pods,
/// names of LXC containers and systemd-nspawn machines.
fn names(cgroup: &str) -> impl Iterator<Item = String> {
    cgroup.split('/').filter_map(name)
}

/// Name of the innermost container around a process.
fn innermost(cgroup: &str) -> Option<String> {
    names(cgroup).last()
}

/// Uid of the Kubernetes pod that a process is in.
fn pod(cgroup: &str) -> Option<String> {
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
    // Two forms: kubepods-burstable-pod<uid>.slice, with _ for -; or pod<uid>.
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

/// Reports whether a process of this cgroup is in a container that `pattern` names.
fn matches(pattern: &str, cgroup: &str) -> bool {
    let short = pattern.len() >= SHORT_ID && pattern.bytes().all(|b| b.is_ascii_hexdigit());
    names(cgroup).any(|name| glob(pattern, &name) || short && is_id(&name) && name.starts_with(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_cgroup_that_tells_the_container_counts_in_any_hierarchy() {
        let podman = format!("/libpod_parent/libpod-{ID}");
        let docker = format!("/docker/{ID}");
        for (lines, expected) in [
            (format!("0::{podman}\n"), podman.as_str()),
            (format!("9:name=systemd:/\n4:memory:{docker}\n"), docker.as_str()),
            (format!("9:name=systemd:/\n4:cpu,cpuacct:{docker}\n0::/\n"), docker.as_str()),
            (format!("9:name=systemd:{docker}\n0::/libpod_parent/libpod-{}\n", ID.replace('0', "f")), ""),
            ("9:name=systemd:/user.slice\n4:memory:/\n".to_owned(), "/user.slice"),
            ("9:name=systemd:/user.slice\n0::/init.scope\n".to_owned(), "/init.scope"),
            ("nonsense\n0::/a:b\n".to_owned(), "/a:b"),
            (String::new(), ""),
        ] {
            let found = cgroup(&lines);
            match expected {
                "" if !lines.is_empty() => assert!(found.starts_with("/libpod_parent"), "version 2 first: {found}"),
                expected => assert_eq!(found, expected, "{lines}"),
            }
        }
    }

    #[test]
    fn names_of_a_users_own_containers_are_shown_and_no_rule_goes_by_them() {
        let (folder, own) = (tempfile::tempdir().unwrap(), rustix::process::geteuid().as_raw());
        let record = Record {
            id: ID.into(),
            name: Some("inference-1".into()),
            pod: Some("serve-0".into()),
            namespace: Some("team-a".into()),
            class: Some(Class::High),
            ..Record::default()
        };
        record.write(folder.path()).unwrap();
        let user = crate::identity::pretended(own);
        let place = Place::in_folders(&format!("/a/libpod-{ID}.scope/b"), &[folder.path().to_owned()], user);
        assert_eq!((place.container().as_deref(), place.name()), (Some(ID), Some("inference-1")));
        assert_eq!(
            (place.pod(), place.namespace(), place.class()),
            (Some("serve-0"), Some("team-a"), Some(Class::High))
        );
        let by_names =
            |place: &Place| [place.is_in("inference*"), place.is_in_pod("serve-*"), place.is_in_namespace("team-a")];
        assert_eq!(by_names(&place), [true; 3]);
        assert!(place.is_in(&ID[..12]) && !place.is_in("other") && !place.is_in_namespace("team-b"));
        assert_eq!((place.pod_uid(), place.pod_key().as_deref()), (None, Some("team-a/serve-0")));
        let theirs = Place { is_trusted: false, ..place };
        assert_eq!(theirs.pod_key(), None, "its user's own word");
        assert_eq!((theirs.name(), theirs.class(), by_names(&theirs)), (Some("inference-1"), None, [false; 3]));
        assert!(theirs.is_in(ID));
        assert_eq!(Place::in_folders("/", &[folder.path().to_owned()], user), Place::at("/"));
    }

    #[test]
    fn a_pod_is_known_by_its_uid_in_the_cgroup_or_in_the_record() {
        let (folder, own) = (tempfile::tempdir().unwrap(), rustix::process::geteuid().as_raw());
        let [uid, other] = ["6b8f1c1e-8a5e-4d0a-9d7e-1f2a3b4c5d6e", "00000000-8a5e-4d0a-9d7e-1f2a3b4c5d6e"];
        let of_pod = |pod_uid: Option<&str>| {
            let pod_uid = pod_uid.map(str::to_owned);
            let [pod, namespace] = ["p", "n"].map(|name| Some(name.to_owned()));
            Record { id: ID.into(), pod, namespace, pod_uid, ..Record::default() }.write(folder.path()).unwrap();
        };
        let key = |cgroup: &str| {
            let user = crate::identity::pretended(own);
            Place::in_folders(cgroup, &[folder.path().to_owned()], user).pod_key()
        };
        let [plain, named] = [format!("/k8s.io/{ID}"), format!("/kubepods/besteffort/pod{uid}/{ID}")];
        assert_eq!((key(&plain), key(&named).as_deref()), (None, Some(uid)), "without a record");
        of_pod(Some(other));
        assert_eq!((key(&plain).as_deref(), key(&named).as_deref()), (Some(other), Some(uid)));
        of_pod(None);
        assert_eq!((key(&plain).as_deref(), key(&named).as_deref()), (Some("n/p"), Some(uid)));
    }

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
