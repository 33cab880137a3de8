//! Configuration: values that its files accept, their precedence and reload, and the settings that commands make.

pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod faults;
pub(crate) mod glob;
pub(crate) mod kept;
mod keys;
mod limits;
mod metrics;
mod reload;
pub(crate) mod restart;
mod rules;
pub(crate) mod sources;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use xsched_engine::{Ceilings, Given, MemorySettings, Settings, Side, Terms, Urgent, User as Owner};
use xsched_gatekeeper::BUDGET_DEFAULT_US;
use xsched_policy::{Choice, ClassRule, GUARD_US};
use xsched_proto::class::{self, Class};
use xsched_proto::hint::Hints;
use xsched_proto::paths::SYSTEM_SOCKET;
use xsched_proto::program;

use crate::Error;
use crate::config::glob::glob;
use crate::files::read_text;
use crate::identity::accounts::{self, Account};
use crate::identity::container::Place;
use crate::identity::peer::Peer;
use crate::tuning::{POOL_BUDGET_US, POOL_INNER_TIMESLICE_US, POOL_PROVEN_MINUTES, POOL_TIMESLICE_US};

use keys::{
    Budget, Ceiling, ClassName, Commands, Domains, Evenness, HintValue, IdleExit, IdleMemory, Inside, Level, Memory,
    Minutes, Percent, PolicyName, Priority, Quantum, Starvation, User, Value, Weight,
};
use limits::{Enclosed, Limits, UserLimits};
use metrics::MetricsTable;
pub(crate) use metrics::{Listen, MetricsConfig};

/// Whole configuration, all files merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) policy: Option<Choice>,
    /// Policies by device key.
    pub(crate) devices: BTreeMap<String, Choice>,
    starvation_s: Option<u32>,
    budget_us: Option<u32>,
    pub(crate) idle_exit_s: Option<u64>,
    domains: Option<Domains>,
    /// Limits of users without limits of their own.
    limits: UserLimits,
    /// Limits of memory of containers and pods.
    enclosed: Enclosed,
    /// Limits of single users, in the order of the files.
    users: Vec<(User, UserLimits)>,
    /// Ids of the accounts that the files name; the others are not known, or not yet.
    accounts: BTreeMap<String, u32>,
    /// Places in the files that name accounts.
    named: Vec<Named>,
    /// Rules; the first that matches applies.
    pub(crate) rules: Vec<Rule>,
    classes: BTreeMap<Class, ClassTable>,
    /// Settings of namespaces by name.
    namespaces: BTreeMap<String, NamespaceTable>,
    pool: PoolTable,
    yields: YieldTable,
    memory: MemoryTable,
    metrics: MetricsTable,
    /// True while an account that the files name is not known.
    pub(crate) awaits_accounts: bool,
    /// Notices about the files for the reader of the log, one line each.
    pub(crate) notices: Vec<String>,
}

/// Place in a file that names an account.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    account: String,
    /// File and line.
    place: String,
    /// Part of the file that depends on the account.
    part: &'static str,
}

/// Settings for gates that yield among programs of one MPS server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct YieldTable {
    enabled: Option<bool>,
}

/// Settings of the memory of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    capacity: Option<Memory>,
    swap: Option<bool>,
    host_limit: Option<Memory>,
}

/// Choice of programs that share a GPU by a pool, and settings of pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolTable {
    enabled: Option<bool>,
    max_class: Option<ClassName>,
    timeslice_us: Option<Quantum>,
    inner_timeslice_us: Option<Quantum>,
    evenness: Option<Evenness>,
    budget_us: Option<Budget>,
    urgent: Option<Inside>,
    proven_minutes: Option<Minutes>,
}

