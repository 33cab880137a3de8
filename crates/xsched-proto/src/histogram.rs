//! Histograms: counts of durations in buckets that grow by half an octave, so that quantiles are right to 20 %.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Number of buckets of a histogram. The last one holds all durations of 50 minutes or more.
pub const BUCKETS: usize = 64;

/// Counts of durations of one kind, in shared memory. 256 bytes.
#[repr(C, align(64))]
pub struct Histogram {
    counts: [AtomicU32; BUCKETS],
}

impl Histogram {
    /// Counts a duration, in µs.
    pub fn add(&self, us: u64) {
        self.counts[bucket(us)].fetch_add(1, Relaxed);
    }

    /// Counts by bucket.
    pub fn counts(&self) -> [u32; BUCKETS] {
        self.counts.each_ref().map(|count| count.load(Relaxed))
    }
}

/// Index of the bucket of a duration in µs: 0 is below 1 µs; then two for each power of two.
pub fn bucket(us: u64) -> usize {
    let Some(octave) = us.checked_ilog2() else { return 0 };
    // The middle of an octave, by factors, is its lower limit times the root of two.
    let is_upper = u128::from(us) * u128::from(us) >= 2u128 << (2 * octave);
    (1 + 2 * octave as usize + usize::from(is_upper)).min(BUCKETS - 1)
}

/// Lower limit of a bucket, in µs; the upper limit is the lower limit of the next one.
pub fn lower_us(bucket: usize) -> f64 {
    if bucket == 0 { 0.0 } else { 2f64.powf((bucket - 1) as f64 / 2.0) }
}

/// Quantile: the duration that `part` (0 to 1) of the counted ones do not exceed, in µs, as the middle of its bucket. None without any
/// counts.
pub fn quantile_us(counts: &[u32], part: f64) -> Option<f64> {
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let rank = ((all as f64 * part).ceil() as u64).clamp(1, all.max(1));
    let mut seen = 0;
    let at = counts.iter().position(|count| {
        seen += u64::from(*count);
        seen >= rank
    })?;
    Some(if at == 0 { 0.5 } else { (lower_us(at) * lower_us(at + 1)).sqrt() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_lies_within_its_bucket() {
        for us in (0..5_000).chain([1 << 20, (1 << 20) + 1, 3_000_000_000, u64::MAX]) {
            let at = bucket(us);
            assert!(lower_us(at) <= us as f64 + 1e-6, "{us} µs in {at}");
            assert!(at == BUCKETS - 1 || (us as f64) < lower_us(at + 1), "{us} µs in {at}");
        }
    }

    #[test]
    fn quantiles_are_right_to_a_fifth() {
        let histogram = Histogram { counts: [const { AtomicU32::new(0) }; BUCKETS] };
        assert_eq!(quantile_us(&histogram.counts(), 0.99), None);
        (1..=1_000).for_each(|us| histogram.add(us));
        for (part, exact) in [(0.5, 500.0), (0.99, 990.0), (0.001, 1.0)] {
            let got = quantile_us(&histogram.counts(), part).unwrap();
            assert!((got / exact - 1.0).abs() < 0.2, "{part}: {got} for {exact}");
        }
        assert_eq!(quantile_us(&[3, 0, 0], 0.5), Some(0.5));
    }
}
