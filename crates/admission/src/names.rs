//! Checks the names and uids of a review, which a stranger can send too.
//!
//! An API server accepts only names that are a segment of a path (`IsValidPathSegmentName` in apimachinery), and most kinds only DNS
//! names. Both are at most 253 bytes long. A uid of the API server has 36 bytes.

/// The longest name.
const MAX_NAME: usize = 253;

/// The longest uid.
const MAX_UID: usize = 128;

/// Checks the name of an object or a namespace. An empty name is missing, not invalid.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NAME {
        return Err("is longer than 253 bytes");
    }
    if matches!(name, "." | "..")
        || !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/%".contains(&byte))
    {
        return Err("contains characters that no name has");
    }
    Ok(())
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
        for name in ["", "etcd-0", "widgets.example.org", "system:node-proxier", "a".repeat(253).as_str()] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        assert_eq!(check_uid("3b0f6c3e-5f0e-4a86-8d0c-6e2c7d3f9a10"), Ok(()));
    }

    #[test]
    fn rejects_names_that_no_object_has() {
        for name in ["a/b", "a%2Fb", ".", "..", "a b", "a\nb", "\u{1b}[31m", "é", "a".repeat(254).as_str()] {
            assert!(check(name).is_err(), "{name}");
        }
        for uid in ["a b", "a\n", "u".repeat(129).as_str()] {
            assert!(check_uid(uid).is_err(), "{uid}");
        }
    }
}
