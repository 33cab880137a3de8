//! JSON Schema of the configuration.

use serde_json::{Map, Value, json};
use xsched_policy::{Accepts, Param, registry};
use xsched_proto::class::{Class, PRIORITY_MAX, PRIORITY_MIN, PRIORITY_NEVER};
use xsched_proto::hint::{Hint, TIME_MAX_US};

use super::keys::{Key, keys};

/// Account: a name or an id.
const ACCOUNT: &str = "^[^:\\n\\u0000]+$";
/// Addresses that `[metrics]` may listen at: a socket, and a port that other machines do or do not reach.
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])";
const PORT: &str = "0{0,4}(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[0-5]?[0-9]{1,4})";

/// Amount of memory. The part of a device is at most 100 %.
const MEMORY: &str = "^\\s*(?:[0-9]+(?:\\.[0-9]+)?\\s*(?:[bB]|[bB][yY][tT][eE][sS]?|[kKmMgGtT](?:[iI]?[bB]?)|[pP][iI][bB])|(?:100|[0-9]?[0-9](?:\\.[0-9]+)?)\\s*%)\\s*$";

/// Makes the schema from the table of keys. It accepts what a daemon accepts, except for conditions that a schema cannot express: the sum
/// of all guarantees, the size of an `slo`, and that of a time with a unit.
pub(super) fn schema() -> Value {
    let keys = keys();
    let object = |table: &str| {
        let within = keys.iter().filter(|key| key.table == table);
        let properties: Map<String, Value> = within.clone().map(|key| (key.name.clone(), value(key))).collect();
        let required: Vec<&str> = within.filter(|key| key.default == "required").map(|key| key.name.as_str()).collect();
        json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required })
    };
    let each = |of: Value| json!({ "type": "object", "additionalProperties": of });
    let mut schema = object("");
    schema["allOf"] = parameters();
    let mut limits = object("limits");
    limits["properties"]["users"] = each(object("limits.users.NAME"));
    limits["properties"]["users"]["propertyNames"] = json!({ "pattern": ACCOUNT });
    let mut classes = each(object("classes.NAME"));
    classes["propertyNames"] = words(class_names());
    let mut device = object("devices.KEY");
    device["allOf"] = parameters();
    let mut metrics = object("metrics");
    let local = format!("^(?:unix:/.{{0,106}}|127(?:\\.{OCTET}){{3}}:{PORT}|\\[(?:::1|(?:0:){{7}}1)\\]:{PORT})$");
    metrics["if"] = json!({ "properties": { "network": { "const": true } }, "required": ["network"] });
    metrics["else"] = json!({ "properties": { "listen": { "pattern": local } } });
    let parts = [
        ("devices", each(device)),
        ("limits", limits),
        ("rule", json!({ "type": "array", "items": object("rule") })),
        ("classes", classes),
        ("namespaces", each(object("namespaces.NAME"))),
        ("pool", object("pool")),
        ("yield", object("yield")),
        ("memory", object("memory")),
        ("metrics", metrics),
    ];
    for (name, part) in parts {
        let about = schema["properties"][name]["description"].take();
        schema["properties"][name] = part;
        schema["properties"][name]["description"] = about;
    }
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("configuration of xsched");
    schema
}

fn value(key: &Key) -> Value {
    let mut value = accepted(key);
    let default = if key.default.is_empty() { String::new() } else { format!("; default: {}", key.default) };
    value["description"] = json!(format!("{}{default}", key.about));
    value
}

/// Schema for the accepted values, from the words of the reference.
fn accepted(key: &Key) -> Value {
    if let Some((least, most)) = key.values.split_once("..")
        && let (Ok(least), Ok(most)) = (least.parse::<u64>(), most.parse::<u64>())
    {
        return number(least, most);
    }
    match key.values.as_str() {
        "a class" => words(class_names()),
        "`20GiB`, `25%`" => json!({ "type": "string", "pattern": MEMORY }),
        "a policy's name" => {
            let mut all = words(registry::POLICIES.iter().flat_map(|entry| names(entry)));
            all["anyOf"][0]["enum"] = registry::listed().map(|entry| entry.name).collect();
            all
        }
        "true, false" => json!({ "type": "boolean" }),
        "`unix:/PATH`, or an address with a port" => {
            let address = format!(
                "^(?:unix:/.{{0,106}}|{OCTET}(?:\\.{OCTET}){{3}}:{PORT}|\\[[0-9A-Fa-f:.]+(?:%[0-9]+)?\\]:{PORT})$"
            );
            json!({ "type": "string", "pattern": address })
        }
        "table" | "tables" => json!({ "type": "object" }),
        "list of tables" => json!({ "type": "array" }),
        "name or number" => json!({ "anyOf": [{ "type": "string", "pattern": ACCOUNT }, { "type": "integer" }] }),
        text if text.starts_with("class or ") => {
            let integer = json!({ "type": "integer", "minimum": PRIORITY_NEVER, "maximum": PRIORITY_MAX });
            let text = format!("^(?:{})$", priority(PRIORITY_NEVER));
            json!({ "anyOf": [{ "enum": class_names().collect::<Vec<_>>() }, integer, { "type": "string", "pattern": text }] })
        }
        text if text.starts_with("as ") => Hint::ALL
            .into_iter()
            .find(|hint| hint.name() == key.name)
            .map_or_else(|| json!({ "type": ["string", "integer"] }), hint),
        text if text.starts_with('`') => words(text.split(", ").map(|word| word.trim_matches('`'))),
        _ => json!({ "type": "string" }),
    }
}

