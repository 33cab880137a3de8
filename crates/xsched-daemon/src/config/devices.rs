//! Keys of devices.

/// Forms of keys: what a platform names its devices by.
const FORMS: &str = "sim:0, cpu:host, pci:0000:41:00.0, mig:UUID or opencl:NAME";

/// Reason for which no device has this key, in one line; none = one may have it.
pub fn odd_key(key: &str) -> Option<String> {
    let (kind, rest) = key.split_once(':').unwrap_or((key, ""));
    let is_possible = match kind {
        "sim" => !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()),
        "cpu" => rest == "host",
        "pci" => is_address(rest),
        "mig" | "opencl" => !rest.is_empty(),
        _ => false,
    };
    (!is_possible).then(|| format!("no device has the key '{key}': see xsched ps; keys are like {FORMS}"))
}

/// Reports whether a text is the address of a PCI function, in the form that keys have it: `0000:41:00.0`.
fn is_address(text: &str) -> bool {
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        digits.contains(&text.len()) && text.bytes().all(is_digit)
    };
    let Some((address, function)) = text.split_once('.') else { return false };
    match address.split(':').collect::<Vec<_>>()[..] {
        [domain, bus, device] => hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_device_has_are_told() {
        for key in ["sim:0", "sim:12", "cpu:host", "pci:0000:41:00.0", "pci:00010001:c3:1f.7", "mig:1-2", "opencl:Mali"]
        {
            assert_eq!(odd_key(key), None, "{key}");
        }
        for key in ["gpu0", "0", "", "sim", "sim:", "sim:x", "cpu:0", "pci:41:00.0", "0000:41:00.0", "pci:0000:4A:00.0"]
        {
            assert!(odd_key(key).is_some_and(|why| why.contains("see xsched ps")), "{key}");
        }
    }
}
