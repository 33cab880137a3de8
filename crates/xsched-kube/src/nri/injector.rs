//! Decision which class a container gets, and in which form.

use xsched_proto::account::Amount;
use xsched_proto::class::Class;

use super::missed::Missed;
use crate::api::nri::{CdiDevice, Container, ContainerAdjustment, KeyValue, PodSandbox, STOPPED, SynchronizeRequest};
use crate::api::pod_resources::ListPodResourcesResponse;
use crate::cdi::Cdi;
use crate::config::{Config, Delivery, resource};
use crate::delivery::{CDI_SETTING, KIND, LIBRARY, SOCKET_FOLDER, class_device};
use crate::log;
use crate::status::Counter;

/// Annotation of a pod that names its class.
pub const ANNOTATION: &str = "xsched.dev/class";

/// Annotations of a pod for the memory of GPUs, each with the variable that it becomes in the pod's containers.
pub const MEMORY: [(&str, &str); 2] =
    [("xsched.dev/memory-limit", "XSCHED_MEMORY_LIMIT"), ("xsched.dev/memory-reserve", "XSCHED_MEMORY_RESERVE")];

/// Number of containers that were given a class.
pub static GIVEN: Counter =
    Counter::new("xsched_injector_given_total", "Containers that the injector has given a class.");
/// Number of containers that were given the class that their runtime had left out.
pub static REPAIRED: Counter = Counter::new(
    "xsched_injector_repaired_total",
    "Containers with a class's device that got the class from the injector, as their runtime leaves out CDI devices.",
);
/// Number of containers that should have been given a class and were not.
pub static FAILED: Counter =
    Counter::new("xsched_injector_failed_total", "Containers that should have got a class and got none.");
/// Number of containers that run without the class that they ask for.
pub static MISSED: Counter = Counter::new(
    "xsched_injector_missed_total",
    "Containers that ask for a class and run without one, found as the injector registered.",
);

/// Number of containers that were refused for a wrong annotation of their pod.
pub static REFUSED: Counter = Counter::new(
    "xsched_injector_refused_total",
    "Containers that were refused, as an annotation of their pod is wrong or can have no effect.",
);

/// Variable with the namespace of the node's own pods, set by the manifests.
pub const NAMESPACE_VARIABLE: &str = "POD_NAMESPACE";
/// Decides for the containers of a node.
pub struct Injector {
    config: Config,
    cdi: Cdi,
}

/// Decision about one container.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Changes for the runtime to make; `None` = no change.
    pub adjust: Option<ContainerAdjustment>,
    /// Lines for the log.
    pub lines: Vec<String>,
    /// Reason for which the container must not be made. The runtime passes it on, and it stands in the events of the pod.
    pub refusal: Option<String>,
}

impl Decision {
    /// Refusal of a container.
    fn refused(why: String) -> Decision {
        REFUSED.add(1);
        Decision { adjust: None, lines: vec![format!("{why}: refused")], refusal: Some(why) }
    }
}

/// Reports whether a runtime resolves CDI devices that a plugin adds. NRI does since version 0.7, which came with
/// containerd 2.0 and CRI-O 1.31. An older runtime would leave them out without a message.
pub fn knows_cdi(runtime: &str, version: &str) -> bool {
    let version = version.trim_start_matches('v');
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match runtime {
        "containerd" => version >= (2, 0),
        "cri-o" | "crio" => version >= (1, 31),
        _ => false,
    }
}

fn class_named(word: &str) -> Option<Class> {
    Class::ALL.into_iter().find(|class| class.name() == word)
}

/// Variables for the amounts of memory in a pod's annotations.
///
/// # Errors
/// Fails for a wrong annotation, that of the class included.
fn amounts(pod: &PodSandbox) -> Result<Vec<KeyValue>, String> {
    if let Some(word) = pod.annotations.get(ANNOTATION).filter(|word| class_named(word).is_none()) {
        let known = Class::ALL.map(Class::name).join(", ");
        return Err(format!("{ANNOTATION}: '{word}' is no class: use one of {known}"));
    }
    let named = MEMORY.into_iter().filter_map(|(annotation, variable)| {
        let text = pod.annotations.get(annotation)?;
        let value = |amount: Amount| KeyValue { key: variable.to_owned(), value: amount.to_string() };
        let amount = Amount::parse(text).map(value);
        Some(amount.ok_or_else(|| format!("{annotation}: '{text}' is no amount: use {}", Amount::ACCEPTED)))
    });
    named.collect()
}

fn is_scheduled(container: &Container) -> bool {
    container.mounts.iter().any(|mount| mount.destination == LIBRARY)
        || container.cdi_devices.iter().any(|device| device.name.split('=').next() == Some(KIND))
}

/// Reports whether a container mounts the folder of the daemon's socket by itself, as the daemon and the device plugin
/// do. With a class, that folder would be mounted over it, read-only, and a daemon there could create no socket.
fn has_the_socket_folder(container: &Container) -> bool {
    let is_it = |path: &str| {
        let path = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
        std::path::Path::new(path).starts_with(SOCKET_FOLDER)
    };
    container.mounts.iter().any(|mount| is_it(&mount.destination) || is_it(&mount.source))
}

