//! Sources of the configuration: files and the command line.

use std::path::PathBuf;

use xsched_policy::Choice;

use crate::config::Config;
use crate::tuning::HOST_POLICY;
use crate::{Error, Options};

/// Places of the configuration.
#[derive(Clone)]
pub(crate) struct Sources {
    /// Files that are read where they exist.
    usual: Vec<PathBuf>,
    /// Files that must exist.
    given: Vec<PathBuf>,
    /// Usual file whose `[metrics]` is another daemon's.
    metrics_not_of: Option<PathBuf>,
    /// Policy named at the start, which wins.
    pub(crate) policy: Option<String>,
    /// Policy where none is named.
    without: &'static str,
}

impl Sources {
    pub(crate) fn new(options: &Options) -> Sources {
        let without = if options.scheduler.is_some() { HOST_POLICY } else { xsched_policy::registry::DEFAULT };
        let (usual, given) = (options.usual_config.clone(), options.config.clone());
        let metrics_not_of = options.metrics_not_of.clone();
        Sources { usual, given, metrics_not_of, policy: options.policy.clone(), without }
    }

    /// Existing files, in order.
    pub(crate) fn files(&self) -> Vec<&PathBuf> {
        self.usual.iter().filter(|file| file.exists()).chain(&self.given).collect()
    }

    /// Names of the files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.files().iter().map(|file| file.display().to_string()).collect()
    }

    /// Names of the files in a line.
    pub(crate) fn text(&self) -> String {
        let names = self.names();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// Reads the files. Returns the configuration, and the policy of devices that have none of their own.
    ///
    /// # Errors
    /// Returns a line with the fault and its file and line.
    pub(crate) fn read(&self) -> Result<(Config, Choice), Error> {
        let usual = self.usual.iter().filter(|file| file.exists());
        let usual = usual.map(|file| (file.as_path(), self.metrics_not_of.as_ref() != Some(file)));
        let files: Vec<_> = usual.chain(self.given.iter().map(|file| (file.as_path(), true))).collect();
        let config = Config::read_files(&files)?;
        let policy = match (&self.policy, &config.policy) {
            (Some(name), _) => Choice::named(name)?,
            (None, Some(choice)) => choice.clone(),
            (None, None) => Choice::named(self.without)?,
        };
        if policy.entry.name == HOST_POLICY && self.without != HOST_POLICY {
            return Err(Error::Input("the policy external needs a scheduler: --scheduler FILE".into()));
        }
        Ok((config, policy))
    }
}
