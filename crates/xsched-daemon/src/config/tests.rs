//! Tests of the configuration.

use xsched_proto::domains::DomainMode;
use xsched_proto::hint::Hint;

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
        ("policy = \"mlfq\"\nparameters = { recovery = periodic }\n", 2, "text needs quotes: recovery = \"periodic\""),
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
        ("[limits.users.root]\nwieght = 1\n", 2, "unknown key `wieght` of [limits.users.NAME]: did you mean `weight`?"),
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
    let c =
        parse(&["[limits.users.root]\nconnections = 1\njobs = 1\n", "[limits.users.0]\nconnections = 2\ngroups = 3\n"])
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
    assert!(matches!(&remarks(&after)[..], [(4, why)] if why.contains("never matches: the rule before")), "shadowed");
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
    assert!(matches!(&remarks(&link)[..], [(1, why)] if why.contains("is a link to") && why.contains("\"python3\"")));
    let mut config = Config::default();
    config.merge(&rule("user = 7")).unwrap();
    assert_eq!(config.merge(&rule("exe = \"a\"")).unwrap(), [], "a later file's rules come first");
}
