//! Faults of a configuration file, in the words of its author: keys, tables and quotation marks instead of the reader's types.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use xsched_proto::similar::nearest;

use super::limits::{Limits, UserLimits};
use super::metrics::MetricsTable;
use super::{ClassTable, DeviceTable, File, MemoryTable, NamespaceTable, PoolTable, Rule, YieldTable};

/// Tables of a file, by their headings; the first is the top level.
const TABLES: [&str; 11] = [
    "",
    "devices.KEY",
    "limits",
    "limits.users.NAME",
    "rule",
    "classes.NAME",
    "namespaces.NAME",
    "pool",
    "yield",
    "memory",
    "metrics",
];

/// Keys of a table that is read as `T`.
fn keys_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    struct Keys<'a>(&'a mut &'static [&'static str]);
    impl<'de> Deserializer<'de> for Keys<'_> {
        type Error = de::value::Error;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(de::Error::custom("a table"))
        }
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            keys: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = keys;
            Err(de::Error::custom("its keys are known"))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut keys: &'static [&'static str] = &[];
    // The value itself is not wanted.
    let _ = T::deserialize(Keys(&mut keys));
    keys
}

/// All tables with their keys, as the file's types have them.
pub(crate) fn tables() -> [(&'static str, &'static [&'static str]); 11] {
    let [top, device, limits, user, rule, class, namespace, pool, yields, memory, metrics] = TABLES;
    [
        (top, keys_of::<File>()),
        (device, keys_of::<DeviceTable>()),
        (limits, keys_of::<Limits>()),
        (user, keys_of::<UserLimits>()),
        (rule, keys_of::<Rule>()),
        (class, keys_of::<ClassTable>()),
        (namespace, keys_of::<NamespaceTable>()),
        (pool, keys_of::<PoolTable>()),
        (yields, keys_of::<YieldTable>()),
        (memory, keys_of::<MemoryTable>()),
        (metrics, keys_of::<MetricsTable>()),
    ]
}

/// Line of a fault, and the fault as its author reads it.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> (usize, String) {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let number = text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
    let line = text.lines().nth(number).unwrap_or_default().trim();
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    if let Some((number, name)) = list_of_tables(text).filter(|_| message.starts_with("invalid type")) {
        return (number + 1, format!("use [{name}]: only rules have [[ ]]"));
    }
    let better = match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((key, _)) => Some(unknown(text, number, line, key)),
        // The file uses the wrong one of TOML's two kinds of headings.
        None if message.contains("expected a sequence") && text.lines().any(|l| l.trim_end() == "[rule]") => {
            Some("each rule begins with [[rule]], not with [rule]".into())
        }
        None => unquoted(line).map(|(key, value)| format!("text needs quotes: {key} = \"{value}\"")),
    };
    (number + 1, better.unwrap_or(message))
}

/// Line and name of the first list of tables that is none.
fn list_of_tables(text: &str) -> Option<(usize, &str)> {
    let mut lists = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("[["));
    lists.find_map(|(number, line)| {
        let name = line.split('#').next()?.trim().trim_matches(['[', ']', ' ']);
        let first = name.split('.').next();
        let is_table = |table: &&str| *table != "rule" && table.split('.').next() == first;
        TABLES.iter().skip(1).any(is_table).then_some((number, name))
    })
}

/// Heading of a table, as it stands in a file.
fn heading(table: &str) -> String {
    match table {
        "" => "the top level".to_owned(),
        "rule" => "[[rule]]".to_owned(),
        "devices.KEY" => "[devices.\"KEY\"]".to_owned(),
        _ => format!("[{table}]"),
    }
}

/// Line about a key or a table that does not exist, with what was probably meant.
fn unknown(text: &str, number: usize, line: &str, key: &str) -> String {
    let first = |heading: &str| heading.trim_matches(['[', ']', ' ']).split('.').next().unwrap_or_default().to_owned();
    if line.starts_with('[') && first(line) == key {
        let known = TABLES.iter().skip(1).filter(|table| !table.contains("users"));
        let names: Vec<String> = known.clone().map(|table| first(table)).collect();
        let meant = nearest(key, names.iter().map(String::as_str)).map(|meant| match meant {
            "rule" => "[[rule]]".to_owned(),
            _ => format!("[{}]", line.trim_matches(['[', ']', ' ']).replacen(key, meant, 1)),
        });
        return match meant {
            Some(meant) => format!("unknown table {line}: did you mean {meant}?"),
            None => format!(
                "unknown table {line}: use {}",
                known.map(|table| heading(table)).collect::<Vec<_>>().join(", ")
            ),
        };
    }
    let table = table_of(text, number);
    let tables = tables();
    let keys = tables.iter().find(|(known, _)| *known == table).map_or(&[][..], |(_, keys)| *keys);
    let what = format!("unknown key `{key}` of {}", heading(table));
    if let Some(meant) = nearest(key, keys.iter().copied()) {
        return format!("{what}: did you mean `{meant}`?");
    }
    let elsewhere: Vec<String> =
        tables.iter().filter(|(_, keys)| keys.contains(&key)).map(|(table, _)| heading(table)).collect();
    if elsewhere.is_empty() {
        format!("{what}: use {}", keys.join(", "))
    } else {
        format!("{what}: it is a key of {}", elsewhere.join(", "))
    }
}

/// Table that a line belongs to, by the last heading above it.
fn table_of(text: &str, number: usize) -> &'static str {
    let lines: Vec<&str> = text.lines().take(number + 1).collect();
    let Some(last) = lines.iter().rev().find(|line| line.trim_start().starts_with('[')) else { return "" };
    let name = last.trim().trim_matches(['[', ']', ' ']);
    let first = name.split('.').next().unwrap_or_default();
    match first {
        "limits" if name.starts_with("limits.users.") => "limits.users.NAME",
        _ => TABLES.into_iter().skip(1).find(|table| table.split('.').next() == Some(first)).unwrap_or(""),
    }
}

/// Key and value of a line whose value would be accepted with quotation marks only.
fn unquoted(line: &str) -> Option<(&str, &str)> {
    let bare = |part: &'_ str| -> Option<(usize, usize, usize)> {
        let (key, value) = part.split_once('=')?;
        let value = value.split('#').next().unwrap_or_default().trim();
        let reads = |value: &str| toml::from_str::<toml::Table>(&format!("x = {value}")).is_ok();
        let is_text = !value.is_empty() && !value.contains(['"', '\'', '\\']) && !reads(value);
        let start = part.find(value)?;
        (is_text && reads(&format!("\"{value}\""))).then_some((key.trim().len(), start, value.len()))
    };
    // Values of a table in one line stand between its braces.
    let parts = if line.contains('{') { line.split(['{', '}', ',']).collect() } else { vec![line] };
    parts.into_iter().map(str::trim).find_map(|part| {
        let (key, start, length) = bare(part)?;
        Some((&part[..key], &part[start..start + length]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_keys() {
        for (table, keys) in tables() {
            assert!(!keys.is_empty(), "[{table}]");
        }
        let keys = |name| tables().into_iter().find(|(table, _)| *table == name).unwrap().1;
        assert!(keys("").contains(&"yield") && keys("rule").contains(&"slo") && keys("limits").contains(&"users"));
    }
}