/// Values of a hint. Blanks around a text do not count.
fn hint(hint: Hint) -> Value {
    let text = |pattern: String| json!({ "type": "string", "pattern": format!("^\\s*(?:{pattern})\\s*$") });
    let integer = |least: u64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let (none, minus) = (any_case("none") + "|-1", json!({ "const": -1 }));
    let range = |least: u64, most: u64| json!({ "anyOf": [integer(least, most), text(digits(least, most))] });
    let or_none = |least: u64, most: u64| json!({ "anyOf": [integer(least, most), minus.clone(), text(format!("{}|{none}", digits(least, most)))] });
    match hint {
        Hint::Weight => range(1, 10_000),
        Hint::Utilization => range(0, 100),
        Hint::Timeslice => json!({ "anyOf": [integer(100, 10_000_000), text(time(100, 10_000_000))] }),
        Hint::Deadline => {
            json!({ "anyOf": [integer(1, TIME_MAX_US), minus, text(format!("{}|{none}", time(1, TIME_MAX_US)))] })
        }
        Hint::K => or_none(1, xsched_proto::hint::K_MAX.into()),
        Hint::Laxity => {
            let (time, class) = (time(1, TIME_MAX_US), priority(PRIORITY_MIN));
            let laxity = format!("(?:{time})(?::(?:{class}):(?:{class}))?|{none}");
            json!({ "anyOf": [integer(1, TIME_MAX_US), minus, text(laxity)] })
        }
        Hint::Active => {
            let on_off = ["on", "off", "true", "false", "0", "1"].map(any_case).join("|");
            json!({ "anyOf": [{ "enum": ["on", "off"] }, integer(0, 1), text(on_off)] })
        }
        Hint::Slo => {
            let number = "\\+?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?";
            json!({ "anyOf": [minus, text(format!("(?:p99=)?{number}(?:us|µs|ms|s)|slowdown={number}x?|{number}x|{none}"))] })
        }
    }
}

/// Rules for the parameters of a policy: those of the policy beside them, and none without one.
fn parameters() -> Value {
    let without = json!({
        "if": { "not": { "required": ["policy"] } },
        "then": { "properties": { "parameters": { "maxProperties": 0 } } },
    });
    let value = |param: &Param| match param.accepts {
        Accepts::Number { least, most, .. } => number(least, most),
        Accepts::Word(known) => words(known.iter().copied()),
    };
    let of = |entry: &registry::Entry| {
        let known: Map<String, Value> =
            entry.params.iter().map(|param| (param.name.to_owned(), value(param))).collect();
        let parameters = json!({ "additionalProperties": false, "properties": known });
        json!({
            "if": { "properties": { "policy": words(names(entry)) }, "required": ["policy"] },
            "then": { "properties": { "parameters": parameters } },
        })
    };
    std::iter::once(without).chain(registry::POLICIES.iter().map(|entry| of(entry))).collect()
}

fn names(entry: &registry::Entry) -> impl Iterator<Item = &'static str> {
    std::iter::once(entry.name).chain(entry.aliases.iter().copied())
}

/// Names of classes, and the other name of `low`.
fn class_names() -> impl Iterator<Item = &'static str> {
    Class::ALL.into_iter().map(Class::name).chain(["batch"])
}

/// Words in upper or lower case. Editors offer them as they are listed.
fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Value {
    let words: Vec<&str> = words.into_iter().collect();
    let pattern = words.iter().map(|word| any_case(word)).collect::<Vec<_>>().join("|");
    json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": format!("^(?:{pattern})$") }] })
}

/// Number within bounds, which may be in quotation marks, as on the command line.
fn number(least: u64, most: u64) -> Value {
    let text = format!("^(?:{})$", digits(least, most));
    json!({ "anyOf": [{ "type": "integer", "minimum": least, "maximum": most }, { "type": "string", "pattern": text }] })
}

/// Pattern of a class or of a priority from `least`, which is below zero.
fn priority(least: i32) -> String {
    let classes = class_names().map(any_case).collect::<Vec<_>>().join("|");
    let above = digits(0, u64::from(PRIORITY_MAX.unsigned_abs()));
    let below = between(0, u64::from(least.unsigned_abs()));
    format!("{classes}|{above}|-0*(?:{below})")
}

