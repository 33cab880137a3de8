//! The node's configuration: `/etc/xsched/kubernetes.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use xsched_proto::Error;
use xsched_proto::class::Class;

/// Path of the configuration unless an option names another.
pub const USUAL: &str = "/etc/xsched/kubernetes.toml";
/// Largest number of programs of a class that one GPU may be offered for.
pub const COUNT_MAX: u32 = 1000;
/// Classes that are offered as resources.
pub const OFFERED: [Class; 3] = [Class::High, Class::Normal, Class::Low];
/// Prefix of all resources.
pub const RESOURCES: &str = "xsched.dev/gpu-";

/// Resource of a class.
pub fn resource(class: Class) -> String {
    format!("{RESOURCES}{class}")
}

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Form in which containers get their class.
    pub delivery: Delivery,
    /// Settings of the device plugin.
    pub device_plugin: DevicePlugin,
    /// Settings of the injector.
    pub injector: Injector,
    /// Settings of the startup taint.
    pub startup_taint: StartupTaint,
}

/// Form in which containers get their class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// Delivery by the names of CDI devices.
    #[default]
    Cdi,
    /// Delivery by variables, mounts and device nodes.
    Environment,
}

/// Settings of the device plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicePlugin {
    /// Number of containers of each class that may share a GPU.
    pub counts: Counts,
    /// Numbers for single GPUs, by UUID, instead of `counts`.
    pub gpus: BTreeMap<String, Counts>,
    /// Interval at which the daemon is checked, in ms.
    pub health_interval_ms: u64,
    /// Treatment of a GPU that another plugin offers too.
    pub offered_twice: OfferedTwice,
    /// Time for a container to have its class after it was about to be created, in ms. A container that has none by
    /// then is logged.
    pub delivered_within_ms: u64,
}

/// Treatment of a GPU that another plugin offers too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfferedTwice {
    /// The GPU takes no further container here.
    #[default]
    Unhealthy,
    /// The GPU stays in use, and the log says that it is offered twice.
    Allowed,
}

impl Default for DevicePlugin {
    fn default() -> DevicePlugin {
        DevicePlugin {
            counts: Counts::default(),
            gpus: BTreeMap::new(),
            health_interval_ms: 2000,
            offered_twice: OfferedTwice::default(),
            delivered_within_ms: 30_000,
        }
    }
}

/// Number of containers of each class that may share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Counts {
    /// Containers of class high.
    pub high: u32,
    /// Containers of class normal.
    pub normal: u32,
    /// Containers of class low.
    pub low: u32,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { high: 1, normal: 4, low: 4 }
    }
}

impl Counts {
    /// Number for a class. The two classes above `high` are not offered.
    pub fn of(self, class: Class) -> u32 {
        match class {
            Class::High => self.high,
            Class::Normal => self.normal,
            Class::Low => self.low,
            Class::Realtime | Class::System => 0,
        }
    }
}

/// Settings of the injector.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Injector {
    /// Switch of the injector. If it is off, the runtime is not served.
    pub enabled: bool,
    /// Namespaces whose pods are considered; empty = all.
    pub namespaces: Vec<String>,
    /// Namespaces whose pods get no class by annotation or default.
    pub skip_namespaces: Vec<String>,
    /// Class of pods without an annotation; `None` = they get no class.
    pub default_class: Option<Class>,
    /// Highest class that an annotation can get.
    pub ceiling: Class,
    /// Highest classes for single namespaces, instead of `ceiling`.
    pub ceilings: BTreeMap<String, Class>,
}

impl Default for Injector {
    fn default() -> Injector {
        Injector {
            enabled: true,
            namespaces: Vec::new(),
            skip_namespaces: vec!["kube-system".to_owned()],
            default_class: None,
            ceiling: Class::Normal,
            ceilings: BTreeMap::new(),
        }
    }
}

impl Injector {
    /// Highest class that pods of a namespace can get.
    pub fn ceiling_of(&self, namespace: &str) -> Class {
        self.ceilings.get(namespace).copied().unwrap_or(self.ceiling)
    }

    /// Reports whether pods of a namespace are considered.
    pub fn has(&self, namespace: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|name| name == namespace);
        !is_in(&self.skip_namespaces) && (self.namespaces.is_empty() || is_in(&self.namespaces))
    }
}

