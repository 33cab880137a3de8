//! CLOCK_MONOTONIC in time namespaces: each namespace has an offset of its own.

/// Offset of this process's CLOCK_MONOTONIC from the machine's, in ns: positive if it is ahead; 0 outside of time namespaces, and where it
/// cannot be found out.
pub fn offset_ns() -> i64 {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    // The file shows the offsets of the namespace that child processes get.
    if namespace("time") != namespace("time_for_children") {
        return 0;
    }
    std::fs::read_to_string("/proc/self/timens_offsets").ok().and_then(|text| monotonic(&text)).unwrap_or(0)
}

/// Offset of CLOCK_MONOTONIC in ns, from the text of time_namespaces(7).
fn monotonic(text: &str) -> Option<i64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix("monotonic "))?.split_whitespace();
    let mut number = || words.next()?.parse::<i64>().ok();
    number()?.checked_mul(1_000_000_000)?.checked_add(number()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_the_kernel_tells_them() {
        assert_eq!(monotonic("monotonic           0         0\nboottime            0         0\n"), Some(0));
        assert_eq!(monotonic("monotonic       86400 500000000\nboottime  1 0\n"), Some(86_400_500_000_000));
        assert_eq!(monotonic("monotonic          -2 500000000\n"), Some(-1_500_000_000));
        for other in ["", "boottime 1 0\n", "monotonic x 0\n", "monotonic 1\n", "monotonic 9223372036854775807 0\n"] {
            assert_eq!(monotonic(other), None, "{other}");
        }
    }
}
