//! Places the files of the configuration in a pod.
//!
//! The text of the configuration stays unchanged, so each file must be at the path that the text names: relative paths below
//! [`CONFIG_DIR`], absolute paths as they are.
//!
//! The volumes are projected: one directory contains the `ConfigMap` and keys of Secrets, and the kubelet updates it
//! atomically. A mount inside a read-only mount would have no mount point, and a `subPath` is never updated.

use std::path::{Component, Path, PathBuf};

use config::Problem;
use serde_json::{Value, json};

use super::super::NAME;
use crate::file::{File, Purpose};
use crate::manifests::Args;

/// The directory of the configuration in a pod.
pub(super) const CONFIG_DIR: &str = "/etc/durward";

/// The file name there and the key in the `ConfigMap`.
pub(super) const CONFIGURATION: &str = "durward.yaml";

/// The directory of the certificate if the configuration names none.
const TLS: [(&str, &str, &str); 2] =
    [("--tls-cert", "tls.crt", "tls/tls.crt"), ("--tls-key", "tls.key", "tls/tls.key")];

/// The Secret with all other files.
const MORE: &str = "durward-files";

/// Directories of the image or the kernel that a mount must not hide.
const TAKEN: [&str; 9] = ["bin", "boot", "dev", "lib", "lib64", "proc", "sbin", "sys", "usr"];

/// A file that the configuration names.
#[derive(Debug)]
struct Named {
    /// The key that names it.
    by: String,
    /// Its path in the pod.
    at: PathBuf,
    /// Its path on this machine.
    here: Option<PathBuf>,
    secret: Source,
}

/// Its Secret and the key in it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Tls(&'static str),
    More(String),
}

/// The volumes of a pod and their prerequisites.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) volumes: Vec<Value>,
    pub(super) mounts: Vec<Value>,
    /// Flags for settings that the configuration lacks.
    pub(super) flags: Vec<String>,
    /// Notes for the user who applies the output.
    pub(super) notes: Vec<String>,
}

/// Places each file.
pub(super) fn placed(file: &File, args: &Args, home: &str) -> Result<Placed, Vec<Problem>> {
    let mut flags = Vec::new();
    let named = named(file, &mut flags)?;
    let problems: Vec<_> = named.iter().filter_map(misplaced).chain(contested(&named)).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut folders: Vec<PathBuf> = vec![PathBuf::from(CONFIG_DIR)];
    for one in named.iter().filter(|one| !one.at.starts_with(CONFIG_DIR)) {
        let dir = one.at.parent().unwrap_or(Path::new("/")).to_owned();
        // A mount inside another one would need a mount point in a read-only volume.
        if !folders.iter().any(|known| dir.starts_with(known)) {
            folders.retain(|known| !known.starts_with(&dir));
            folders.push(dir);
        }
    }
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for (index, dir) in folders.iter().enumerate() {
        let name = if index == 0 { "configuration".to_owned() } else { format!("files-{index}") };
        let mut sources = Vec::new();
        if dir == Path::new(CONFIG_DIR) {
            let items = [json!({"key": CONFIGURATION, "path": CONFIGURATION})];
            sources.push(json!({"configMap": {"name": NAME, "items": items}}));
        }
        for secret in [args.tls_secret.as_str(), MORE] {
            let items = items(&named, dir, secret == MORE);
            if !items.is_empty() {
                sources.push(json!({"secret": {"name": secret, "items": items}}));
            }
        }
        volumes.push(json!({"name": name, "projected": {"defaultMode": 0o440, "sources": sources}}));
        mounts.push(json!({"name": name, "mountPath": dir.display().to_string(), "readOnly": true}));
    }
    Ok(Placed { volumes, mounts, flags, notes: notes(&named, &args.tls_secret, home) })
}

