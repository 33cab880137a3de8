//! Values that a policy keeps about each group, in the order of the groups.

use crate::{GroupId, GroupView};

/// A value per group, sorted by id as the groups are.
pub(super) struct Kept<T>(Vec<(GroupId, T)>);

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Vec::new())
    }
}

impl<T> Kept<T> {
    /// Drops the values of removed groups, and makes those of new ones. From then on indices are those of `groups`.
    pub(super) fn follow(&mut self, groups: &[GroupView], mut make: impl FnMut(&GroupView) -> T) {
        if self.0.iter().map(|(id, _)| *id).eq(groups.iter().map(|g| g.id)) {
            return;
        }
        let mut old = std::mem::take(&mut self.0).into_iter().peekable();
        self.0.extend(groups.iter().map(|group| {
            while old.next_if(|(id, _)| *id < group.id).is_some() {}
            old.next_if(|(id, _)| *id == group.id).unwrap_or_else(|| (group.id, make(group)))
        }));
    }

    /// Index of a group.
    pub(super) fn place(&self, id: GroupId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    pub(super) fn id(&self, at: usize) -> GroupId {
        self.0[at].0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl<T> std::ops::Index<usize> for Kept<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.0[at].1
    }
}

impl<T> std::ops::IndexMut<usize> for Kept<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::tests::group;

    #[test]
    fn values_follow_their_groups() {
        let mut kept = Kept::default();
        let groups = |ids: &[u64]| ids.iter().map(|id| group(*id)).collect::<Vec<_>>();
        let mut made = 0;
        let mut follow = |kept: &mut Kept<(u64, u32)>, ids: &[u64]| {
            kept.follow(&groups(ids), |g| {
                made += 1;
                (g.id.0, made)
            });
            kept.iter().copied().collect::<Vec<_>>()
        };
        assert_eq!(follow(&mut kept, &[2, 5, 9]), [(2, 1), (5, 2), (9, 3)]);
        assert_eq!(follow(&mut kept, &[2, 5, 9]), [(2, 1), (5, 2), (9, 3)]);
        assert_eq!(follow(&mut kept, &[1, 5, 7, 9]), [(1, 4), (5, 2), (7, 5), (9, 3)]);
        assert_eq!(follow(&mut kept, &[]), []);
        assert_eq!(follow(&mut kept, &[5]), [(5, 6)]);
        assert_eq!((kept.place(GroupId(5)), kept.place(GroupId(6)), kept.id(0)), (Some(0), None, GroupId(5)));
    }
}
