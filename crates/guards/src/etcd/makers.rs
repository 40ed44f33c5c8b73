//! What makes an ensemble's pods, where that may be more than one object (`groupBy: selector`), and how many members it is to have.
//!
//! Of several objects one takes only a part of the ensemble with it when it goes: that is a teardown only where all of them go.
//!
//! How many members are meant is what somebody says, never what is there: pods and etcd's list have two of three while the third one
//! is repaired. Neither is it the sum of several sets. One that has no pods for the moment is seen by nobody, as the selector chooses
//! pods, and repair scales it to 0.

use admission::Cause;
use futures_util::future::join_all;

use super::config::{Ensemble, OwnerKind};
use super::ground::{Look, Standing};
use super::group::Group;
use super::pod::{Owner, Pod};

/// How many members an ensemble is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Size {
    /// So many: what makes its pods says so, or the configuration.
    Told(u64),
    /// Nobody says how many; so many at least.
    AtLeast(u64),
    /// What may say so cannot be read.
    Unread(Cause),
}

impl Default for Size {
    fn default() -> Self {
        Self::AtLeast(0)
    }
}

/// What makes the pods of an ensemble beside what makes the one that is to go.
#[derive(Debug, Clone, Default)]
pub(super) struct Makers {
    /// The kind that may be looked at beside `StatefulSets`.
    kind: Option<OwnerKind>,
    others: Vec<Other>,
    pub(super) size: Size,
}

/// One of them; pods that nothing makes count as made by one.
#[derive(Debug, Clone)]
struct Other {
    owner: Option<Owner>,
    standing: Result<Standing, Cause>,
}

impl Makers {
    /// Looks at what makes the other pods; and how it stands with what makes this one, in view of them. Without pods nobody knows
    /// whether there are others.
    pub(super) async fn of(
        look: Look<'_>,
        ensemble: &Ensemble,
        group: &Group,
        own: (&Pod, Result<Standing, Cause>),
        pods: Option<&[Pod]>,
    ) -> (Result<Standing, Cause>, Self) {
        let (pod, standing) = own;
        let kind = ensemble.owner.as_ref();
        let mut firsts = vec![pod];
        for pod in pods.unwrap_or_default() {
            if !firsts.iter().any(|first| first.made_by(kind) == pod.made_by(kind)) {
                firsts.push(pod);
            }
        }
        let others = firsts.into_iter().skip(1).map(async |pod| Other {
            owner: pod.made_by(kind).cloned(),
            standing: look.stands(ensemble, pod).await,
        });
        let others = join_all(others).await;
        let is_all = pods.is_some() || group.is_of_one_set();
        let size = size(ensemble, group, &standing, &others);
        let standing = standing.map(|standing| settled(standing, is_all, &others));
        (standing, Self { kind: kind.cloned(), others, size })
    }

    /// How it stands with what makes a pod; `own`: with what makes the one that is to go.
    pub(super) fn standing<'s>(
        &'s self,
        own: &'s Result<Standing, Cause>,
        pod: &Pod,
    ) -> &'s Result<Standing, Cause> {
        let maker = pod.made_by(self.kind.as_ref());
        let other = self.others.iter().find(|other| other.owner.as_ref() == maker);
        other.map_or(own, |other| &other.standing)
    }
}

/// The same, where what makes the pod goes or is to have no pods. That ends the ensemble if it is so of all that make its pods.
fn settled(standing: Standing, is_all: bool, others: &[Other]) -> Standing {
    if !standing.has_no_pods_left() {
        return standing;
    }
    let goes = |other: &Other| other.standing.as_ref().is_ok_and(Standing::has_no_pods_left);
    match standing {
        Standing::Going if is_all && others.iter().all(goes) => Standing::Going,
        Standing::Going => Standing::Leaving,
        _ if is_all && others.iter().all(goes) => Standing::Ends,
        standing => standing,
    }
}

fn size(ensemble: &Ensemble, group: &Group, own: &Result<Standing, Cause>, others: &[Other]) -> Size {
    let all = || std::iter::once(own).chain(others.iter().map(|other| &other.standing));
    let told = |standing: &Standing| match standing {
        Standing::Stands(set) => Some(set.replicas),
        Standing::Owned(size) => *size,
        Standing::None | Standing::Leaving | Standing::Ends | Standing::Going => None,
    };
    let is_one = group.is_of_one_set();
    let unread = all().find_map(|standing| standing.as_ref().err());
    if let Some(why) = unread.filter(|_| is_one || ensemble.members.is_some()) {
        return Size::Unread(why.clone());
    }
    let sum = all().flatten().filter_map(told).fold(0, u64::saturating_add);
    match ensemble.members {
        Some(members) => Size::Told(members.max(sum)),
        None if is_one && own.as_ref().is_ok_and(|own| told(own).is_some()) => Size::Told(sum),
        None => Size::AtLeast(sum),
    }
}
