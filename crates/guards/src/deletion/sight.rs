//! What was seen of one cluster: what is in use there, what would stay, and what could not be seen.

use admission::{Cause, one_line};
use serde::Serialize;

use super::questions::Noun;
use cluster::cause;

/// How many names are kept of each kind.
pub(super) const NAMES: usize = 5;

/// What was seen of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// What would be lost.
    pub(super) in_use: Vec<Count>,
    /// What is there and would stay.
    pub(super) stays: Vec<Count>,
    /// What could not be seen, and why.
    pub(super) unseen: Vec<Cause>,
}

/// How many objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    /// Of what.
    pub(super) noun: Noun,
    /// How many were counted.
    pub(super) objects: usize,
    /// Whether there are more than were counted.
    pub(super) more: bool,
    /// The first few of them.
    pub(super) names: Vec<String>,
}

/// What one cluster means for a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Finding {
    /// Nothing there is in use: everything was seen.
    Empty,
    /// Something is in use.
    InUse,
    /// Something is there, and would stay.
    WouldStay,
    /// Not everything could be seen, and nothing that was seen is in use.
    Unknown,
}

impl Finding {
    /// The word for programs.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::InUse => "InUse",
            Self::WouldStay => "WouldStay",
            Self::Unknown => "Unknown",
        }
    }
}

impl Sight {
    /// Nothing but the reason why nothing was seen.
    pub(super) fn blind(cause: Cause) -> Self {
        Self { unseen: vec![cause], ..Self::default() }
    }

    /// The same with what members wrote on one line: a name that breaks it could forge the next one.
    pub(super) fn on_one_line(mut self) -> Self {
        let counts = self.in_use.iter_mut().chain(&mut self.stays);
        for name in counts.flat_map(|count| &mut count.names) {
            *name = one_line(name);
        }
        for why in &mut self.unseen {
            why.text = one_line(&why.text);
        }
        self
    }

    /// The same, and this was not seen either.
    pub(super) fn and_unseen(mut self, cause: Cause) -> Self {
        if !self.unseen.contains(&cause) {
            self.unseen.push(cause);
        }
        self
    }

    /// Whether it may be seen when it is looked at again, since it was Durward that had no room.
    pub(super) fn is_crowded(&self) -> bool {
        self.in_use.is_empty() && self.unseen.iter().any(|why| why.code == cause::CROWDED)
    }

    /// What it means: one thing in use is enough to refuse, and emptiness needs that everything was seen.
    pub(super) fn finding(&self) -> Finding {
        if !self.in_use.is_empty() {
            Finding::InUse
        } else if !self.unseen.is_empty() {
            Finding::Unknown
        } else if !self.stays.is_empty() {
            Finding::WouldStay
        } else {
            Finding::Empty
        }
    }
}

impl Count {
    /// Counts these; none where there are none.
    pub(super) fn of(noun: &Noun, more: bool, mut names: Vec<String>) -> Option<Self> {
        let objects = names.len();
        names.truncate(NAMES);
        (objects > 0).then(|| Self { noun: noun.clone(), objects, more, names })
    }

    /// `3 pods`, `500+ claims`.
    pub(super) fn told(&self) -> String {
        let noun = if self.objects == 1 && !self.more { &self.noun.one } else { &self.noun.many };
        format!("{}{} {noun}", self.objects, if self.more { "+" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_was_cut_says_so() {
        let of = |names: &[&str], more| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Count::of(&Noun::OBJECT, more, names).map(|count| count.told())
        };
        assert_eq!(of(&[], true), None);
        assert_eq!(of(&["a"], false).unwrap(), "1 object");
        assert_eq!(of(&["a"], true).unwrap(), "1+ objects");
        assert_eq!(of(&["a", "b"], false).unwrap(), "2 objects");
    }

    #[test]
    fn what_is_in_use_outweighs_what_was_not_seen_and_that_what_would_stay() {
        let some = vec![Count::of(&Noun::OBJECT, false, vec!["a".to_owned()]).unwrap()];
        let unseen = vec![Cause::new("timeout", "no answer")];
        let mut sight = Sight { in_use: some.clone(), stays: some, unseen };
        assert_eq!(sight.finding(), Finding::InUse);
        sight.in_use.clear();
        assert_eq!(sight.finding(), Finding::Unknown);
        sight.unseen.clear();
        assert_eq!(sight.finding(), Finding::WouldStay);
        sight.stays.clear();
        assert_eq!(sight.finding(), Finding::Empty);
    }
}