/// Rule for programs of a kind: conditions, and the values that matching programs get.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Path of the executable, or its file name, or the file name by which it was run; `*` stands for anything.
    exe: Option<String>,
    user: Option<User>,
    /// File name of a script, or a module, that an interpreter runs; `*` stands for anything.
    script: Option<String>,
    /// Words of the command line, separated by blanks; `*` stands for anything.
    command: Option<String>,
    /// Path below the cgroup root; `*` stands for anything.
    cgroup: Option<String>,
    /// Id (or its first 12 digits or more) or name of a container, uid of a pod; `*` stands for anything.
    container: Option<String>,
    /// Name of a Kubernetes pod; `*` stands for anything.
    pod: Option<String>,
    /// Namespace of a Kubernetes pod; `*` stands for anything.
    namespace: Option<String>,
    priority: Option<Priority>,
    ceiling: Option<Ceiling>,
    /// Priority to which queues of the system domain rise, above the program's class if necessary.
    system_ceiling: Option<Priority>,
    /// Treatment of launches that come from vendors' libraries.
    domains: Option<Domains>,
    weight: Option<HintValue<0>>,
    utilization: Option<HintValue<1>>,
    timeslice: Option<HintValue<2>>,
    deadline: Option<HintValue<3>>,
    k: Option<HintValue<4>>,
    laxity: Option<HintValue<5>>,
    active: Option<HintValue<6>>,
    slo: Option<HintValue<7>>,
    level: Option<Level>,
    threshold: Option<Commands>,
    batch: Option<Commands>,
    /// Memory of each device, of one program.
    memory_limit: Option<Memory>,
    /// Memory of each device, of all programs to which the rule applies.
    memory_total: Option<Memory>,
    /// Memory of each device that less urgent programs leave to the program.
    memory_reserve: Option<Memory>,
    /// Largest reserve that the program may ask for at the cost of other users' programs.
    max_reserve: Option<Memory>,
    /// Time without launches after which the memory of a program leaves, if it can.
    memory_idle_s: Option<IdleMemory>,
}

/// Settings of a Kubernetes namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceTable {
    weight: Option<Weight>,
}

/// Settings of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTable {
    quantum_us: Option<Quantum>,
    preemptible: Option<bool>,
    guarantee_percent: Option<Percent>,
    weight: Option<Weight>,
    /// Memory of each device, of all programs of the class.
    memory: Option<Memory>,
    /// Largest reserve that a program of the class may ask for at the cost of other users' programs.
    reserve: Option<Memory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policy: Option<PolicyName>,
    /// Parameters of `policy`.
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
    #[serde(default)]
    devices: BTreeMap<String, DeviceTable>,
    starvation_s: Option<Starvation>,
    budget_us: Option<Budget>,
    idle_exit_s: Option<IdleExit>,
    domains: Option<Domains>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    rule: Vec<Rule>,
    #[serde(default)]
    classes: BTreeMap<ClassName, ClassTable>,
    #[serde(default)]
    namespaces: BTreeMap<String, NamespaceTable>,
    #[serde(default)]
    pool: PoolTable,
    #[serde(default, rename = "yield")]
    yields: YieldTable,
    #[serde(default)]
    memory: MemoryTable,
    #[serde(default)]
    metrics: MetricsTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceTable {
    policy: PolicyName,
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
}

/// Makes a policy with its parameters.
fn chosen(text: &str, name: &PolicyName, parameters: &BTreeMap<String, Value>) -> Result<Choice, (usize, String)> {
    Choice::with(&name.0, parameters.iter().map(|(name, value)| (name.as_str(), value.0.as_str())))
        .map_err(|why| (line_of(text, "parameters"), why.line().to_owned()))
}

/// Finds the line in which a key first stands.
fn line_of(text: &str, key: &str) -> usize {
    1 + text.lines().position(|line| line.contains(key)).unwrap_or(0)
}

impl Rule {
    /// Reports whether the rule has conditions only.
    fn gives_nothing(&self) -> bool {
        let conditions = Rule {
            exe: self.exe.clone(),
            script: self.script.clone(),
            command: self.command.clone(),
            user: self.user.clone(),
            cgroup: self.cgroup.clone(),
            container: self.container.clone(),
            pod: self.pod.clone(),
            namespace: self.namespace.clone(),
            ..Rule::default()
        };
        *self == conditions
    }

    /// Hints of the rule for the policy.
    fn hints(&self) -> Hints {
        let given = [
            self.weight.map(|v| v.0),
            self.utilization.map(|v| v.0),
            self.timeslice.map(|v| v.0),
            self.deadline.map(|v| v.0),
            self.k.map(|v| v.0),
            self.laxity.map(|v| v.0),
            self.active.map(|v| v.0),
            self.slo.map(|v| v.0),
        ];
        given.into_iter().flatten().fold(Hints::default(), Hints::or)
    }
}

