//! Files of pass-through rules, as the preload library reads them.

#[path = "../../xsched-shim/src/domain/json.rs"]
mod json;
#[path = "../../xsched-shim/src/domain/rule_file.rs"]
mod rule_file;

/// Functions that rules may name.
const HOOKED: [&str; 4] = ["cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyAsync", "hipLaunchKernel"];

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(why) = json::read(text) {
        assert!(why.to_string().starts_with("line "), "an error tells its line: {why}");
    }
    let read = rule_file::read(text, &HOOKED);
    if let Err(why) = &read {
        assert!(!why.to_string().is_empty());
    }
    let passes = |(name, passes): &(String, Option<bool>)| name == HOOKED[2] && *passes == Some(true);
    crate::planted(|| {
        read.is_ok_and(|(rules, _)| rules.mode == rule_file::Mode::Blacklist && rules.apis.iter().any(passes))
    });
}
