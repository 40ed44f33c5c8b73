//! How many members an etcd cluster is meant to have.
//!
//! etcd's own list and the pods never prove that a cluster is meant to be small: two of three members look the same while the third
//! one is replaced. Only the configuration or the owner of the pods can declare a size.

use admission::Cause;

/// The sizes that the configuration and the owners of the pods declare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeclaredSizes {
    /// `members` in the configuration.
    pub(super) configured: Option<u64>,
    /// `replicas` of the `StatefulSet`, if a single one makes all pods.
    pub(super) replicas: Option<u64>,
    /// The size in the operator's object, if a single one makes all pods.
    pub(super) owner: Option<u64>,
    /// The sum over several owners. It is a lower bound, because an owner without pods is not found.
    pub(super) at_least: u64,
    /// Why an owner that may declare a size could not be read.
    pub(super) unread: Option<Cause>,
}

/// The number of members that an etcd cluster is meant to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedSize {
    pub(super) members: usize,
    pub(super) source: SizeSource,
}

/// How far an [`ExpectedSize`] can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SizeSource {
    /// The configuration or an owner declares it.
    Declared,
    /// It is a lower bound; no size is declared.
    Undeclared,
    /// It is a lower bound; what may declare a size could not be read.
    Unread(Cause),
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl DeclaredSizes {
    /// Returns the largest declared number, and at least the number of listed members.
    ///
    /// A configured number or an operator's size below the existing voters or pods declares nothing: it is only a lower bound then.
    /// A `StatefulSet` makes exactly the pods that it declares, so its number always counts.
    pub(super) fn expected(&self, voters: usize, listed: usize, pods: usize) -> ExpectedSize {
        if let Some(cause) = &self.unread {
            return ExpectedSize { members: pods.max(listed), source: SizeSource::Unread(cause.clone()) };
        }
        let is_possible = |number: u64| to_usize(number) >= voters.max(pods);
        let is_declared = self.replicas.is_some()
            || self.configured.is_some_and(is_possible)
            || self.owner.is_some_and(is_possible);
        let least = if is_declared { listed } else { listed.max(pods) };
        let source = if is_declared { SizeSource::Declared } else { SizeSource::Undeclared };
        ExpectedSize { members: least.max(self.largest()), source }
    }

    /// Returns the largest declared number.
    pub(super) fn largest(&self) -> usize {
        let largest = self.configured.max(self.replicas).max(self.owner).max(Some(self.at_least));
        largest.map_or(0, to_usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(sizes: &DeclaredSizes, voters: usize, pods: usize) -> (usize, bool) {
        let size = sizes.expected(voters, voters, pods);
        (size.members, size.source == SizeSource::Declared)
    }

    #[test]
    fn the_largest_declared_number_counts() {
        let sizes = |configured, replicas, owner| DeclaredSizes {
            configured,
            replicas,
            owner,
            ..DeclaredSizes::default()
        };
        for (declared, voters, pods, result) in [
            // A configured 1 with a StatefulSet of 3 and two voters.
            (sizes(Some(1), Some(3), None), 2, 2, (3, true)),
            (sizes(Some(1), Some(3), None), 2, 3, (3, true)),
            (sizes(Some(5), Some(3), None), 3, 3, (5, true)),
            (sizes(Some(2), None, Some(3)), 2, 2, (3, true)),
            (sizes(Some(2), None, None), 2, 2, (2, true)),
            // A StatefulSet that is scaled down has more pods for a while.
            (sizes(None, Some(1), None), 2, 2, (2, true)),
        ] {
            assert_eq!(expected(&declared, voters, pods), result, "{declared:?}");
        }
    }

    #[test]
    fn numbers_below_the_existing_voters_or_pods_are_ignored() {
        let configured = |number| DeclaredSizes { configured: Some(number), ..DeclaredSizes::default() };
        let owner = |number| DeclaredSizes { owner: Some(number), ..DeclaredSizes::default() };
        assert_eq!(expected(&configured(1), 2, 1), (2, false));
        assert_eq!(expected(&configured(2), 2, 3), (3, false));
        assert_eq!(expected(&owner(1), 2, 2), (2, false));
    }

    #[test]
    fn voters_and_pods_declare_no_size() {
        assert_eq!(expected(&DeclaredSizes::default(), 2, 2), (2, false));
        assert_eq!(expected(&DeclaredSizes::default(), 1, 1), (1, false));
        let several = DeclaredSizes { at_least: 2, ..DeclaredSizes::default() };
        assert_eq!(expected(&several, 2, 2), (2, false));
        let unread = DeclaredSizes {
            configured: Some(2),
            unread: Some(Cause::new(cluster::cause::FORBIDDEN, "no")),
            ..DeclaredSizes::default()
        };
        assert_eq!(expected(&unread, 2, 2), (2, false));
    }
}
