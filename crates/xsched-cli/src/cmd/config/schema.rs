//! JSON Schema of the configuration.

use serde_json::{Map, Value, json};
use xsched_policy::registry;
use xsched_proto::class::Class;

use super::keys::{Key, keys};

/// Makes the schema from the table of keys.
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
    let mut limits = object("limits");
    limits["properties"]["users"] = each(object("limits.users.NAME"));
    let mut classes = each(object("classes.NAME"));
    classes["propertyNames"] = json!({ "enum": Class::ALL.map(Class::name) });
    let parts = [
        ("devices", each(object("devices.KEY"))),
        ("limits", limits),
        ("rule", json!({ "type": "array", "items": object("rule") })),
        ("classes", classes),
        ("namespaces", each(object("namespaces.NAME"))),
        ("pool", object("pool")),
        ("yield", object("yield")),
        ("metrics", object("metrics")),
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
    let mut value = accepted(&key.values);
    let default = if key.default.is_empty() { String::new() } else { format!("; default: {}", key.default) };
    value["description"] = json!(format!("{}{default}", key.about));
    value
}

/// Schema for the accepted values, from the words of the reference.
fn accepted(values: &str) -> Value {
    let classes = Class::ALL.map(Class::name);
    // Numbers may also be in quotation marks, as on the command line, and names in upper or lower case.
    if let Some((least, most)) = values.split_once("..").filter(|(least, _)| least.parse::<i64>().is_ok())
        && let Ok(most) = most.parse::<i64>()
    {
        return json!({ "type": "integer", "minimum": least.parse::<i64>().unwrap_or(0), "maximum": most });
    }
    match values {
        "a class" => json!({ "enum": classes }),
        "a policy's name" => json!({ "enum": registry::listed().map(|entry| entry.name).collect::<Vec<_>>() }),
        "true, false" => json!({ "type": "boolean" }),
        "`unix:/PATH`, or an address with a port" => json!({ "type": "string", "pattern": "^unix:/|:[0-9]+$" }),
        "seconds from 1" => json!({ "type": "integer", "minimum": 1 }),
        "table" | "tables" => json!({ "type": "object" }),
        "list of tables" => json!({ "type": "array" }),
        "name or number" => json!({ "type": ["string", "integer"] }),
        text if text.starts_with("class or ") => {
            json!({ "anyOf": [{ "enum": classes }, { "const": "batch" }, { "type": "integer", "minimum": -256, "maximum": 255 }] })
        }
        text if text.starts_with("as ") => json!({ "type": ["string", "integer"] }),
        text if text.starts_with('`') => {
            json!({ "enum": text.split(", ").map(|word| word.trim_matches('`')).collect::<Vec<_>>() })
        }
        _ => json!({ "type": "string" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