impl Injector {
    /// Makes an injector with the node's configuration and specification. `own_namespace` is that of the node's own
    /// pods, which is skipped too.
    pub fn new(mut config: Config, cdi: Cdi, own_namespace: Option<String>) -> Injector {
        config.injector.skip_namespaces.extend(own_namespace);
        Injector { config, cdi }
    }

    /// Reports whether the configuration enables the injector.
    pub fn is_enabled(&self) -> bool {
        self.config.injector.enabled
    }

    fn by_name(&self, knows_cdi: bool) -> bool {
        knows_cdi && self.config.delivery == Delivery::Cdi
    }

    /// Logs the form of delivery that follows from the runtime's version.
    pub fn tell_delivery(&self, knows_cdi: bool) {
        if self.by_name(knows_cdi) {
            return;
        }
        let why = if knows_cdi { "delivery is not by CDI" } else { "the runtime does not know CDI devices of plugins" };
        match self.cdi.adjustment(Class::Normal) {
            Ok(_) => log(format!("{why}: containers get the mounts, variables and hooks of the CDI specification")),
            Err(e) => log(format!("{why}, and containers get no class: {e}")),
        }
    }

    /// Class that a pod gets, and a line for the log about a difference from the class that it asks for.
    fn class_of(&self, pod: &PodSandbox) -> (Option<Class>, Option<String>) {
        let name = format!("pod {}/{}", pod.namespace, pod.name);
        let word = pod.annotations.get(ANNOTATION);
        if !self.config.injector.has(&pod.namespace) {
            let line = word.map(|word| format!("{name}: asks for {word}, and its namespace is left alone"));
            return (None, line);
        }
        let default = self.config.injector.default_class;
        let Some(word) = word else { return (default, None) };
        // A word that is no class was refused before.
        let Some(asked) = class_named(word) else { return (default, None) };
        let ceiling = self.config.injector.ceiling_of(&pod.namespace);
        if asked > ceiling {
            let line =
                format!("{name}: asks for class {asked}, gets {ceiling}: the ceiling of namespace {}", pod.namespace);
            return (Some(ceiling), Some(line));
        }
        (Some(asked), None)
    }

    /// Reports whether the kubelet is to be asked for the class of a container's resource: only if the container came
    /// without any class.
    pub fn asks_the_kubelet(container: &Container) -> bool {
        !is_scheduled(container) && !has_the_socket_folder(container)
    }

    /// Decides about a container that is about to be created. `given` are the kubelet's containers with their resources,
    /// if the container came without a class. With a class come the amounts of memory in the pod's annotations.
    ///
    /// An annotation that is wrong, or an amount that no class comes with, refuses the container: without it, a program
    /// would run with less than was asked for, or without a limit, and only the node's log would name that.
    pub fn decide(
        &self,
        pod: &PodSandbox,
        container: &Container,
        knows_cdi: bool,
        given: Option<&ListPodResourcesResponse>,
    ) -> Decision {
        let name = format!("pod {}/{}", pod.namespace, pod.name);
        let of_resource = given.and_then(|given| given.class_of(&pod.namespace, &pod.name, &container.name));
        if !self.config.injector.has(&pod.namespace) {
            let mut decision = self.decide_class(pod, container, knows_cdi, of_resource);
            let named = MEMORY.iter().filter(|(annotation, _)| pod.annotations.contains_key(*annotation));
            decision.lines.extend(
                named.map(|(annotation, _)| {
                    format!("{name}: {annotation} has no effect, as its namespace is left alone")
                }),
            );
            return decision;
        }
        let amounts = match amounts(pod) {
            Ok(amounts) => amounts,
            Err(why) => return Decision::refused(format!("{name}: {why}")),
        };
        let mut decision = self.decide_class(pod, container, knows_cdi, of_resource);
        if is_scheduled(container) || decision.adjust.is_some() {
            if !amounts.is_empty() {
                decision.adjust.get_or_insert_default().env.extend(amounts);
            }
        } else if !amounts.is_empty() && !has_the_socket_folder(container) {
            // A container beside the one with the class needs none of the amounts.
            let is_beside = given.is_some_and(|given| given.may_have_class(&pod.namespace, &pod.name));
            let has_failed = of_resource.is_some() || self.class_of(pod).0.is_some();
            if has_failed || given.is_some() && !is_beside {
                let why = format!(
                    "{name}, container {}: an amount of memory needs a class, and it has none: give it one by the annotation {ANNOTATION} or a resource",
                    container.name
                );
                let before = std::mem::take(&mut decision.lines);
                decision = Decision::refused(why);
                decision.lines.splice(..0, before);
            } else if !is_beside {
                decision.lines.push(format!(
                    "{name}, container {}: has no class, so amounts of memory have no effect on it",
                    container.name
                ));
            }
        }
        decision
    }

