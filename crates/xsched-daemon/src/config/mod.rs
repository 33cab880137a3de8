//! Configuration: values that its files accept, their precedence and reload, and the settings that commands make.

pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod faults;
pub(crate) mod glob;
pub(crate) mod kept;
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
use serde::de::Deserializer;
use xsched_engine::{Ceilings, Given, MemorySettings, Settings, Side, Terms, Urgent, User as Owner};
use xsched_gatekeeper::BUDGET_DEFAULT_US;
use xsched_policy::{Choice, ClassRule, GUARD_US};
use xsched_proto::account::Amount;
use xsched_proto::class::{self, Class};
use xsched_proto::domains::DomainMode;
use xsched_proto::hint::{Hint, Hints};
use xsched_proto::program;
use xsched_proto::wire::COMMANDS_MAX;

use crate::Error;
use crate::config::glob::glob;
use crate::files::read_text;
use crate::identity::accounts::{self, Account};
use crate::identity::container::Place;
use crate::identity::peer::Peer;
use crate::tuning::{POOL_BUDGET_US, POOL_INNER_TIMESLICE_US, POOL_PROVEN_MINUTES, POOL_TIMESLICE_US};

use limits::{Enclosed, Limits, UserLimits};
use metrics::MetricsTable;
pub(crate) use metrics::{Listen, MetricsConfig};
use values::{number, scalar};

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

#[derive(Clone, Copy, Debug, PartialEq)]
struct Priority(i32);
/// Number, or a class: then its highest priority.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ceiling(i32);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weight(u32);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Budget(u32);
struct Starvation(u32);
struct IdleExit(u32);
/// Value of a parameter, a number or a word, as text.
struct Value(String);
/// Hint at the place `AT` of [`Hint::ALL`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct HintValue<const AT: usize>(Hints);

const CLASSES: &str = "low, normal, high, realtime or system";
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantum(u64);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count(u32);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Memory(Amount);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Percent(u32);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Evenness(u32);
/// Choice of a place for urgent programs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Inside(Urgent);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Minutes(u32);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level(u8);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Commands(u32);
#[derive(Clone, Copy, Debug, PartialEq)]
struct Domains(DomainMode);
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassName(Class);
struct PolicyName(String);
/// User, by id or by the name of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum User {
    Id(u32),
    Name(String),
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, class::PRIORITY_HELP, |text| class::parse_priority(text).map(Priority))
    }
}

impl<'de> Deserialize<'de> for Ceiling {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, class::PRIORITY_HELP, |text| {
            let priority = class::parse_priority(text)?;
            let is_number = text.parse::<i32>().is_ok();
            Ok(Ceiling(if is_number { priority } else { Class::of(priority).range().1 }))
        })
    }
}

impl<'de> Deserialize<'de> for ClassName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, CLASSES, |text| match text.parse::<i32>() {
            Ok(_) => Err(Error::value(text, "class", CLASSES)),
            Err(_) => class::parse_priority(text)
                .map(|p| ClassName(Class::of(p)))
                .map_err(|_| Error::word(text, "class", CLASSES, Class::ALL.map(Class::name))),
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 1_000_000).map(Count)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, class::WEIGHT_MIN, class::WEIGHT_MAX).map(Weight)
    }
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

impl<'de, const AT: usize> Deserialize<'de> for HintValue<AT> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let hint = Hint::ALL[AT];
        scalar(d, hint.accepted(), |text| {
            let mut hints = Hints::default();
            hints.set(hint, text).map(|()| HintValue(hints))
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, "a number or a word", |text| Ok(Value(text.to_owned())))
    }
}

impl<'de> Deserialize<'de> for Starvation {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 3_600).map(Starvation)
    }
}

impl<'de> Deserialize<'de> for IdleExit {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 31_536_000).map(IdleExit)
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 1_000_000).map(Budget)
    }
}

impl<'de> Deserialize<'de> for Quantum {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, class::TIMESLICE_MIN_US as u32, class::TIMESLICE_MAX_US as u32).map(|us| Quantum(us.into()))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 90).map(Percent)
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, "a policy's name", |text| Choice::named(text).map(|choice| PolicyName(choice.entry.name.to_owned())))
    }
}

