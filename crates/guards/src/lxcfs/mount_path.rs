//! Paths as a runtime will understand them, so that `/proc//meminfo/` is known to be `/proc/meminfo`.
//!
//! The kubelet makes a relative mount path absolute and the runtime cleans it; the API server compares the letters only
//! (`ValidateVolumeMounts`), so a pod can carry the same place twice under two spellings.

use std::borrow::Cow;

/// How a mount lies to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// At its place.
    Same,
    /// At a folder that holds it.
    Above,
    /// Below it, as if it were a folder.
    Below,
    /// Somewhere else.
    Apart,
}

/// How a mount at `path` lies to `file`; both are [`clean`].
pub(super) fn relation(path: &str, file: &str) -> Relation {
    let is_below = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || folder == "/")
    };
    if path == file {
        Relation::Same
    } else if is_below(file, path) {
        Relation::Above
    } else if is_below(path, file) {
        Relation::Below
    } else {
        Relation::Apart
    }
}

/// The path from the root on, without empty segments, `.` and `..`. What is clean already is not copied.
pub(super) fn clean(path: &str) -> Cow<'_, str> {
    if is_clean(path) {
        return Cow::Borrowed(path);
    }
    // Put together in one text: a list of segments has sixteen bytes for each.
    let mut cleaned = String::with_capacity(path.len() + 1);
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => cleaned.truncate(cleaned.rfind('/').unwrap_or_default()),
            other => {
                cleaned.push('/');
                cleaned.push_str(other);
            }
        }
    }
    if cleaned.is_empty() {
        cleaned.push('/');
    }
    Cow::Owned(cleaned)
}

fn is_clean(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    path.strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(|segment| !matches!(segment, "" | "." | "..")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_as_the_runtime_cleans_it() {
        for (path, cleaned) in [
            ("/proc/meminfo", "/proc/meminfo"),
            ("/proc/meminfo/", "/proc/meminfo"),
            ("//proc/./meminfo", "/proc/meminfo"),
            ("proc/meminfo", "/proc/meminfo"),
            ("/a/../proc", "/proc"),
            ("a/b/../../../proc/./x/..//stat/", "/proc/stat"),
            ("/a/..", "/"),
            ("/../..", "/"),
            ("", "/"),
            ("/", "/"),
            ("/.kube", "/.kube"),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
    }

    #[test]
    fn mounts_lie_at_above_below_or_apart() {
        for (path, expected) in [
            ("/proc/meminfo", Relation::Same),
            ("/proc//meminfo/.", Relation::Same),
            ("/proc", Relation::Above),
            ("/proc/", Relation::Above),
            ("/", Relation::Above),
            ("/proc/meminfo/x", Relation::Below),
            ("/proc/mem", Relation::Apart),
            ("/proc/meminfo2", Relation::Apart),
            ("/process", Relation::Apart),
            ("/data", Relation::Apart),
        ] {
            assert_eq!(relation(&clean(path), "/proc/meminfo"), expected, "{path}");
        }
    }
}
