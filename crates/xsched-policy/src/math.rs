//! Logarithms, right to a millionth: the preload library, which contains policies too, links no libm.

use std::f64::consts::LN_2;

/// The natural logarithm of a positive, normal number.
pub fn ln(value: f64) -> f64 {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as f64 - 1023.0;
    // 1 up to 2.
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    // ln((1 + t) / (1 - t)) as a series; t is a third at most.
    let series =
        1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0 + square / 11.0))));
    exponent * LN_2 + 2.0 * t * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_a_millionth() {
        for n in 1..100_000 {
            let value = f64::from(n) / 1_000.0;
            assert!((ln(value) - value.ln()).abs() < 1e-6, "{value}");
        }
    }
}
