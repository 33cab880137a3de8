//! `hypotf` for what draws pictures: glibc's own has a new version in 2.35, which would be the floor for the whole command.

/// The length of the hypotenuse. Exact squares of f32 fit into f64, so that neither overflow nor cancellation occurs.
// SAFETY: a name of the C library's with the same signature and meaning, defined once in this program.
#[unsafe(no_mangle)]
extern "C" fn hypotf(x: f32, y: f32) -> f32 {
    if x.is_infinite() || y.is_infinite() {
        return f32::INFINITY;
    }
    let (x, y) = (f64::from(x), f64::from(y));
    (x * x + y * y).sqrt() as f32
}

#[cfg(test)]
mod tests {
    use super::hypotf;

    #[test]
    fn hypotf_is_that_of_the_c_library() {
        assert_eq!(hypotf(3.0, -4.0), 5.0);
        assert_eq!(hypotf(f32::MAX, 0.0), f32::MAX);
        assert_eq!(hypotf(f32::NEG_INFINITY, f32::NAN), f32::INFINITY);
        assert!(hypotf(f32::NAN, 1.0).is_nan());
    }
}