impl Config {
    /// Reads `paths` in order; a value of a later file replaces that of an earlier one, and its rules come first.
    pub(crate) fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Config, Error> {
        let files: Vec<(&Path, bool)> = paths.iter().map(|path| (path.as_ref(), true)).collect();
        Config::read_files(&files)
    }

    /// Reads files. Each comes with false if its `[metrics]` is for another daemon.
    pub(crate) fn read_files(files: &[(&Path, bool)]) -> Result<Config, Error> {
        let mut config = Config::default();
        for (path, has_metrics) in files {
            let shown = path.display();
            let text =
                read_text(path).map_err(|why| Error::Input(format!("cannot read the configuration {shown}: {why}")))?;
            let (named, metrics) = (config.named.len(), config.metrics.clone());
            let remarks =
                config.merge(&text).map_err(|(line, message)| Error::Input(format!("{shown}:{line}: {message}")))?;
            config.notices.extend(remarks.iter().map(|(line, message)| format!("{shown}:{line}: {message}")));
            if !has_metrics && config.metrics != metrics {
                config.metrics = metrics;
                config.notices.push(format!("{shown}: [metrics] is for the machine's daemon, at {SYSTEM_SOCKET}"));
            }
            config.named[named..].iter_mut().for_each(|named| named.place = format!("{shown}:{}", named.place));
        }
        let found = config.find_accounts();
        for Named { account, place, part } in &config.named {
            let why = match found.get(account) {
                Some(Account::Unknown) => format!("there is no account '{account}' on this machine"),
                Some(Account::NoAnswer) => format!("the name service does not answer for account '{account}'"),
                Some(Account::Id(_)) | None => continue,
            };
            config.notices.push(format!("{place}: {why}: {part} counts once there is one"));
        }
        Ok(config)
    }

    /// Looks up the accounts that are not known yet. Returns the answers.
    pub(crate) fn find_accounts(&mut self) -> BTreeMap<String, Account> {
        let found = accounts::look_up(self.unknown_accounts());
        let ids = found.iter().filter_map(|(name, answer)| match answer {
            Account::Id(id) => Some((name.clone(), *id)),
            Account::Unknown | Account::NoAnswer => None,
        });
        self.learn(ids.collect());
        found
    }

    /// Takes ids of accounts that the files name.
    pub(crate) fn learn(&mut self, ids: BTreeMap<String, u32>) {
        self.accounts.extend(ids);
        self.awaits_accounts = !self.unknown_accounts().is_empty();
    }

    /// Accounts that the files name and that are not known, or not yet.
    pub(crate) fn unknown_accounts(&self) -> BTreeSet<String> {
        let names = self.named.iter().map(|named| &named.account);
        names.filter(|name| !self.accounts.contains_key(*name)).cloned().collect()
    }

