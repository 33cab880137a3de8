//! What policies are made with.

/// What a policy may be made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    /// Seed of whatever it does at random; the same seed gives the same decisions.
    pub seed: u64,
}
