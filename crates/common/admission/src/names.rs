//! Checks the names and uids of a review. Any client that reaches the port can send one.
//!
//! An API server accepts only names that are a segment of a path (`IsValidPathSegmentName` in apimachinery). A Role can have any such
//! name, also a long one with blanks or line breaks, so each text that contains a name cleans it. The kinds of [`DNS_GROUPS`] and
//! namespaces have DNS names. Guards copy these, and use them as keys. A uid of the API server has 36 bytes.

/// API groups of Kubernetes whose kinds have DNS names, of which guards review some.
pub(crate) const DNS_GROUPS: [&str; 4] = ["", "apps", "policy", "apiextensions.k8s.io"];

/// The longest DNS name.
const MAX_DNS_NAME: usize = 253;

/// The longest uid.
const MAX_UID: usize = 128;

/// The error for a name that is not one segment of a path, or has characters that a DNS name does not have.
const INVALID: &str = "contains characters that no name has";

/// Checks the name of an object. An empty name is missing, not invalid.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if matches!(name, "." | "..") || name.contains(['/', '%']) { Err(INVALID) } else { Ok(()) }
}

/// Checks a name that is a DNS name. `:` and capitals are accepted, because some subresources have them.
pub(crate) fn check_dns(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_DNS_NAME {
        return Err("is longer than 253 bytes");
    }
    if name.bytes().all(|byte| byte.is_ascii_graphic()) { check(name) } else { Err(INVALID) }
}

/// Checks a uid. An empty one is missing, not invalid.
pub(crate) fn check_uid(uid: &str) -> Result<(), &'static str> {
    if uid.len() > MAX_UID {
        return Err("is longer than 128 bytes");
    }
    if uid.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err("contains characters that no uid has")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_names_of_all_kinds_and_missing_ones() {
        for name in ["", "etcd-0", "widgets.example.org", "system:node-proxier"] {
            assert_eq!((check(name), check_dns(name)), (Ok(()), Ok(())), "{name}");
        }
        for role in ["a b", "a\nb", "é", "a".repeat(300).as_str()] {
            assert_eq!(check(role), Ok(()), "{role}");
        }
        assert_eq!(check_uid("3b0f6c3e-5f0e-4a86-8d0c-6e2c7d3f9a10"), Ok(()));
    }

    #[test]
    fn rejects_names_that_no_object_has() {
        for name in ["a/b", "a%2Fb", ".", ".."] {
            assert!(check(name).is_err() && check_dns(name).is_err(), "{name}");
        }
        for namespace in ["a b", "a\nb", "\u{1b}[31m", "é", "a".repeat(254).as_str()] {
            assert!(check_dns(namespace).is_err(), "{namespace}");
        }
        for uid in ["a b", "a\n", "u".repeat(129).as_str()] {
            assert!(check_uid(uid).is_err(), "{uid}");
        }
    }
}
