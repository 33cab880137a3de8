//! Which class a container gets, and by what it gets it.

use xsched_proto::class::Class;

use crate::api::nri::{CdiDevice, Container, ContainerAdjustment, PodSandbox, SynchronizeRequest};
use crate::cdi::Cdi;
use crate::config::{Config, Delivery};
use crate::delivery::{KIND, LIBRARY, class_device};
use crate::log;

/// The annotation of a pod.
pub const ANNOTATION: &str = "xsched.dev/class";

/// Decides for a node.
pub struct Injector {
    config: Config,
    cdi: Cdi,
}

/// About one container.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What the runtime changes; none: nothing.
    pub adjust: Option<ContainerAdjustment>,
    /// For the log.
    pub lines: Vec<String>,
}

/// Whether a runtime resolves CDI devices that a plugin adds: NRI does from version 0.7 on, which came with containerd 2.0 and with
/// CRI-O 1.31. An older one would leave them out and say nothing.
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

fn is_scheduled(container: &Container) -> bool {
    container.mounts.iter().any(|mount| mount.destination == LIBRARY)
        || container.cdi_devices.iter().any(|device| device.name.split('=').next() == Some(KIND))
}

impl Injector {
    /// With the node's configuration and specification.
    pub fn new(config: Config, cdi: Cdi) -> Injector {
        Injector { config, cdi }
    }

    fn by_name(&self, knows_cdi: bool) -> bool {
        knows_cdi && self.config.delivery == Delivery::Cdi
    }

    /// Tells what follows from the runtime.
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

    /// The class that a pod asks for, the one that it gets, and what is to be told of it.
    fn class_of(&self, pod: &PodSandbox) -> (Option<Class>, Option<String>) {
        let name = format!("pod {}/{}", pod.namespace, pod.name);
        let default = self.config.injector.default_class;
        let Some(word) = pod.annotations.get(ANNOTATION) else { return (default, None) };
        let Some(asked) = Class::ALL.into_iter().find(|class| class.name() == word) else {
            let known = Class::ALL.map(Class::name).join(", ");
            return (default, Some(format!("{name}: '{word}' is no class: use one of {known}")));
        };
        let ceiling = self.config.injector.ceiling_of(&pod.namespace);
        if asked > ceiling {
            let line =
                format!("{name}: asks for class {asked}, gets {ceiling}: the ceiling of namespace {}", pod.namespace);
            return (Some(ceiling), Some(line));
        }
        (Some(asked), None)
    }

    /// For a container that is about to be made.
    pub fn decide(&self, pod: &PodSandbox, container: &Container, knows_cdi: bool) -> Decision {
        let (class, line) = self.class_of(pod);
        let mut lines = Vec::from_iter(line);
        let Some(class) = class else { return Decision { adjust: None, lines } };
        let name = || format!("pod {}/{}, container {}", pod.namespace, pod.name, container.name);
        if is_scheduled(container) {
            let line = format!("{}: keeps the class of its resource or device", name());
            return Decision { adjust: None, lines: vec![line] };
        }
        let adjust = if self.by_name(knows_cdi) {
            let cdi_devices = vec![CdiDevice { name: class_device(class) }];
            Ok(ContainerAdjustment { cdi_devices, ..Default::default() })
        } else {
            self.cdi.adjustment(class)
        };
        let adjust = adjust.map_err(|why| lines.push(format!("{}: has no class: {why}", name()))).ok();
        Decision { adjust, lines }
    }

    /// The containers that started while no injector was there, and ask for a class.
    pub fn missed(&self, state: &SynchronizeRequest) -> Vec<String> {
        let missed = state.containers.iter().filter(|container| !is_scheduled(container)).filter_map(|container| {
            let pod = state.pods.iter().find(|pod| pod.id == container.pod_sandbox_id)?;
            let word = pod.annotations.get(ANNOTATION)?;
            Some(format!(
                "pod {}/{}, container {}: started while the injector was away and has no class, but asks for {word}: delete the pod to have it scheduled",
                pod.namespace, pod.name, container.name
            ))
        });
        missed.collect()
    }
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