/// Pattern of a number as users type it: a plus and further zeros may stand before it.
fn digits(least: u64, most: u64) -> String {
    format!("\\+?0*(?:{})", between(least, most))
}

/// Pattern of a time: numbers with units, whose range no pattern tells, or a number of µs within bounds.
fn time(least_us: u64, most_us: u64) -> String {
    let unit = "us|µs|μs|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?";
    format!("(?:[0-9]+(?:\\.[0-9]+)?\\s*(?:{unit})\\s*)+|0*(?:{})", between(least_us, most_us))
}

/// Pattern of the numbers between two, in decimal digits.
fn between(least: u64, most: u64) -> String {
    let mut parts = Vec::new();
    let mut from = least;
    while from <= most {
        let nines = 10u64.pow(from.to_string().len() as u32) - 1;
        let to = nines.min(most);
        parts.push(alike(&from.to_string(), &to.to_string()));
        from = to + 1;
    }
    parts.join("|")
}

/// Pattern of the numbers between two that have equally many digits.
fn alike(least: &str, most: &str) -> String {
    let (Some((low, lower)), Some((high, upper))) = (least.split_at_checked(1), most.split_at_checked(1)) else {
        return String::new();
    };
    let (zeros, nines) = ("0".repeat(lower.len()), "9".repeat(lower.len()));
    if least.bytes().all(|byte| byte == b'0') && most.bytes().all(|byte| byte == b'9') {
        return format!("[0-9]{{{}}}", least.len());
    }
    if low == high {
        return format!("{low}(?:{})", alike(lower, upper));
    }
    let digit = |text: &str| text.bytes().next().unwrap_or(b'0');
    let mut parts = vec![format!("{low}(?:{})", alike(lower, &nines))];
    if digit(low) + 1 < digit(high) {
        let (from, to) = (char::from(digit(low) + 1), char::from(digit(high) - 1));
        parts.push(format!("[{from}-{to}][0-9]{{{}}}", lower.len()));
    }
    parts.push(format!("{high}(?:{})", alike(&zeros, upper)));
    parts.join("|")
}

