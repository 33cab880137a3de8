//! Numbers of requests. They make sure that an outcome counts once, and only for its request.

use std::collections::HashMap;
use std::hash::Hash;

/// Requests whose outcome has not come yet, the last one of each key.
pub(crate) struct Epochs<K> {
    last: u64,
    open: HashMap<K, u64>,
}

impl<K> Default for Epochs<K> {
    fn default() -> Epochs<K> {
        Epochs { last: 0, open: HashMap::new() }
    }
}

impl<K: Eq + Hash> Epochs<K> {
    /// Numbers a request. The outcome of an earlier request with this key is then ignored.
    pub(crate) fn begin(&mut self, key: K) -> u64 {
        self.last += 1;
        self.open.insert(key, self.last);
        self.last
    }

    /// Accepts the outcome of a request. Returns false if it came before, or if its request no longer counts.
    pub(crate) fn accept(&mut self, key: &K, epoch: u64) -> bool {
        let is_open = self.open.get(key) == Some(&epoch);
        if is_open {
            self.open.remove(key);
        }
        is_open
    }

    /// Stops waiting for an outcome, for instance when the connection has ended.
    pub(crate) fn forget(&mut self, key: &K) {
        self.open.remove(key);
    }

    /// Number of requests that wait for their outcome.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_counts_once_and_for_the_last_request_of_its_key_only() {
        let mut epochs = Epochs::default();
        let [first, second, other] = ["a", "a", "b"].map(|key| epochs.begin(key));
        assert!(!epochs.accept(&"a", first), "it came too late");
        assert!(epochs.accept(&"b", other) && epochs.accept(&"a", second), "in any order");
        assert!(!epochs.accept(&"a", second) && !epochs.accept(&"b", other), "twice");
        assert!(!epochs.accept(&"c", 1) && epochs.len() == 0, "never asked");
        let lost = epochs.begin("a");
        epochs.forget(&"a");
        assert!(!epochs.accept(&"a", lost) && epochs.len() == 0);
    }
}
