//! Pass-through rules of the preload library, as far as its reader of JSON.

#[allow(dead_code)] // what only rules look at
#[path = "../../xsched-shim/src/domain/json.rs"]
mod json;

use json::Value;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = json::read(text);
    if let Err(why) = &read {
        assert!(why.to_string().starts_with("line "), "an error tells its line: {why}");
    }
    crate::planted(|| read.is_ok_and(|value| depth(&value) >= 4));
}

fn depth(value: &Value) -> usize {
    match value {
        Value::List(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Map(map) => 1 + map.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