/// Pattern of a word in upper or lower case.
fn any_case(word: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' => format!("[{}{}]", letter.to_ascii_uppercase(), letter.to_ascii_lowercase()),
        '0'..='9' | '_' | '-' => letter.to_string(),
        other => format!("\\{other}"),
    };
    word.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn example(text: &str) -> Value {
        let table: toml::Table = toml::from_str(text).unwrap();
        serde_json::to_value(table).unwrap()
    }

    #[test]
    fn the_example_with_every_key_obeys_the_schema_and_the_daemon() {
        let text = include_str!("../../../../../dist/config.toml");
        let is_key = |line: &&str| line.starts_with("# ") && (line.contains(" = ") || line.starts_with("# ["));
        let all: String = text.lines().filter(is_key).map(|line| format!("{}\n", &line[2..])).collect();
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let faults: Vec<String> =
            validator.iter_errors(&example(&all)).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert!(faults.is_empty(), "{faults:?}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, &all).unwrap();
        assert_eq!(xsched_daemon::check_config(&[file]), Ok(Vec::new()));
        for key in keys() {
            let line =
                |l: &str| l.starts_with(&format!("{} = ", key.name)) || l.starts_with('[') && l.contains(&key.name);
            assert!(all.lines().any(line), "{} of [{}] is not in the example", key.name, key.table);
        }
    }

    #[test]
    fn the_schema_refuses_what_the_daemon_refuses() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for wrong in [
            "budget_us = 0",
            "colour = 1",
            "policy = \"fifo\"",
            "[limits]\nmax_class = \"godlike\"",
            "[pool]\nenabled = 1",
            "[[rule]]\nexe = 1",
            "[classes.high]\nguarantee_percent = 91",
            "[devices.\"sim:0\"]\nparameters = {}",
            "[rule]\nexe = \"a\"",
        ] {
            assert!(!validator.is_valid(&example(wrong)), "{wrong}");
        }
    }

    /// Values that some key accepts and others refuse: in TOML, with a word on each side of a bound.
    fn candidates() -> Vec<String> {
        let bounds = [
            1,
            3,
            64,
            90,
            100,
            128,
            255,
            256,
            3_600,
            10_000,
            100_000,
            1_000_000,
            1_048_576,
            10_000_000,
            31_536_000,
            3_600_000_000,
        ];
        let numbers: BTreeSet<i64> =
            bounds.into_iter().flat_map(|n: i64| [n - 1, n, n + 1]).chain([-1, -255, -256, -257]).collect();
        let texts = [
            "low",
            "HIGH",
            "Batch",
            "system",
            "hpf",
            "edf",
            "UP",
            "priority",
            "external",
            "fifo",
            "off",
            "Report",
            "ahead",
            "exempt",
            "on",
            "True",
            "inside",
            "Outside",
            "auto",
            "none",
            "None",
            "",
            " ",
            "a:b",
            "+7",
            "007",
            " 7",
            "-0",
            "2.5ms",
            "p99=2.5ms",
            "2500us",
            "1.05x",
            "slowdown=1.05",
            "2ns",
            "2000:low:HIGH",
            "2000:-255:7",
            "5:low",
            "5:low:-256",
            "unix:/m",
            "unix:m",
            "unix:",
            "127.0.0.1:9495",
            "127.1.2.3:0",
            "127.0.0.1",
            "127.0.0.1:65536",
            "[::1]:80",
            "localhost:80",
            "0.0.0.0:1",
        ];
        let quoted = numbers.iter().map(|n| format!("\"{n}\"")).chain(texts.map(|text| format!("{text:?}")));
        let others = ["true", "false", "1.5", "[]", "[1]", "{}", "{ a = 1 }"].map(str::to_owned);
        numbers.iter().map(i64::to_string).chain(quoted).chain(others).collect()
    }

    #[test]
    fn the_schema_accepts_what_the_daemon_accepts_and_nothing_else() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let mut differ = Vec::new();
        let mut accepted = 0;
        let mut compare = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let (daemon, schema) =
                (xsched_daemon::check_config(std::slice::from_ref(&file)), validator.is_valid(&example(text)));
            accepted += usize::from(schema);
            if daemon.is_ok() != schema {
                differ.push(format!("{text:?}: the schema says {schema}, the daemon {daemon:?}"));
            }
        };
        let candidates = candidates();
        // Values that are written alike are tried with one key of a kind, and some of them with each key.
        let some: Vec<String> = candidates.iter().step_by(19).cloned().collect();
        let mut tried = BTreeSet::new();
        for key in keys() {
            // Contents of a table are tried by the table's own keys.
            if ["table", "tables", "list of tables"].contains(&key.values.as_str()) {
                continue;
            }
            let (heading, beside) = match key.table.as_str() {
                "" => (String::new(), ""),
                "rule" => ("[[rule]]\n".into(), ""),
                "limits.users.NAME" => ("[limits.users.root]\n".into(), ""),
                "classes.NAME" => ("[classes.high]\n".into(), ""),
                "namespaces.NAME" => ("[namespaces.a]\n".into(), ""),
                "devices.KEY" => ("[devices.\"sim:0\"]\n".into(), ""),
                "metrics" if key.name == "network" => ("[metrics]\n".into(), "listen = \"0.0.0.0:1\"\n"),
                table => (format!("[{table}]\n"), ""),
            };
            let mut kind = value(&key);
            kind["description"].take();
            let candidates = if tried.insert(kind.to_string()) { &candidates } else { &some };
            candidates.iter().for_each(|value| compare(&format!("{heading}{beside}{} = {value}\n", key.name)));
        }
        for entry in registry::POLICIES {
            for (head, candidates) in [("", &candidates), ("[devices.\"sim:0\"]\n", &some)] {
                compare(&format!("{head}policy = {:?}\nparameters = {{ no_such = 1 }}\n", entry.name));
                for (param, value) in
                    entry.params.iter().flat_map(|param| candidates.iter().map(move |value| (param, value)))
                {
                    compare(&format!("{head}policy = {:?}\nparameters = {{ {} = {value} }}\n", entry.name, param.name));
                }
                let words = entry.params.iter().flat_map(|param| match param.accepts {
                    Accepts::Word(words) => words.iter().map(|word| (param.name, word.to_uppercase())).collect(),
                    Accepts::Number { .. } => Vec::new(),
                });
                words.for_each(|(name, word)| {
                    compare(&format!("{head}policy = {:?}\nparameters = {{ {name} = {word:?} }}\n", entry.name))
                });
            }
        }
        for text in [
            "parameters = {}",
            "parameters = { k = 1 }",
            "[devices.\"sim:0\"]\nparameters = {}",
            "[classes.batch]\nweight = 1",
            "[classes.HIGH]\nweight = 1",
            "[classes.7]\nweight = 1",
            "[classes.godlike]\nweight = 1",
            "[limits.users.1000]\nweight = 1",
            "[limits.users.\"a:b\"]\nweight = 1",
            "[metrics]\nlisten = \"0.0.0.0:1\"\nnetwork = false",
            "[metrics]\nlisten = \"[::]:1\"\nnetwork = true",
        ] {
            compare(text);
        }
        assert!(differ.is_empty(), "{} differ, such as {:#?}", differ.len(), &differ[..differ.len().min(40)]);
        assert!(accepted > 1_000, "only {accepted} were accepted");
    }
}
