//! Mount paths as a runtime interprets them: `/proc//meminfo/` is `/proc/meminfo`.
//!
//! The kubelet makes a relative path absolute, and the runtime cleans it. The API server compares strings (`ValidateVolumeMounts`),
//! so a pod can contain the same path in two spellings.

use std::borrow::Cow;

/// The relation of a mount to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// The mount is at the file.
    Same,
    /// The mount is at a directory above the file.
    Above,
    /// The mount is below the file, as if that were a directory.
    Below,
    /// The mount is elsewhere.
    Apart,
}

/// Returns the relation of a mount at `path` to `file`. Both paths are [`clean`].
pub(super) fn relation(path: &str, file: &str) -> Relation {
    let is_below = |path: &str, directory: &str| {
        path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/') || directory == "/")
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

/// Returns the absolute path without empty segments, `.` and `..`. A clean path is not copied.
pub(super) fn clean(path: &str) -> Cow<'_, str> {
    if is_clean(path) {
        return Cow::Borrowed(path);
    }
    // A list of segments would need sixteen bytes for each.
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
    fn cleans_paths_like_a_runtime() {
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
    fn classifies_mounts() {
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
