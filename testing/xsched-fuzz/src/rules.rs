//! Fuzz target for files of pass-through rules, as the preload library reads them.

#[path = "../../../crates/xsched-shim/src/domain/json.rs"]
mod json;
#[allow(dead_code)] // What the hooks look at.
#[path = "../../../crates/xsched-shim/src/domain/rule_file.rs"]
mod rule_file;

/// Functions that rules may name.
const HOOKED: [&str; 4] = ["cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyAsync", "hipLaunchKernel"];

pub(crate) const WORDS: &[&str] = &[
    "passthrough",
    "passthrough_mode",
    "mode",
    "libraries",
    "apis",
    "blacklist",
    "whitelist",
    "schedule",
    "cuLaunchKernel",
    "cuMemcpy*",
    "hipLaunchKernel",
    "libhipblas.so",
    "*",
    "true",
    "false",
    "null",
    "-1.5e3",
    "1e999",
    "\\u00e4",
    "\\ud800",
    "//",
    "/*",
    "*/",
    "[]",
    "{}",
    "\"\"",
];

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let value = json::read(text);
    if let Err(why) = &value {
        assert!(why.to_string().starts_with("line "), "an error tells its line: {why}");
    }
    if let Err(why) = rule_file::read(text, &HOOKED) {
        assert!(!why.to_string().is_empty());
    }
    crate::planted::planted(|| value.is_ok_and(|value| depth(&value) >= 4));
}

fn depth(value: &json::Value) -> usize {
    match value {
        json::Value::List(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        json::Value::Map(map) => 1 + map.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
