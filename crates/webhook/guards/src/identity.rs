//! Tells whether a stored object is the one of a review.
//!
//! Any client that reaches Durward can send a review. Until the API server returns the object with the uid of the review, a guard
//! writes nothing and calls no etcd member or member cluster. It shows no name of an object until then. Reviews of Secrets are the exception:
//! no Secret is read, so in-use rules answer with numbers.

use cluster::fleet::Object;

/// Returns the stored object if it has the uid of the review. The review of an eviction contains no pod, so it has none (`None`).
/// An empty uid is no uid.
pub(crate) fn reviewed(stored: Option<Object>, uid: Option<&str>) -> Option<Object> {
    stored.filter(|stored| !stored.uid.is_empty() && uid.is_none_or(|uid| stored.uid == uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_counts_only_with_the_uid_of_the_review() {
        let is_reviewed = |stored: Option<&str>, uid| {
            let object = |uid: &str| Object { uid: uid.to_owned(), ..Object::default() };
            reviewed(stored.map(object), uid).is_some()
        };
        assert!(is_reviewed(Some("7"), Some("7")) && is_reviewed(Some("7"), None));
        for (stored, uid) in [
            (None, Some("7")),
            (Some("8"), Some("7")),
            (Some("7"), Some("")),
            (Some(""), Some("")),
            (Some(""), None),
        ] {
            assert!(!is_reviewed(stored, uid), "{stored:?} {uid:?}");
        }
    }
}
