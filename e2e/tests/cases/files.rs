//! Checks for the changes that the LXCFS guard makes to a pod. They are written from the user's page, not
//! from the code.

use std::collections::BTreeSet;

use e2e::prelude::*;

/// The files that a pod gets by default.
pub(crate) const DEFAULT_FILES: [&str; 6] = ["cpuinfo", "meminfo", "diskstats", "stat", "swaps", "uptime"];

/// The annotation with the result of the guard.
pub(crate) const STATUS: &str = "durward.dev/lxcfs-status";

const ROOT: &str = "/var/lib/lxcfs";

pub(crate) trait LxcfsChecks: Sized {
    /// Expects every container except init containers to have exactly these files, one volume each, and a
    /// status that lists them.
    fn with_files(self, files: &[&str]) -> Result<Self>;

    fn without_files(self) -> Result<Self>;

    /// Expects no files, and this reason in the status and in a warning.
    fn skipped_because(self, why: &str) -> Result<Self>;
}

impl LxcfsChecks for Admitted {
    fn with_files(self, files: &[&str]) -> Result<Self> {
        check_volumes(&self.pod, files)?;
        let containers = self.pod["spec"]["containers"].as_array().context("a pod without containers")?;
        for container in containers {
            check_mounts(container, files)?;
        }
        let status = self.pod["metadata"]["annotations"][STATUS].as_str().unwrap_or_default();
        for container in containers {
            let share = format!("{}={}", container["name"].as_str().unwrap_or_default(), files.join(","));
            ensure!(
                status.split("; ").any(|entry| entry == share),
                "expected {share:?} in {STATUS}, and it is {status:?}"
            );
        }
        Ok(self)
    }

    fn without_files(self) -> Result<Self> {
        check_volumes(&self.pod, &[])?;
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in self.pod["spec"][list].as_array().into_iter().flatten() {
                check_mounts(container, &[])?;
            }
        }
        Ok(self)
    }

    fn skipped_because(self, why: &str) -> Result<Self> {
        let admitted = self.without_files()?.with_warning(why)?;
        let status = admitted.pod["metadata"]["annotations"][STATUS].as_str().unwrap_or_default();
        ensure!(
            status.starts_with("skipped: ") && status.contains(why),
            "expected {STATUS} to start with skipped and to contain {why:?}, and it is {status:?}"
        );
        Ok(admitted)
    }
}

/// Expects one LXCFS volume for each of these files, and no other.
pub(crate) fn check_volumes(pod: &Value, files: &[&str]) -> Result<()> {
    let has: Vec<&Value> =
        list(pod, "/spec/volumes").iter().filter(|volume| is_lxcfs_volume(volume)).collect();
    let expected: Vec<Value> = files
        .iter()
        .map(|file| {
            let path = format!("{ROOT}/proc/{file}");
            json!({"name": format!("lxcfs-{file}"), "hostPath": {"path": path, "type": "File"}})
        })
        .collect();
    let (has, expected) = (json!(has), json!(expected));
    ensure!(has == expected, "expected the volumes {expected}, and there are {has}");
    Ok(())
}

/// Expects one mount for each of these files, and no other mount of LXCFS.
pub(crate) fn check_mounts(container: &Value, files: &[&str]) -> Result<()> {
    let has: Vec<&Value> =
        list(container, "/volumeMounts").iter().filter(|mount| has_lxcfs_name(mount)).collect();
    let expected: Vec<Value> = files
        .iter()
        .map(|file| json!({"name": format!("lxcfs-{file}"), "mountPath": format!("/proc/{file}"), "readOnly": true}))
        .collect();
    let name = &container["name"];
    let (has, expected) = (json!(has), json!(expected));
    ensure!(has == expected, "expected container {name} to have the mounts {expected}, and it has {has}");
    let mounts = list(container, "/volumeMounts");
    let paths: BTreeSet<_> = mounts.iter().filter_map(|mount| mount["mountPath"].as_str()).collect();
    ensure!(paths.len() == mounts.len(), "container {name} has a duplicate mountPath");
    Ok(())
}

/// Returns the pod without the additions of the guard, and without metadata that differs between twins.
pub(crate) fn without_additions(pod: &Value) -> Value {
    let mut pod = pod.clone();
    retain(&mut pod["spec"], "volumes", |volume| !is_lxcfs_volume(volume));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            retain(container, "volumeMounts", |mount| !has_lxcfs_name(mount));
        }
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"] {
            metadata.remove(key);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(STATUS);
        }
        metadata.retain(|_, value| value != &json!({}));
    }
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
    pod
}

/// Retains matching items of a list and removes an empty list, as the API server does.
fn retain(object: &mut Value, key: &str, is_wanted: impl Fn(&Value) -> bool) {
    let Some(items) = object.get_mut(key).and_then(Value::as_array_mut) else { return };
    items.retain(is_wanted);
    if items.is_empty()
        && let Some(object) = object.as_object_mut()
    {
        object.remove(key);
    }
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_lxcfs_volume(volume: &Value) -> bool {
    has_lxcfs_name(volume) || volume["hostPath"]["path"].as_str().is_some_and(|path| path.starts_with(ROOT))
}

fn has_lxcfs_name(item: &Value) -> bool {
    item["name"].as_str().is_some_and(|name| name.starts_with("lxcfs-"))
}
