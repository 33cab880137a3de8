//! Times counted in buckets whose width grows with the time: quantiles are exact to 0.8 percent.

/// Buckets for each power of two.
const PARTS: u32 = 64;

/// Times in ns, counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    longest_ns: u64,
}

fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PARTS.ilog2() + 1);
    (shift * PARTS) as usize + (ns >> shift) as usize
}

/// Middle of a bucket, in ns.
fn middle(at: usize) -> u64 {
    let parts = PARTS as usize;
    if at < 2 * parts {
        return at as u64;
    }
    let shift = (at / parts - 1) as u32;
    let low = ((at - shift as usize * parts) as u64) << shift;
    low + (1 << shift) / 2
}

impl Histogram {
    /// Counts a time.
    pub fn add(&mut self, ns: u64) {
        let at = bucket(ns);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Adds the times of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Longest time, in ns.
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Mean, in ns.
    pub fn mean_ns(&self) -> u64 {
        (self.sum_ns / u128::from(self.count.max(1))) as u64
    }

    /// Time that this part of all times does not exceed, in ns; none = there are no times.
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(middle(at).min(self.longest_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut all: Vec<u64> = (0..10_000_u64).map(|n| n * n * 7 + n).collect();
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        for (at, ns) in all.iter().enumerate() {
            if at % 3 == 0 { one.add(*ns) } else { other.add(*ns) }
        }
        one.merge(&other);
        all.sort_unstable();
        for part in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = all[((all.len() as f64 * part).ceil() as usize).max(1) - 1];
            let found = one.quantile_ns(part).expect("there are times");
            assert!(found.abs_diff(exact) as f64 <= exact as f64 * 0.01 + 1.0, "{part}: {found} for {exact}");
        }
        assert_eq!((one.count(), one.longest_ns()), (10_000, *all.last().unwrap()));
        assert_eq!(Histogram::default().quantile_ns(0.5), None);
    }
}
