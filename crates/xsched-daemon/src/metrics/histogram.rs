//! Counts of times, in classes of fixed bounds.

/// Upper bounds in s, but for the last class, which has none: from a wake-up to what a user complains of.
const BOUNDS_S: [f64; 19] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Times that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    counts: [u64; BOUNDS_S.len() + 1],
    sum_ns: u64,
}

impl Histogram {
    /// Counts a time.
    pub(crate) fn see(&mut self, ns: u64) {
        let s = ns as f64 / 1e9;
        self.counts[BOUNDS_S.partition_point(|bound| *bound < s)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Their sum, in s.
    pub(super) fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Number of durations.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of durations in each class, by the upper limit of the class in s.
    pub(super) fn classes(&self) -> Vec<(f64, u64)> {
        BOUNDS_S.into_iter().chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_class_of_the_first_bound_that_it_does_not_exceed() {
        let mut histogram = Histogram::default();
        for ns in [0, 10_000, 10_001, 10_000_000_001] {
            histogram.see(ns);
        }
        let classes = histogram.classes();
        assert_eq!((classes[0], classes[1].1, classes[19].1), ((1e-5, 2), 1, 1));
        assert_eq!((histogram.count(), classes[19].0), (4, f64::INFINITY));
        assert!((histogram.sum_s() - 10.000_020_002).abs() < 1e-9);
    }
}
