//! Labels of samples.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

/// Labels of a sample, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(Arc<Vec<(&'static str, String)>>);

impl Labels {
    /// Labels in this order.
    pub(super) fn new(labels: Vec<(&'static str, String)>) -> Labels {
        Labels(Arc::new(labels))
    }

    /// These labels, and one more.
    pub(super) fn with(&self, name: &'static str, value: &str) -> Labels {
        Labels::new(self.0.iter().cloned().chain([(name, value.to_owned())]).collect())
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}