impl<'de> Deserialize<'de> for Evenness {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 100).map(Evenness)
    }
}

impl<'de> Deserialize<'de> for Inside {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        const PLACES: &str = "outside, inside or auto";
        scalar(d, PLACES, |text| {
            Urgent::named(text).map(Inside).ok_or_else(|| Error::value(text, "place of urgent programs", PLACES))
        })
    }
}

impl<'de> Deserialize<'de> for Minutes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, 100_000).map(Minutes)
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, Amount::ACCEPTED, |text| {
            Amount::parse(text).map(Memory).ok_or_else(|| Error::value(text, "amount of memory", Amount::ACCEPTED))
        })
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 1, 3).map(|level| Level(level as u8))
    }
}

impl<'de> Deserialize<'de> for Commands {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        number(d, 0, COMMANDS_MAX).map(Commands)
    }
}

impl<'de> Deserialize<'de> for Domains {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, DomainMode::HELP, |text| {
            let mode = DomainMode::named(text).map(Domains);
            mode.ok_or_else(|| Error::value(text, "mode of domains", DomainMode::HELP))
        })
    }
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        scalar(d, "a user's name or id", |text| match text.parse() {
            Ok(id) => Ok(User::Id(id)),
            // No account has such a name: it would end a line of the name service's files.
            Err(_) if text.is_empty() || text.contains([':', '\n', '\0']) => {
                Err(Error::value(text, "user", "a user's name or id"))
            }
            Err(_) => Ok(User::Name(text.to_owned())),
        })
    }
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
        let mut config = Config::default();
        for path in paths {
            let shown = path.as_ref().display();
            let text = read_text(path.as_ref())
                .map_err(|why| Error::Input(format!("cannot read the configuration {shown}: {why}")))?;
            let named = config.named.len();
            let remarks =
                config.merge(&text).map_err(|(line, message)| Error::Input(format!("{shown}:{line}: {message}")))?;
            config.notices.extend(remarks.iter().map(|(line, message)| format!("{shown}:{line}: {message}")));
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
                stays: self.memory.swap == Some(false),
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
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Config, (usize, String)> {
        Config::parsed(texts)
    }

    #[test]
    fn later_files_win_and_their_rules_come_first() {
        let c = parse(&[
            "policy = \"UP\"\nbudget_us = 900\n[limits.users.root]\nmax_class = \"system\"\n[[rule]]\nexe = \"/bin/*\"\nweight = 5\n",
            "policy = \"priority\"\n[limits]\nmax_class = \"Normal\"\n[[rule]]\nexe = \"/bin/a\"\npriority = -7\nceiling = \"high\"\n",
        ])
        .unwrap();
        assert_eq!(c.policy.as_ref().map(|p| p.entry.name), Some("hpf"));
        assert_eq!(c.budget_us(), 900);
        assert_eq!((c.ceilings(0).priority, c.ceilings(12345).priority), (255, 127));
        assert_eq!(
            c.given("/bin/a", &[], &[], 1, &Place::at("/")),
            Given { priority: Some(-7), ceiling: Some(191), ..Given::default() }
        );
        assert_eq!(c.given("/bin/b", &[], &[], 1, &Place::at("/")).hints.weight, Some(5));
        assert_eq!(c.given("/usr/bin/b", &[], &[], 1, &Place::at("/")), Given::default());
        let first = "[pool]\nenabled = false\nmax_class = \"low\"\n";
        let second = "[pool]\nenabled = true\ntimeslice_us = 900\ninner_timeslice_us = 1900\nevenness = 40\nurgent = \"Inside\"\nproven_minutes = 0\n";
        let c = parse(&[first, second]).unwrap();
        assert_eq!((c.pool_urgent(), c.pool_proven_minutes()), (Urgent::Inside, 0));
        assert_eq!((c.pool_evenness(), parse(&[first]).unwrap().pool_evenness()), (40, 100));
        assert_eq!((c.may_pool(), c.pool_max_class(), c.pool_timeslice_us(Side::Outer)), (true, Class::Low, 900));
        assert_eq!(c.pool_timeslice_us(Side::Inner), 1_900);
        let nothing = parse(&[]).unwrap();
        assert_eq!((nothing.budget_us(), nothing.ceilings(1).priority), (500, 191));
        assert_eq!((nothing.may_pool(), nothing.pool_max_class()), (true, Class::Normal));
        assert_eq!((nothing.pool_timeslice_us(Side::Outer), nothing.pool_budget_us()), (120, 400));
    }

    /// The example shows each key with its default, except keys behind which a comment names the default.
    #[test]
    fn the_example_has_the_defaults_in_force() {
        let text = include_str!("../../../../dist/config.toml");
        let (defaults, _) = text.split_once("# Examples of what has no default.").unwrap();
        let is_key = |line: &&str| line.starts_with("# ") && (line.contains(" = ") || line.starts_with("# ["));
        let keys = defaults.lines().filter(is_key).filter(|line| !line.contains("# default: "));
        let mut table = String::new();
        let mut compared = 0;
        for line in keys.map(|line| &line[2..]) {
            if line.starts_with('[') {
                table = format!("{line}\n");
                continue;
            }
            // Only for a socket of the file system are the names of programs shown by default.
            let listen = if table == "[metrics]\n" { "listen = \"unix:/m\"\n" } else { "" };
            let given = parse(&[&format!("{table}{listen}{line}\n")]).unwrap();
            let nothing = parse(&[&format!("{table}{listen}")]).unwrap();
            assert!(given != nothing || line.ends_with("{}"), "{line}: the key is read");
            assert_eq!(in_force(&given), in_force(&nothing), "{line}");
            compared += 1;
        }
        assert!(compared >= 25, "only {compared} keys are compared");
    }

    /// Values in force for a configuration, for a user without limits of one's own.
    fn in_force(c: &Config) -> Vec<String> {
        let low = Class::Low.nominal();
        let hints = c.class_hints(Class::of(low));
        let policy = c.policy.as_ref().map_or(xsched_policy::registry::DEFAULT, |p| p.entry.name);
        let given = c.given("/bin/a", &[], &[], 1, &Place::at("/"));
        vec![
            format!("{policy} {:?} {} {:?}", c.guard_us(), c.budget_us(), c.idle_exit_s),
            format!("{:?}", given.domains.unwrap_or_default()),
            format!("{:?} {:?}", c.ceilings(1), c.bounds(1, false)),
            format!("{} {:?} {:?}", c.may_pool(), c.pool_max_class(), Side::ALL.map(|side| c.pool_timeslice_us(side))),
            format!("{:?} {}", c.pool_urgent(), c.pool_proven_minutes()),
            format!("{} {}", c.pool_evenness(), c.pool_budget_us()),
            format!("{:?} {:?}", c.metrics(), c.class_rules()),
            format!(
                "{} {}",
                hints.weight.unwrap_or(class::WEIGHT_DEFAULT),
                hints.timeslice_us.unwrap_or(class::TIMESLICE_DEFAULT_US)
            ),
        ]
    }

    #[test]
    fn policies_have_parameters_devices_their_own_policy_and_rules_every_hint() {
        let c = parse(&[
            "policy = \"kedf\"\nparameters = { k = 2 }\nstarvation_s = 0\n[devices.\"sim:0\"]\npolicy = \"mlfq\"\nparameters = { recovery = \"periodic\" }\n",
            "[[rule]]\nexe = \"/bin/a\"\nutilization = 30\ndeadline = 5000\nk = 2\nlaxity = \"900:low:high\"\nactive = \"on\"\nslo = \"2ms\"\ntimeslice = 700\n[limits.users.7]\nweight = 300\n[namespaces.team-a]\nweight = 40\n",
        ])
        .unwrap();
        assert_eq!(c.policy.as_ref().unwrap().to_string(), "kedf k=2");
        assert_eq!(c.devices["sim:0"].to_string(), "mlfq recovery=periodic");
        assert_eq!((c.guard_us(), parse(&[]).unwrap().guard_us()), (None, Some(10_000_000)));
        let hints = c.given("/bin/a", &[], &[], 1, &Place::at("/")).hints;
        assert_eq!(hints.given().count(), 7, "{hints:?}");
        assert_eq!(hints.text(Hint::Laxity).as_deref(), Some("900:-128:128"));
        let rule = "[[rule]]\nexe = \"/bin/a\"\npriority = -256\nlevel = 2\nthreshold = 16\nbatch = 8\n";
        let given = parse(&[rule]).unwrap().given("/bin/a", &[], &[], 1, &Place::at("/"));
        assert_eq!((given.priority, given.level), (Some(class::PRIORITY_NEVER), Some(2)));
        assert_eq!((given.threshold, given.batch), (Some(16), Some(8)));
        assert_eq!((c.namespace_weight("team-a"), c.namespace_weight("team-b")), (40, 100));
        assert_eq!((c.user_weight(7), c.user_weight(8), c.ceilings(7).priority), (300, 100, 191));
    }

    #[test]
    fn domains_have_a_default_that_a_rule_replaces() {
        let rules = "[[rule]]\nexe = \"/bin/a\"\ndomains = \"exempt\"\n[[rule]]\nexe = \"/bin/b\"\nweight = 5\n";
        let c = parse(&[&format!("domains = \"report\"\n{rules}")]).unwrap();
        let domains = |exe| c.given(exe, &[], &[], 1, &Place::at("/")).domains;
        assert_eq!(domains("/bin/a"), Some(DomainMode::Exempt));
        assert_eq!((domains("/bin/b"), domains("/bin/c")), (Some(DomainMode::Report), Some(DomainMode::Report)));
        assert_eq!(parse(&[rules]).unwrap().given("/bin/b", &[], &[], 1, &Place::at("/")).domains, None);
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_what_is_accepted() {
        let mut wrong = Vec::new();
        for (text, line, says) in [
            ("policy = \"hpf\"\nplicy = 1\n", 2, "unknown key `plicy` of the top level: did you mean `policy`?"),
            ("\npolicy = \"fifo\"\n", 2, "'fifo' is no policy: use one of hpf, "),
            ("policy = \"kedf\"\nparameters = { k = 0 }\n", 2, "'0' is no k: use a number from 1 to 64"),
            ("policy = \"hpf\"\nparameters = { k = 1 }\n", 2, "'k' is no parameter of hpf"),
            ("parameters = { k = 1 }\n", 1, "parameters need a policy"),
            ("[devices.\"sim:0\"]\nparameters = { k = 1 }\n", 1, "missing field `policy`"),
            ("[[rule]]\nexe = \"a\"\nslo = 5\n", 3, "'5' is no slo: use a P99"),
            ("\nidle_exit_s = 0\n", 2, "'0' is out of range: use a number from 1 to"),
            ("budget_us = 0\n", 1, "'0' is out of range: use a number from 1 to 1000000"),
            ("[[rule]]\nexe = \"a\"\npriority = 999\n", 3, "'999' is no priority"),
            ("[[rule]]\nexe = \"a\"\nlevel = 4\n", 3, "'4' is out of range: use a number from 1 to 3"),
            ("[[rule]]\nexe = \"a\"\n\ncolour = 1\n", 4, "unknown key `colour` of [[rule]]: use exe, user, "),
            ("[limits]\nmax_class = \"godlike\"\n", 2, "'godlike' is no class"),
            ("[limits.users.\"a:b\"]\nmax_class = \"high\"\n", 1, "'a:b' is no user"),
            ("domains = \"first\"\n", 1, "'first' is no mode of domains: use off, report, ahead or exempt"),
            ("[[rule]]\nexe = \"a\"\ndomains = 1\n", 3, "'1' is no mode of domains"),
            ("[pool]\nenabled = 1\n", 2, "expected a boolean"),
            ("[pool]\nmax_class = 7\n", 2, "'7' is no class"),
            ("[pool]\nevenness = 101\n", 2, "'101' is out of range: use a number from 0 to 100"),
            ("policy = \"hpf\"\n[rule]\nexe = \"a\"\n", 2, "begins with [[rule]]"),
            ("policy = \n", 1, ""),
            // Text without quotation marks.
            ("policy = fair\n", 1, "text needs quotes: policy = \"fair\""),
            ("policy = trusted # none\n", 1, "text needs quotes: policy = \"trusted\""),
            ("\n[[rule]]\nexe = /opt/batch/*\n", 3, "text needs quotes: exe = \"/opt/batch/*\""),
            ("[[rule]]\ncommand = * --night\n", 2, "text needs quotes: command = \"* --night\""),
            ("[[rule]]\nslo = 2.5ms\n", 2, "text needs quotes: slo = \"2.5ms\""),
            ("[metrics]\nlisten = 127.0.0.1:9495\n", 2, "text needs quotes: listen = \"127.0.0.1:9495\""),
            (
                "policy = \"mlfq\"\nparameters = { recovery = periodic }\n",
                2,
                "text needs quotes: recovery = \"periodic\"",
            ),
            // Names that are nearly right.
            ("[[rules]]\nexe = \"a\"\n", 1, "unknown table [[rules]]: did you mean [[rule]]?"),
            ("[limit]\nconnections = 1\n", 1, "unknown table [limit]: did you mean [limits]?"),
            ("[class.low]\nweight = 1\n", 1, "unknown table [class.low]: did you mean [classes.low]?"),
            ("[Metrics]\nnames = true\n", 1, "unknown table [Metrics]: did you mean [metrics]?"),
            (
                "policy = \"up\"\n[colours]\nred = 1\n",
                2,
                "unknown table [colours]: use [devices.\"KEY\"], [limits], [[rule]], ",
            ),
            ("[[limits]]\nconnections = 1\n", 1, "use [limits]: only rules have [[ ]]"),
            (
                "max_class = \"high\"\n",
                1,
                "unknown key `max_class` of the top level: it is a key of [limits], [limits.users.NAME], [pool]",
            ),
            (
                "[limits.users.root]\nwieght = 1\n",
                2,
                "unknown key `wieght` of [limits.users.NAME]: did you mean `weight`?",
            ),
            ("[classes.low]\nweigth = 1\n", 2, "did you mean `weight`?"),
            ("[pool]\n[[rule]]\npriorty = \"low\"\n", 3, "unknown key `priorty` of [[rule]]: did you mean `priority`?"),
            ("[devices.\"sim:0\"]\npolicy = \"up\"\nparams = {}\n", 3, "unknown key `params` of [devices.\"KEY\"]"),
            ("policy = \"fiar\"\n", 1, "did you mean fair?"),
            ("[[rule]]\nexe = \"a\"\npriority = \"hgih\"\n", 3, "did you mean high?"),
            ("[limits]\nmax_class = \"nromal\"\n", 2, "did you mean normal?"),
        ] {
            match parse(&[text]) {
                Err((at, message)) if at == line && message.contains(says) && !message.contains('\n') => {}
                other => wrong.push(format!("{text:?}: line {line}, {says:?}, not {:?}", other.map(|_| "taken"))),
            }
        }
        assert!(wrong.is_empty(), "{} mistakes:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn an_account_that_is_not_known_is_remarked_on_and_counts_once_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let text = "[limits.users.no-such-account]\nconnections = 7\n[limits.users.root]\nconnections = 9\n\
                    [[rule]]\nuser = \"no-such-account\"\npriority = \"low\"\n[[rule]]\nuser = 4242\nweight = 3\n";
        std::fs::write(&file, text).unwrap();
        let mut c = Config::read(&[&file]).unwrap();
        let why = "there is no account 'no-such-account' on this machine";
        let place = file.display();
        assert_eq!(
            c.notices,
            [
                format!("{place}:1: {why}: [limits.users] for it counts once there is one"),
                format!("{place}:6: {why}: the rule for it counts once there is one"),
            ]
        );
        assert!(c.awaits_accounts);
        let of = |c: &Config| {
            let given = c.given("/bin/a", &[], &[], 4_242, &Place::at("/"));
            (c.bounds(4_242, false).connections, c.bounds(0, true).connections, given.priority, given.hints.weight)
        };
        assert_eq!(of(&c), (1_024, 9, None, Some(3)), "the rest of the file counts");
        c.learn(BTreeMap::from([("no-such-account".to_owned(), 4_242)]));
        assert_eq!(of(&c), (7, 9, Some(-128), None));
        assert!(!c.awaits_accounts);
    }

    #[test]
    fn later_limits_of_a_user_win_by_name_and_by_id() {
        let c = parse(&[
            "[limits.users.root]\nconnections = 1\njobs = 1\n",
            "[limits.users.0]\nconnections = 2\ngroups = 3\n",
        ])
        .unwrap();
        let bounds = c.bounds(0, true);
        assert_eq!((bounds.connections, bounds.jobs, bounds.groups), (2, 1, 3));
    }

    #[test]
    fn what_cannot_be_meant_is_remarked_on() {
        let remarks = |text: &str| Config::default().merge(text).unwrap();
        let rule = |conditions: &str| format!("[[rule]]\n{conditions}\nweight = 1\n");
        let mut looked_at = Vec::new();
        for (conditions, says) in [
            (
                "exe = \"./train\"",
                "begins with a slash, and \"./train\" does not: use the whole path, or the name \"train\"",
            ),
            ("exe = \"~/train\"", "begins with a slash, and \"~/train\" does not"),
            ("exe = \"bin/*\"", "begins with a slash"),
            ("exe = \"/opt/batch/\"", "is a folder: use \"/opt/batch/*\""),
            ("exe = \"\"", "exe = \"\" is a condition that nothing fulfils"),
            ("script = \"\"", "script = \"\" is a condition"),
            ("command = \"\"", "command = \"\" is a condition"),
            ("cgroup = \"\"", "cgroup = \"\" is a condition"),
            ("pod = \"\"", "pod = \"\" is a condition"),
        ] {
            looked_at.push((rule(conditions), says));
        }
        let ceiling = "[[rule]]\nexe = \"a\"\npriority = \"high\"\nceiling = \"normal\"\n".to_owned();
        looked_at.push((ceiling, "the ceiling 127 (normal) is below the priority 128 (high): the ceiling counts"));
        looked_at.push(("[devices.\"gpu0\"]\npolicy = \"up\"\n".into(), "no device has the key 'gpu0'"));
        let mut wrong = Vec::new();
        for (text, says) in looked_at {
            let found = remarks(&text);
            if !matches!(&found[..], [(1, why)] if why.contains(says)) {
                wrong.push(format!("{text:?}: {says:?}, not {found:?}"));
            }
        }
        for fine in ["exe = \"*/train\"", "exe = \"train\"", "exe = \"*\"", "priority = \"low\"\nceiling = \"low\""] {
            let found = remarks(&rule(fine));
            if !found.is_empty() {
                wrong.push(format!("{fine:?}: nothing, not {found:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} remarks:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn a_rule_behind_one_that_matches_all_that_it_does_is_remarked_on() {
        let second = |first: &str, second: &str| {
            let text = format!("[[rule]]\n{first}\nweight = 1\n[[rule]]\n{second}\nweight = 2\n");
            !Config::default().merge(&text).unwrap().is_empty()
        };
        for (first, behind) in [
            ("exe = \"*\"", "user = 7"),
            ("exe = \"**\"", "exe = \"a\""),
            ("exe = \"*\"\ncgroup = \"*\"", "script = \"a\""),
            ("exe = \"train\"", "exe = \"/nowhere/train\""),
            ("exe = \"/nowhere/*\"", "exe = \"/nowhere/batch/*\""),
            ("exe = \"python*\"", "exe = \"python3\"\nuser = 7"),
            ("script = \"*\"", "script = \"train*.py\""),
            ("command = \"*--night*\"", "command = \"* --night *\""),
            ("cgroup = \"/user.slice/*\"", "cgroup = \"/user.slice/a/*\""),
        ] {
            assert!(second(first, behind), "{first}, {behind}");
        }
        for (first, other) in [
            ("exe = \"/nowhere/*\"", "exe = \"train\""),
            ("exe = \"a*\"", "exe = \"/nowhere/a*\""),
            ("script = \"*\"", "exe = \"a\""),
            ("command = \"*\"", "user = 7"),
            ("container = \"*f\"", "container = \"0123456789abcdef\""),
            ("exe = \"*\"\nuser = 7", "exe = \"a\""),
        ] {
            assert!(!second(first, other), "{first}, {other}");
        }
    }

    #[test]
    fn a_rule_without_a_slash_means_file_names() {
        let c = parse(&["[[rule]]\nexe = \"train.py\"\nweight = 1\n[[rule]]\nexe = \"python3\"\nweight = 2\n\
             [[rule]]\nexe = \"python3*\"\nweight = 3\n[[rule]]\nexe = \"/usr/bin/ser*\"\nweight = 4\n"])
        .unwrap();
        let weight = |exe: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            c.given(exe, &names, &[], 1, &Place::at("/")).hints.weight
        };
        assert_eq!(weight("/usr/bin/python3.11", &["python3", "train.py"]), Some(1));
        assert_eq!(weight("/usr/bin/python3.11", &["python3"]), Some(2));
        assert_eq!(weight("/usr/bin/python3.11", &["python3.11"]), Some(3));
        assert_eq!(weight("/usr/bin/python3", &[]), Some(2));
        assert_eq!(weight("/usr/bin/serve", &["serve"]), Some(4));
        assert_eq!(weight("/opt/serve", &["/usr/bin/serve"]), None, "a path is the kernel's word only");
        assert_eq!(weight("/opt/python3/run", &["run"]), None);
    }

    #[test]
    fn a_rule_that_gives_nothing_is_remarked_on() {
        let mut config = Config::default();
        assert_eq!(config.merge("policy = \"up\"\nbudget_us = 900\n").unwrap(), []);
        assert_eq!(config.budget_us(), 900);
        let remarks = config.merge("[[rule]]\nweight = 7\n[[rule]]\nexe = \"a\"\n").unwrap();
        assert!(matches!(&remarks[..], [(3, line), (3, _)] if line.contains("gives nothing")), "{remarks:?}");
    }

    #[test]
    fn rules_tell_scripts_apart_and_one_that_never_matches_is_told() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let text = "[[rule]]\nscript = \"train*.py\"\nweight = 1\n[[rule]]\ncommand = \"* --night*\"\nweight = 2\n";
        let c = parse(&[text]).unwrap();
        let weight = |line: &str| c.given("/usr/bin/python3.11", &[], &words(line), 1, &Place::at("/")).hints.weight;
        assert_eq!(weight("python3 -u /home/a/train2.py"), Some(1));
        assert_eq!(weight("python3 serve.py --night"), Some(2));
        assert_eq!(weight("python3 serve.py"), None);
        let remarks = |text: &str| Config::default().merge(text).unwrap();
        let rule = |conditions: &str| format!("[[rule]]\n{conditions}\nweight = 1\n");
        assert_eq!(remarks(&rule("exe = \"train.py\"")), []);
        let after = [rule("user = 7"), rule("user = 7\nexe = \"a\"")].concat();
        assert!(
            matches!(&remarks(&after)[..], [(4, why)] if why.contains("never matches: the rule before")),
            "shadowed"
        );
        let others = [rule("user = 7"), rule("user = 8\nexe = \"a\"")].concat();
        assert_eq!(remarks(&others), []);
        assert!(
            matches!(&remarks(&rule("cgroup = \"user.slice/*\""))[..], [(1, why)] if why.contains("begins with a slash"))
        );
        assert!(matches!(&remarks(&rule("script = \"/a/b.py\""))[..], [(1, why)] if why.contains("file name")));
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::write(folder.join("python3.11"), "").unwrap();
        std::os::unix::fs::symlink("python3.11", folder.join("python3")).unwrap();
        let link = rule(&format!("exe = \"{}\"", folder.join("python3").display()));
        assert!(
            matches!(&remarks(&link)[..], [(1, why)] if why.contains("is a link to") && why.contains("\"python3\""))
        );
        let mut config = Config::default();
        config.merge(&rule("user = 7")).unwrap();
        assert_eq!(config.merge(&rule("exe = \"a\"")).unwrap(), [], "a later file's rules come first");
    }
}
