//! Numbers of requests, so that an outcome counts once and for the request that it was made for.

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
    /// Numbers a request. An earlier one of this key has no outcome any more.
    pub(crate) fn begin(&mut self, key: K) -> u64 {
        self.last += 1;
        self.open.insert(key, self.last);
        self.last
    }

    /// Accepts the outcome of a request. False = it has come before, or it is of a request that counts no more.
    pub(crate) fn accept(&mut self, key: &K, epoch: u64) -> bool {
        let is_open = self.open.get(key) == Some(&epoch);
        if is_open {
            self.open.remove(key);
        }
        is_open
    }

    /// Ends the wait for an outcome: the other end of the connection has gone, say.
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
