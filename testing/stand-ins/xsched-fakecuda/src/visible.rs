//! `CUDA_VISIBLE_DEVICES`.

/// Devices that a process sees, in its order: of `there` devices those listed, up to the first that does not exist or
/// is repeated.
pub(crate) fn visible(there: usize, chosen: Option<&str>) -> Vec<usize> {
    let Some(chosen) = chosen else { return (0..there).collect() };
    let mut visible = Vec::new();
    for word in chosen.split(',') {
        match word.trim().parse() {
            Ok(number) if number < there && !visible.contains(&number) => visible.push(number),
            _ => break,
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn visible_devices_are_those_named_in_their_order_up_to_a_wrong_one() {
        assert_eq!(visible(3, None), [0, 1, 2]);
        assert_eq!(visible(3, Some("2, 0")), [2, 0]);
        assert_eq!(visible(3, Some("1,7,0")), [1]);
        assert_eq!(visible(3, Some("1,1,0")), [1]);
        assert!(visible(3, Some("")).is_empty() && visible(3, Some("-1")).is_empty());
    }
}