/// Returns all files of the configuration, and flags for the certificate if the configuration names none.
fn named(file: &File, flags: &mut Vec<String>) -> Result<Vec<Named>, Vec<Problem>> {
    // The same text, read with its path in the pod.
    let inside =
        File::from_text(&Path::new(CONFIG_DIR).join(CONFIGURATION), file.text.clone(), Purpose::Guards)?;
    let mut named = Vec::new();
    let given = [
        ("server.tls.files.cert", &inside.server.tls.cert, &file.server.tls.cert),
        ("server.tls.files.key", &inside.server.tls.key, &file.server.tls.key),
    ];
    for ((by, at, here), (flag, key, default)) in given.into_iter().zip(TLS) {
        let (at, here) = if let Some(at) = at {
            (normal(at), here.clone())
        } else {
            let at = Path::new(CONFIG_DIR).join(default);
            flags.push(format!("{flag}={}", at.display()));
            (at, None)
        };
        named.push(Named { by: by.to_owned(), at, here, secret: Source::Tls(key) });
    }
    let mut more = vec![
        (
            "server.tls.clientAuth.caFile".to_owned(),
            inside.server.tls.client_auth.ca_file(),
            file.server.tls.client_auth.ca_file(),
        ),
        ("kubeconfig".to_owned(), inside.cluster.kubeconfig.as_ref(), file.cluster.kubeconfig.as_ref()),
    ];
    for (within, guard) in inside.guards.iter().zip(&file.guards) {
        let kubeconfig = |guard: &'_ crate::file::Guarded| {
            guard.access.as_ref().and_then(|access| access.kubeconfig.clone())
        };
        if let (Some(at), here) = (kubeconfig(within), kubeconfig(guard)) {
            let by = format!("the kubeconfig of guards.{}", guard.kind.name());
            push_more(&mut named, by, normal(&at), here);
        }
    }
    for (within, guard) in inside.guards.iter().zip(&file.guards) {
        let (inside, outside) = (within.configured.requirements(), guard.configured.requirements());
        for ((key, at), (_, here)) in inside.files.into_iter().zip(outside.files) {
            push_more(&mut named, format!("guards.{}.{key}", guard.kind.name()), normal(&at), Some(here));
        }
    }
    for (by, at, here) in more.drain(..) {
        if let Some(at) = at {
            push_more(&mut named, by, normal(at), here.cloned());
        }
    }
    Ok(named)
}

/// Adds a file to the second Secret under a unique key. A file that is named twice is added once.
fn push_more(named: &mut Vec<Named>, by: String, at: PathBuf, here: Option<PathBuf>) {
    if named.iter().any(|one| one.at == at && matches!(one.secret, Source::More(_))) {
        return;
    }
    let path = at.strip_prefix(CONFIG_DIR).unwrap_or(&at).display().to_string();
    let clean = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    let key: String = path.trim_start_matches('/').chars().map(clean).collect();
    let is_taken = |key: &str| named.iter().any(|one| one.secret == Source::More(key.to_owned()));
    let mut numbered = key.clone();
    for number in 2.. {
        if !is_taken(&numbered) {
            break;
        }
        numbered = format!("{key}-{number}");
    }
    named.push(Named { by, at, here, secret: Source::More(numbered) });
}

/// Returns the path without `.` and `..`, by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(part) => normal.push(part),
            Component::ParentDir => drop(normal.pop()),
            _ => {}
        }
    }
    normal
}