    fn decide_class(
        &self,
        pod: &PodSandbox,
        container: &Container,
        knows_cdi: bool,
        of_resource: Option<Class>,
    ) -> Decision {
        let name = || format!("pod {}/{}, container {}", pod.namespace, pod.name, container.name);
        let (class, line) = self.class_of(pod);
        let asks = pod.annotations.contains_key(ANNOTATION);
        if is_scheduled(container) {
            let mut lines = Vec::from_iter(line);
            if asks && class.is_some() {
                lines.push(format!("{}: keeps the class of its resource or device", name()));
            }
            let ours = container.cdi_devices.iter().filter(|device| device.name.split('=').next() == Some(KIND));
            let mut ours: Vec<&str> = ours.map(|device| device.name.as_str()).collect();
            ours.sort_unstable();
            ours.dedup();
            if ours.len() > 1 {
                let all = ours.join(" and ");
                lines.push(format!("{}: has {all}: the less urgent counts; use one class for a container", name()));
            }
            return Decision { lines, ..Decision::default() };
        }
        if has_the_socket_folder(container) {
            let line = format!("{}: has {SOCKET_FOLDER} by itself, and so gets no class", name());
            return Decision { lines: Vec::from_iter(asks.then_some(line)), ..Decision::default() };
        }
        // The kubelet assigned the resource, so no namespace and no ceiling limits its class.
        if let Some(class) = of_resource {
            return self.repair(class, &name());
        }
        let mut lines = Vec::from_iter(line);
        let Some(class) = class else { return Decision { lines, ..Decision::default() } };
        let adjust = if self.by_name(knows_cdi) {
            let cdi_devices = vec![CdiDevice { name: class_device(class) }];
            Ok(ContainerAdjustment { cdi_devices, ..Default::default() })
        } else {
            self.cdi.adjustment(class)
        };
        count(&adjust);
        let adjust = adjust.map_err(|why| lines.push(format!("{}: has no class: {why}", name()))).ok();
        Decision { adjust, lines, refusal: None }
    }

    /// Applies the edits of a class's device to a container whose runtime left the device out. A runtime that does not
    /// resolve the kubelet's CDI devices may not resolve ours either.
    fn repair(&self, class: Class, name: &str) -> Decision {
        let adjust = self.cdi.adjustment(class);
        count(&adjust);
        let left_out = format!("{name}: the runtime has left out the CDI devices of {}", resource(class));
        match adjust {
            Ok(adjust) => {
                REPAIRED.add(1);
                let line = format!(
                    "{left_out}: it gets the class from here, and its GPU from nowhere: {CDI_SETTING} (docs/guide/kubernetes.md)"
                );
                Decision { adjust: Some(adjust), lines: vec![line], refusal: None }
            }
            Err(why) => {
                let line = format!(
                    "{left_out}, and it runs UNSCHEDULED: {CDI_SETTING}; it cannot get the class from here: {why}"
                );
                Decision { lines: vec![line], ..Decision::default() }
            }
        }
    }

    /// Containers that run without the class that they ask for, by annotation or by resource; and the number of
    /// containers that run without the default class because they started before the injector.
    pub fn missed(&self, state: &SynchronizeRequest, given: Option<&ListPodResourcesResponse>) -> (Vec<Missed>, usize) {
        let (mut missed, mut without_default) = (Vec::new(), 0);
        for container in &state.containers {
            if container.state == STOPPED || is_scheduled(container) || has_the_socket_folder(container) {
                continue;
            }
            let Some(pod) = state.pods.iter().find(|pod| pod.id == container.pod_sandbox_id) else { continue };
            let of_resource = given.and_then(|given| given.class_of(&pod.namespace, &pod.name, &container.name));
            let why = match (of_resource, pod.annotations.get(ANNOTATION)) {
                (Some(class), _) => {
                    let resource = resource(class);
                    format!(
                        "was given {resource} and runs UNSCHEDULED, as the runtime has left out its CDI devices: {CDI_SETTING}, and delete the pod"
                    )
                }
                (None, Some(word)) if self.config.injector.has(&pod.namespace) => {
                    format!(
                        "started while the injector was away and has no class, but asks for {word}: delete the pod to have it scheduled"
                    )
                }
                _ => {
                    let is_default = self.config.injector.default_class.is_some();
                    without_default += usize::from(is_default && self.config.injector.has(&pod.namespace));
                    continue;
                }
            };
            let name = format!("pod {}/{}, container {}", pod.namespace, pod.name, container.name);
            missed.push(Missed { id: container.id.clone(), pid: container.pid, name, why });
        }
        MISSED.add(missed.len() as u64);
        (missed, without_default)
    }
}

fn count(adjust: &Result<ContainerAdjustment, String>) {
    if adjust.is_ok() { GIVEN.add(1) } else { FAILED.add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_resolve_cdi_devices_are_known_by_their_version() {
        for (runtime, version, knows) in [
            ("containerd", "v2.1.4", true),
            ("containerd", "2.0.0-rc.1", true),
            ("containerd", "1.7.24~ds1", false),
            ("cri-o", "1.31.0", true),
            ("cri-o", "1.30.9", false),
            ("other", "9.9", false),
            ("containerd", "", false),
        ] {
            assert_eq!(knows_cdi(runtime, version), knows, "{runtime} {version}");
        }
    }
}