    /// Merges a file, whose values win. Returns remarks on it; remarks and errors come with their line numbers.
    fn merge(&mut self, text: &str) -> Result<Vec<(usize, String)>, (usize, String)> {
        let file: File = toml::from_str(text).map_err(|e| faults::explain(text, &e))?;
        let mut remarks = Vec::new();
        match (file.policy, file.parameters.is_empty()) {
            (None, true) => (),
            (None, false) => return Err((line_of(text, "parameters"), "parameters need a policy beside them".into())),
            (Some(name), _) => self.policy = Some(chosen(text, &name, &file.parameters)?),
        }
        for (device, table) in file.devices {
            if let Some(why) = devices::odd_key(&device) {
                remarks.push((line_of(text, &device), why));
            }
            self.devices.insert(device, chosen(text, &table.policy, &table.parameters)?);
        }
        self.starvation_s = file.starvation_s.map(|s| s.0).or(self.starvation_s);
        self.budget_us = file.budget_us.map(|b| b.0).or(self.budget_us);
        self.idle_exit_s = file.idle_exit_s.map(|s| s.0.into()).or(self.idle_exit_s);
        self.domains = file.domains.or(self.domains);
        let (of_all, users, enclosed) = file.limits.parts();
        self.limits = of_all.or(self.limits);
        self.enclosed = enclosed.or(self.enclosed);
        for (user, limits) in users {
            self.name_account(text, &user, "users", "[limits.users] for it");
            self.users.push((user, limits));
        }
        file.rule.iter().filter_map(|rule| rule.user.as_ref()).for_each(|user| {
            self.name_account(text, user, "user =", "the rule for it");
        });
        let added = file.rule.len();
        let heading = |at: usize| {
            let headings = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("[[rule]]"));
            headings.map(|(number, _)| number + 1).nth(at).unwrap_or_else(|| line_of(text, "rule"))
        };
        if let Some(at) = file.rule.iter().position(Rule::gives_nothing) {
            remarks.push((heading(at), "this rule gives nothing: it only keeps those after it from matching".into()));
        }
        let taken_back =
            file.rule.iter().enumerate().filter_map(|(at, rule)| Some((heading(at), rule.without_effect()?)));
        remarks.extend(taken_back);
        self.rules.splice(0..0, file.rule);
        remarks.extend(rules::unmatched(&self.rules, added).map(|(at, why)| (heading(at), why)));
        for (name, table) in file.classes {
            let known = self.classes.entry(name.0).or_default();
            *known = ClassTable {
                quantum_us: table.quantum_us.or(known.quantum_us),
                preemptible: table.preemptible.or(known.preemptible),
                guarantee_percent: table.guarantee_percent.or(known.guarantee_percent),
                weight: table.weight.or(known.weight),
                memory: table.memory.or(known.memory),
                reserve: table.reserve.or(known.reserve),
            };
        }
        for (name, table) in file.namespaces {
            let known = self.namespaces.entry(name).or_default();
            known.weight = table.weight.or(known.weight);
        }
        let promised: u32 = self.classes.values().filter_map(|c| c.guarantee_percent).map(|p| p.0).sum();
        if promised > 90 {
            return Err((
                line_of(text, "guarantee_percent"),
                format!("the guarantees of all classes make {promised} %: use 90 or less in all"),
            ));
        }
        self.pool = PoolTable {
            enabled: file.pool.enabled.or(self.pool.enabled),
            max_class: file.pool.max_class.or(self.pool.max_class),
            timeslice_us: file.pool.timeslice_us.or(self.pool.timeslice_us),
            inner_timeslice_us: file.pool.inner_timeslice_us.or(self.pool.inner_timeslice_us),
            evenness: file.pool.evenness.or(self.pool.evenness),
            budget_us: file.pool.budget_us.or(self.pool.budget_us),
            urgent: file.pool.urgent.or(self.pool.urgent),
            proven_minutes: file.pool.proven_minutes.or(self.pool.proven_minutes),
        };
        self.yields = YieldTable { enabled: file.yields.enabled.or(self.yields.enabled) };
        self.memory = MemoryTable {
            capacity: file.memory.capacity.or(self.memory.capacity),
            swap: file.memory.swap.or(self.memory.swap),
            host_limit: file.memory.host_limit.or(self.memory.host_limit),
        };
        self.metrics = file.metrics.or(std::mem::take(&mut self.metrics));
        self.metrics.check().map_err(|why| (line_of(text, "listen"), why))?;
        Ok(remarks)
    }

    /// Notes an account that a file names, with its line, which has the word `beside`, too.
    fn name_account(&mut self, text: &str, user: &User, beside: &str, part: &'static str) {
        if let User::Name(account) = user {
            let is_place = |line: &str| line.contains(account) && line.contains(beside);
            let place = text.lines().position(is_place).map_or_else(|| line_of(text, account), |at| at + 1).to_string();
            self.named.push(Named { account: account.clone(), place, part });
        }
    }

    /// Address for monitors and its settings; none = metrics are not served.
    pub(crate) fn metrics(&self) -> Option<MetricsConfig> {
        self.metrics.config()
    }

    /// In-flight budget of a device, in µs.
    pub(crate) fn budget_us(&self) -> u32 {
        self.budget_us.unwrap_or(BUDGET_DEFAULT_US)
    }

    /// Reports whether pools are allowed.
    pub(crate) fn may_pool(&self) -> bool {
        self.pool.enabled.unwrap_or(true)
    }

    /// Highest class of programs in a pool.
    pub(crate) fn pool_max_class(&self) -> Class {
        self.pool.max_class.map_or(Class::Normal, |class| class.0)
    }

    /// Time slice of a pool's channel group, in µs.
    pub(crate) fn pool_timeslice_us(&self, side: Side) -> u64 {
        let (slice, default_us) = match side {
            Side::Inner => (self.pool.inner_timeslice_us, POOL_INNER_TIMESLICE_US),
            Side::Outer => (self.pool.timeslice_us, POOL_TIMESLICE_US),
        };
        slice.map_or(default_us, |slice| slice.0)
    }

    /// Place of programs of a class above the highest for pools.
    pub(crate) fn pool_urgent(&self) -> Urgent {
        self.pool.urgent.map_or(Urgent::DEFAULT, |urgent| urgent.0)
    }

    /// Minutes of work without a GPU fault after which a program is proven.
    pub(crate) fn pool_proven_minutes(&self) -> u32 {
        self.pool.proven_minutes.map_or(POOL_PROVEN_MINUTES, |minutes| minutes.0)
    }

    /// Evenness of progress among the programs of a pool, in %.
    pub(crate) fn pool_evenness(&self) -> u32 {
        self.pool.evenness.map_or(100, |evenness| evenness.0)
    }

    /// In-flight budget of a pooled program, in µs.
    pub(crate) fn pool_budget_us(&self) -> u32 {
        self.pool.budget_us.map_or(POOL_BUDGET_US, |budget| budget.0)
    }

    /// Weight of a Kubernetes namespace among the others.
    pub(crate) fn namespace_weight(&self, name: &str) -> u32 {
        let own = self.namespaces.get(name).and_then(|namespace| namespace.weight);
        own.map_or(class::WEIGHT_DEFAULT, |weight| weight.0)
    }

    /// Weight of a user among the others.
    pub(crate) fn user_weight(&self, uid: u32) -> u32 {
        let own = self.limits_of_own(uid).weight;
        own.map_or(class::WEIGHT_DEFAULT, |weight| weight.0)
    }

    /// Longest time that a group may wait for a device that others have, in µs; none = no limit.
    pub(crate) fn guard_us(&self) -> Option<u64> {
        match self.starvation_s {
            None => Some(GUARD_US),
            Some(0) => None,
            Some(s) => Some(u64::from(s) * 1_000_000),
        }
    }

    /// Hints of a class, for programs that do not ask for something else.
    fn class_hints(&self, class: Class) -> Hints {
        let table = self.classes.get(&class).copied().unwrap_or_default();
        Hints { weight: table.weight.map(|w| w.0), timeslice_us: table.quantum_us.map(|q| q.0), ..Hints::default() }
    }

    /// Settings of the engine that apply to all programs. `policy` = that of devices without one of their own; `may_yield` = the
    /// environment allows gates to yield.
    pub(crate) fn settings(&self, policy: Choice, may_yield: bool, has_details: bool) -> Settings {
        Settings {
            policy,
            devices: self.devices.clone(),
            class_hints: Class::ALL.map(|class| self.class_hints(class)),
            class_rules: self.class_rules(),
            guard_us: self.guard_us(),
            evenness: self.pool_evenness(),
            budget_us: self.budget_us(),
            pool_max_class: self.pool_max_class(),
            pool_timeslice_us: self.pool_timeslice_us(Side::Outer),
            pool_budget_us: self.pool_budget_us(),
            yields: may_yield && self.yields.enabled.unwrap_or(true),
            has_details,
            memory: MemorySettings {
                capacity: self.memory.capacity.map(|memory| memory.0),
                classes: Class::ALL.map(|class| Some(self.classes.get(&class)?.memory?.0)),
                reserves: Class::ALL.map(|class| Some(self.classes.get(&class)?.reserve?.0)),
                stays: self.memory.swap == Some(false),
                host_limit: self.memory.host_limit.map(|memory| memory.0),
                host_bytes: host_bytes(),
            },
        }
    }

    /// Limits on the values that a user may ask for: none for root and the daemon's own user.
    pub(crate) fn ceilings_of(&self, user: Owner) -> Ceilings {
        if user.is_own() { Ceilings::NONE } else { self.ceilings(user.uid) }
    }

    /// Terms of a program: the first rule that matches, and the limits of its user.
    pub(crate) fn terms(&self, peer: &Peer, command: &[String]) -> Terms {
        let rule = self.rule_of(&peer.exe, &peer.names, command, peer.uid, &peer.place);
        Terms {
            given: self.given_by(rule.map(|(_, rule)| rule), &peer.place),
            memory: self.memory_terms(peer.user, &peer.place, rule),
            ceilings: self.ceilings_of(peer.user),
            bounds: self.bounds(peer.user.uid, peer.user.is_own()),
        }
    }

    /// Rules of classes for the arbiter; empty if none is configured.
    pub(crate) fn class_rules(&self) -> Vec<ClassRule> {
        let rule = |(class, table): (&Class, &ClassTable)| {
            let (lowest, highest) = class.range();
            ClassRule {
                lowest,
                highest,
                quantum_us: table.quantum_us.map_or(class::TIMESLICE_DEFAULT_US, |q| q.0),
                preemptible: table.preemptible.unwrap_or(true),
                guarantee_percent: table.guarantee_percent.map_or(0, |p| p.0),
            }
        };
        let rules = self.classes.iter().map(rule);
        rules.filter(|r| !r.preemptible || r.guarantee_percent > 0).collect()
    }

    /// First rule that matches, and its number.
    fn rule_of(
        &self,
        exe: &str,
        names: &[String],
        command: &[String],
        uid: u32,
        place: &Place,
    ) -> Option<(usize, &Rule)> {
        let script = program::script(command);
        let matches = |r: &Rule| {
            r.exe.as_deref().is_none_or(|p| is_run_by(p, exe, names))
                && r.script.as_deref().is_none_or(|p| script.is_some_and(|script| glob(p, script)))
                && r.command.as_deref().is_none_or(|p| !command.is_empty() && glob(p, &command.join(" ")))
                && r.user.as_ref().is_none_or(|user| self.is_user(user, uid))
                && r.cgroup.as_deref().is_none_or(|p| glob(p, &place.cgroup))
                && r.container.as_deref().is_none_or(|p| place.is_in(p))
                && r.pod.as_deref().is_none_or(|p| place.is_in_pod(p))
                && r.namespace.as_deref().is_none_or(|p| place.is_in_namespace(p))
        };
        self.rules.iter().enumerate().find(|(_, rule)| matches(rule))
    }

    /// Values that a rule gives to a program at this place.
    fn given_by(&self, rule: Option<&Rule>, place: &Place) -> Given {
        let domains = self.domains.map(|d| d.0);
        let given = rule.map_or(Given { domains, ..Given::default() }, |r| Given {
            priority: r.priority.map(|p| p.0),
            ceiling: r.ceiling.map(|p| p.0),
            hints: r.hints(),
            level: r.level.map(|l| l.0),
            threshold: r.threshold.map(|c| c.0),
            batch: r.batch.map(|c| c.0),
            system_ceiling: r.system_ceiling.map(|p| p.0),
            domains: r.domains.map(|d| d.0).or(domains),
        });
        // The class that a container was made with acts as a rule, where no other matches.
        match place.class() {
            Some(class) if given.priority.is_none() && given.ceiling.is_none() => {
                Given { priority: Some(class.nominal()), ceiling: Some(class.range().1), ..given }
            }
            _ => given,
        }
    }

    /// Values that the first matching rule gives.
    #[cfg(test)]
    pub(crate) fn given(&self, exe: &str, names: &[String], command: &[String], uid: u32, place: &Place) -> Given {
        self.given_by(self.rule_of(exe, names, command, uid, place).map(|(_, rule)| rule), place)
    }
}

/// Memory of this machine, in bytes.
fn host_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// Reports whether a pattern matches an executable: its path, or, for a pattern without a slash, one of its file names.
fn is_run_by(pattern: &str, exe: &str, names: &[String]) -> bool {
    let file = exe.rsplit('/').next().unwrap_or(exe);
    let mut files = names.iter().map(String::as_str).chain([file]);
    glob(pattern, exe) || !pattern.contains('/') && files.any(|file| glob(pattern, file))
}

#[cfg(test)]
impl Config {
    /// Configuration of files with these texts.
    fn parsed(texts: &[&str]) -> Result<Config, (usize, String)> {
        let mut config = Config::default();
        for text in texts {
            config.merge(text)?;
        }
        config.find_accounts();
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