/// Returns the reason why nothing can be mounted at a path.
fn misplaced(one: &Named) -> Option<Problem> {
    let what = format!("{}: nothing can be mounted at {} in a pod", one.by, one.at.display());
    let next = format!(
        "use a path next to the configuration, for example tls/tls.crt; in the pod it is {CONFIG_DIR}/tls/tls.crt"
    );
    let dir = one.at.parent().unwrap_or(Path::new("/"));
    let mut parts = dir.components().skip(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    let (first, second) = (parts.next(), parts.next());
    let why = if one.at == Path::new(CONFIG_DIR).join(CONFIGURATION) {
        "the configuration is at that path"
    } else if second.is_none() || first.is_some_and(|first| TAKEN.contains(&first.as_str())) {
        "its directory would hide files of the image"
    } else if Path::new(CONFIG_DIR).starts_with(dir) && dir != Path::new(CONFIG_DIR) {
        "its directory would hide the configuration"
    } else if one.at.to_str().is_none_or(|path| path.chars().any(|c| c == ':' || c.is_control())) {
        "a mount path cannot contain a colon"
    } else {
        return None;
    };
    Some(Problem::new(what).why(why).next(next))
}

/// Reports two files with the same path.
fn contested(named: &[Named]) -> Option<Problem> {
    named.iter().enumerate().find_map(|(index, one)| {
        let other = named
            .iter()
            .take(index)
            .find(|other| other.at.starts_with(&one.at) || one.at.starts_with(&other.at))?;
        let what = format!("{} and {} have the same path, {}", other.by, one.by, one.at.display());
        let next = "name two files, because a Secret of the type kubernetes.io/tls has separate keys for certificate and key";
        Some(Problem::new(what).next(next))
    })
}

/// Returns the items of a Secret in a directory.
fn items(named: &[Named], dir: &Path, is_more: bool) -> Vec<Value> {
    let within = named.iter().filter_map(|one| {
        let key = match &one.secret {
            Source::Tls(key) if !is_more => *key,
            Source::More(key) if is_more => key,
            _ => return None,
        };
        Some(json!({"key": key, "path": one.at.strip_prefix(dir).ok()?.display().to_string()}))
    });
    within.collect()
}

/// Returns the required Secrets with the commands that create them.
fn notes(named: &[Named], tls_secret: &str, home: &str) -> Vec<String> {
    let here =
        |one: &Named, key: &str| one.here.as_ref().map_or(key.to_owned(), |path| path.display().to_string());
    let (mut tls, mut more) = (String::new(), String::new());
    let mut has_kubeconfig = false;
    for one in named {
        match &one.secret {
            Source::Tls(key) => {
                let flag = if *key == "tls.crt" { "--cert" } else { "--key" };
                tls = format!("{tls} {flag}={}", here(one, key));
            }
            Source::More(key) => {
                more = format!("{more} --from-file={key}={}", here(one, key));
                has_kubeconfig |= one.by.contains("kubeconfig");
            }
        }
    }
    let mut notes = vec![format!(
        "note: the Secret {tls_secret} must exist: kubectl -n {home} create secret tls {tls_secret}{tls}"
    )];
    if !more.is_empty() {
        notes.push(format!(
            "note: the Secret {MORE} must exist: kubectl -n {home} create secret generic {MORE}{more}"
        ));
    }
    if has_kubeconfig {
        notes.push(
            "note: files that a kubeconfig names are not in the pod: embed them with kubectl config view --raw --flatten"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Named {
        Named { by: "key".into(), at: normal(Path::new(path)), here: None, secret: Source::Tls("tls.crt") }
    }

    #[test]
    fn normalizes_paths_as_text() {
        for (path, leads) in [
            ("/etc/durward/./tls/../a", "/etc/durward/a"),
            ("/etc/durward/../certs/b", "/etc/certs/b"),
            ("/../../c", "/c"),
        ] {
            assert_eq!(normal(Path::new(path)), Path::new(leads));
        }
    }

    #[test]
    fn rejects_mounts_that_hide_the_image_or_the_configuration() {
        for bad in [
            "/tls.crt",
            "/etc/tls.crt",
            "/usr/share/tls.crt",
            "/proc/1/x",
            "/etc/durward/durward.yaml",
            "/etc/a:b/c",
        ] {
            assert!(misplaced(&at(bad)).is_some(), "{bad}");
        }
        for good in
            ["/etc/durward/tls.crt", "/etc/durward/a/b/c", "/etc/certs/tls.crt", "/var/run/tls/tls.crt"]
        {
            assert!(misplaced(&at(good)).is_none(), "{good}");
        }
    }

    #[test]
    fn gives_each_file_one_key() {
        let mut named = Vec::new();
        for path in ["a/b", "a-b", "a/b", "ü"] {
            push_more(&mut named, "k".into(), Path::new(CONFIG_DIR).join(path), None);
        }
        let keys: Vec<_> = named.iter().map(|one| one.secret.clone()).collect();
        assert_eq!(keys, ["a-b", "a-b-2", "-"].map(|key| Source::More(key.into())));
        assert!(contested(&[at("/x/y/a"), at("/x/y/a")]).is_some());
        assert!(contested(&[at("/x/y/a"), at("/x/y/ab")]).is_none());
    }
}