/// Settings of the startup taint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StartupTaint {
    /// Interval at which daemon, device plugin and injector are polled, in ms.
    pub interval_ms: u64,
    /// Time for which one of them may be away before the taint is set, in ms. When the node starts, the taint is set at
    /// once.
    pub set_after_ms: u64,
}

impl Default for StartupTaint {
    fn default() -> StartupTaint {
        StartupTaint { interval_ms: 2000, set_after_ms: 10_000 }
    }
}

impl Config {
    /// Reads a file; if none is given, the default one, if it exists.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn read(given: Option<&Path>) -> Result<Config, Error> {
        let path = given.unwrap_or(Path::new(USUAL));
        match std::fs::read_to_string(path) {
            Ok(text) => Config::parse(&text).map_err(|e| e.within(path.display())),
            Err(e) if given.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
            Err(e) => Err(Error::environment(format!("cannot read {}: {e}", path.display()))),
        }
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// One line that names the place.
    pub fn parse(text: &str) -> Result<Config, Error> {
        let config: Config = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            Error::input(format!("line {line}: {}", e.message()))
        })?;
        let plugin = &config.device_plugin;
        for counts in plugin.gpus.values().chain([&plugin.counts]) {
            for class in OFFERED {
                let count = counts.of(class);
                if count > COUNT_MAX {
                    return Err(Error::value(count, &format!("count of class {class}"), format!("0 to {COUNT_MAX}")));
                }
            }
        }
        if !(10..=60_000).contains(&plugin.health_interval_ms) {
            return Err(Error::value(plugin.health_interval_ms, "health_interval_ms", "10 to 60000"));
        }
        if !(10..=600_000).contains(&plugin.delivered_within_ms) {
            return Err(Error::value(plugin.delivered_within_ms, "delivered_within_ms", "10 to 600000"));
        }
        let taint = &config.startup_taint;
        if !(10..=60_000).contains(&taint.interval_ms) {
            return Err(Error::value(taint.interval_ms, "interval_ms", "10 to 60000"));
        }
        if taint.set_after_ms > 3_600_000 {
            return Err(Error::value(taint.set_after_ms, "set_after_ms", "0 to 3600000"));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_in_one_line_with_their_place() {
        for (text, expected) in [
            ("delivery = \"cdi\"\ncounts = 1", "line 2: unknown field `counts`"),
            ("[injector]\nceiling = \"urgent\"", "line 2: unknown variant `urgent`"),
            ("[device_plugin.counts]\nlow = 1001", "'1001' is no count of class low: use 0 to 1000"),
            ("[device_plugin]\nhealth_interval_ms = 1", "'1' is no health_interval_ms: use 10 to 60000"),
            ("[device_plugin]\ndelivered_within_ms = 1", "'1' is no delivered_within_ms: use 10 to 600000"),
            ("[startup_taint]\ninterval_ms = 1", "'1' is no interval_ms: use 10 to 60000"),
            ("[startup_taint]\nset_after_ms = 3600001", "'3600001' is no set_after_ms: use 0 to 3600000"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn the_reference_shows_every_key_with_its_default() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/kubernetes.md"));
        let page = page.expect("the page");
        let (_, rest) = page.split_once("```text\n").expect("an example");
        let example = rest.split("```").next().unwrap();
        let shown = Config::parse(example).unwrap();
        let mut usual = Config::default();
        // Tables of single GPUs and namespaces are empty by default, as is the list of namespaces; a default class is
        // not set.
        usual.device_plugin.gpus.clone_from(&shown.device_plugin.gpus);
        usual.injector.ceilings.clone_from(&shown.injector.ceilings);
        usual.injector.namespaces.clone_from(&shown.injector.namespaces);
        usual.injector.default_class = shown.injector.default_class;
        assert_eq!(shown, usual);
        for key in [
            "delivery",
            "health_interval_ms",
            "offered_twice",
            "delivered_within_ms",
            "enabled",
            "namespaces",
            "skip_namespaces",
            "high",
            "normal",
            "low",
            "gpus",
            "default_class",
            "ceiling",
            "ceilings",
            "interval_ms",
            "set_after_ms",
        ] {
            assert!(example.contains(key), "{key}");
        }
    }
}
