//! Optional parts of the daemon: one that fails is reported, and decisions go on without it.

use super::Server;
use crate::services::warnings::OptionalPart;

impl Server {
    /// Notes the reason for which a part does not work; none = it works. The log has each change.
    pub(crate) fn note_part(&mut self, part: OptionalPart, why: Option<&str>) {
        let line = self.services.warnings.set(part, why);
        line.iter().for_each(|line| self.say(line));
    }

    /// Parts that do not work now, one line each.
    pub(crate) fn warnings(&mut self) -> Vec<String> {
        self.note_parts();
        let now_ns = self.now_ns;
        let refused = self.places.pools.refused.iter().filter(|(_, (_, until_ns))| *until_ns > now_ns);
        // The log has the reason since the pool was refused.
        let pools = refused.min_by_key(|(key, _)| **key);
        let pools = pools.map(|((uid, _), (why, _))| format!("pools: none for user {uid} at present: {why}"));
        self.services.warnings.lines().into_iter().chain(pools).collect()
    }

    /// Notes how parts work that do not report it.
    pub(super) fn note_parts(&mut self) {
        let now_ns = self.now_ns;
        let unwritten = self.services.events.writer.unwritten();
        let unread = self.kept.unread.clone();
        self.note_part(OptionalPart::State, unwritten.or(unread).as_deref());
        let (proven, unsuitable) = (self.services.trust.failed.clone(), self.places.unsuitable.failed.clone());
        self.note_part(OptionalPart::Proven, proven.as_deref());
        self.note_part(OptionalPart::Unsuitable, unsuitable.as_deref());
        let silent = self.services.devices.silent(now_ns);
        let silent = (!silent.is_empty())
            .then(|| format!("drivers do not answer any more about {}: their last states are old", silent.join(", ")));
        self.note_part(OptionalPart::Devices, silent.as_deref());
    }
}
