//! Annotations and labels of a pod about LXCFS: whether it opts in, with which files, in which containers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use admission::Raw;

use super::files::Files;
use super::pod::{Pod, PodField, Unreadable, entries, shortened};
use ::lxcfs::{LxcfsFile, rejection};

/// The annotation or label that opts a pod in (`enabled`) or out (`disabled`); the label that opts a namespace's pods in.
pub(super) const SWITCH: &str = "durward.dev/lxcfs";
/// The annotation of an older injector.
pub(super) const OLD_SWITCH: &str = "sidecar-injector.lxcfs/inject";
/// The annotation with the files for a pod, if not all.
const FILES: &str = "durward.dev/lxcfs-files";
/// The annotation with the containers that get files, if not all.
const CONTAINERS: &str = "durward.dev/lxcfs-containers";
/// The annotation that the guard writes. It is read only to compare: templates are copied with it.
pub(super) const STATUS: &str = "durward.dev/lxcfs-status";
/// The kubelet sets this annotation on the mirror pod of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Values of the older annotation that opt in, as with the older injector.
const OLD_YES: [&str; 2] = ["true", "yes"];
/// Values of the older annotation that opt out without a warning. The webhook rules exclude such pods.
pub(super) const OLD_NO: [&str; 2] = ["false", "no"];

/// The value of an opt-in setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Yes,
    No,
    Invalid,
}

/// The opt-in settings of a pod, as written. They are parsed when a decision depends on them.
#[derive(Debug, Default)]
pub(super) struct PodOptIn<'a> {
    annotation: Option<Cow<'a, str>>,
    label: Option<Cow<'a, str>>,
    old: Option<Cow<'a, str>>,
    files: Option<Cow<'a, str>>,
    containers: Option<Cow<'a, str>>,
    /// The status of an earlier review, or of the pod that this one was copied from.
    pub(super) status: Option<Cow<'a, str>>,
    /// Whether the pod is the mirror of a static pod.
    pub(super) is_mirror: bool,
}

/// Whether the pod's own settings enable the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enabled {
    /// The pod opts in.
    Yes,
    /// The pod opts out.
    No,
    /// The label of the namespace decides.
    ByNamespace,
}

impl<'a> PodOptIn<'a> {
    /// Reads annotations and labels.
    pub(super) fn read(pod: Pod<'a>) -> Result<Self, Unreadable> {
        let mut opt_in = Self::default();
        entries(pod.field(PodField::Annotations), "metadata.annotations", |key, value| {
            let slot = match key {
                SWITCH => &mut opt_in.annotation,
                OLD_SWITCH => &mut opt_in.old,
                FILES => &mut opt_in.files,
                CONTAINERS => &mut opt_in.containers,
                STATUS => &mut opt_in.status,
                MIRROR => {
                    opt_in.is_mirror = true;
                    return Ok(());
                }
                _ => return Ok(()),
            };
            fill(slot, "annotation", key, value)
        })?;
        entries(pod.field(PodField::Labels), "metadata.labels", |key, value| {
            if key == SWITCH { fill(&mut opt_in.label, "label", key, value) } else { Ok(()) }
        })?;
        Ok(opt_in)
    }

    /// Returns whether the pod's settings enable the files. `disabled` wins. An invalid value counts as an opt-in here, so that
    /// the pod gets a warning ([`Self::invalid`]); an invalid value of the older annotation opts out.
    pub(super) fn enabled(&self) -> Enabled {
        let annotation = self.annotation.as_deref().map(setting);
        let label = self.label.as_deref().map(setting);
        let old = self.old.as_deref().map(old_setting);
        if annotation == Some(Setting::No) || label == Some(Setting::No) {
            return Enabled::No;
        }
        if annotation.is_some() || label.is_some() {
            return Enabled::Yes;
        }
        match old {
            Some(Setting::No | Setting::Invalid) => Enabled::No,
            Some(Setting::Yes) => Enabled::Yes,
            None => Enabled::ByNamespace,
        }
    }

    /// Returns a warning if the older annotation opts the pod out by an invalid value.
    pub(super) fn old_value_warning(&self) -> Option<String> {
        let is_out = |value: &Option<Cow<'_, str>>| value.as_deref().map(setting) == Some(Setting::No);
        let value = self.old.as_deref().filter(|value| old_setting(value) == Setting::Invalid)?;
        (!is_out(&self.annotation) && !is_out(&self.label)).then(|| {
            format!(
                "annotation {OLD_SWITCH}={:?} opts the pod out; to opt in, set the annotation {SWITCH}=enabled",
                shortened(value)
            )
        })
    }

    /// Describes a setting that is neither `enabled` nor `disabled`. It can be a misspelt `disabled`, so the pod gets no files.
    pub(super) fn invalid(&self) -> Option<String> {
        let describe = |what: &str, value: &Option<Cow<'_, str>>| {
            let value = value.as_deref().filter(|value| setting(value) == Setting::Invalid)?;
            let value = shortened(value);
            Some(format!("{what} {SWITCH}={value:?} is not a valid value (use \"enabled\" or \"disabled\")"))
        };
        describe("annotation", &self.annotation).or_else(|| describe("label", &self.label))
    }

    /// Returns the pod's files out of the served ones, and warnings about the list.
    pub(super) fn files(&self, served: Files) -> (Files, Vec<String>) {
        let Some(list) = self.files.as_deref() else { return (served, Vec::new()) };
        let mut files = words(list).filter_map(LxcfsFile::named).fold(Files::default(), Files::with);
        let other_words = || words(list).filter(|word| LxcfsFile::named(word).is_none());
        let rejected = other_words().find_map(|word| Some((word, rejection(word)?)));
        let unknown = other_words().filter(|word| rejection(word).is_none());
        let not_served = files.without(served);
        files = files.without(not_served);
        let mut warnings = Vec::new();
        if !not_served.is_empty() {
            warnings.push(format!(
                "annotation {FILES}: the guard does not add {not_served} here (allowed: {served})"
            ));
        }
        if let Some((word, reason)) = rejected {
            warnings.push(format!("annotation {FILES}: {:?} ignored: {reason}", shortened(word)));
        }
        if let Some(names) = first_names(unknown) {
            warnings.push(format!("annotation {FILES}: LXCFS has no file {names} (allowed: {served})"));
        }
        if files.is_empty() && warnings.is_empty() {
            warnings.push(format!("annotation {FILES} is empty (allowed: {served})"));
        }
        (files, warnings)
    }

    /// Returns a warning if the pod selects a part of the files, because the device plugin mounts all of them.
    pub(super) fn partial_files_warning(&self, served: Files) -> Option<String> {
        let list = self.files.as_deref()?;
        let (files, warnings) = self.files(served);
        (files != served || !warnings.is_empty()).then(|| {
            format!(
                "annotation {FILES}={:?} ignored: the device plugin mounts all files or none ({served})",
                shortened(list)
            )
        })
    }

    /// Returns whether the pod selects each of these containers, and a warning about the list. A container has a name, and a default
    /// that counts if the pod names no container to select.
    pub(super) fn select(&self, containers: &[(&str, bool)]) -> (Vec<bool>, Option<String>) {
        let Some(list) = self.containers.as_deref() else {
            return (containers.iter().map(|(_, by_default)| *by_default).collect(), None);
        };
        let is_by_name = words(list).any(|word| !word.starts_with('!'));
        // The words of a hostile list are not stored: each sets a mark on a container.
        let mut marks: BTreeMap<_, _> = containers.iter().map(|(name, _)| (*name, Mark::default())).collect();
        for (name, is_excluded) in words(list).map(selector) {
            if let Some(mark) = marks.get_mut(name) {
                mark.named |= !is_excluded;
                mark.excluded |= is_excluded;
            }
        }
        let is_selected = |(name, by_default): &(&str, bool)| {
            let mark = marks.get(name).copied().unwrap_or_default();
            !mark.excluded && if is_by_name { mark.named } else { *by_default }
        };
        let unknown =
            words(list).map(selector).map(|(name, _)| name).filter(|name| !marks.contains_key(name));
        let warning = match first_names(unknown) {
            Some(names) => Some(format!("annotation {CONTAINERS}: the pod has no container {names}")),
            None if words(list).next().is_none() => {
                Some(format!("annotation {CONTAINERS} is empty (example: app,!sidecar)"))
            }
            None => None,
        };
        (containers.iter().map(is_selected).collect(), warning)
    }
}

/// How a pod selects a container by name.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    named: bool,
    excluded: bool,
}

/// Returns the first names in quotes, and the number of all others.
fn first_names<'w>(mut names: impl Iterator<Item = &'w str>) -> Option<String> {
    let first: Vec<_> = names.by_ref().take(4).map(|name| format!("{:?}", shortened(name))).collect();
    match names.count() {
        _ if first.is_empty() => None,
        0 => Some(first.join(", ")),
        more => Some(format!("{} and {more} more", first.join(", "))),
    }
}

/// Returns the name in a word of the list, and whether the word excludes it.
fn selector(word: &str) -> (&str, bool) {
    word.strip_prefix('!').map_or((word, false), |name| (name.trim_start(), true))
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn setting(value: &str) -> Setting {
    match value {
        "enabled" => Setting::Yes,
        "disabled" => Setting::No,
        _ => Setting::Invalid,
    }
}

fn old_setting(value: &str) -> Setting {
    let is = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
    if is(&OLD_YES) {
        Setting::Yes
    } else if is(&OLD_NO) {
        Setting::No
    } else {
        Setting::Invalid
    }
}

fn fill<'a>(
    slot: &mut Option<Cow<'a, str>>,
    what: &str,
    key: &str,
    value: Raw<'a>,
) -> Result<(), Unreadable> {
    let unreadable = |problem| Unreadable::new(format!("{what} {key}"), problem);
    let value = value.text().ok_or_else(|| unreadable("is not a string"))?;
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(unreadable("is duplicate")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::with_pod;
    use super::*;

    fn pod(annotations: &Value, labels: &Value) -> Value {
        json!({"metadata": {"annotations": annotations, "labels": labels}, "spec": {}})
    }

    fn enabled(annotations: &Value, labels: &Value) -> Enabled {
        with_pod(&pod(annotations, labels), |pod| PodOptIn::read(pod).unwrap().enabled())
    }

    #[test]
    fn disabled_wins_and_the_new_setting_wins_over_the_older_annotation() {
        let on = || json!({SWITCH: "enabled"});
        let off = || json!({SWITCH: "disabled"});
        for (annotations, labels, expected) in [
            (json!({}), json!({}), Enabled::ByNamespace),
            (on(), json!({}), Enabled::Yes),
            (json!({}), on(), Enabled::Yes),
            (off(), on(), Enabled::No),
            (on(), off(), Enabled::No),
            (json!({OLD_SWITCH: "TRUE"}), json!({}), Enabled::Yes),
            (json!({OLD_SWITCH: "no"}), json!({}), Enabled::No),
            (json!({OLD_SWITCH: "no"}), on(), Enabled::Yes),
            (json!({OLD_SWITCH: "yes"}), off(), Enabled::No),
            (json!({SWITCH: "maybe"}), json!({}), Enabled::Yes),
            (json!({OLD_SWITCH: "on"}), json!({}), Enabled::No),
            (json!({OLD_SWITCH: "maybe"}), json!({}), Enabled::No),
            (json!({OLD_SWITCH: "1"}), on(), Enabled::Yes),
        ] {
            assert_eq!(enabled(&annotations, &labels), expected, "{annotations} {labels}");
        }
    }

    #[test]
    fn duplicate_or_non_string_settings_make_the_pod_unreadable() {
        let text = format!(
            r#"{{"metadata":{{"labels":{{"{SWITCH}":"enabled","{SWITCH}":"disabled"}}}},"spec":{{}}}}"#
        );
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","resource":{{"resource":"pods"}},"operation":"CREATE","object":{text}}}}}"#
        );
        let fields = admission::Fields::new(&PodField::POINTERS);
        let review = admission::decode(body.as_bytes(), &fields).unwrap();
        let twice = PodOptIn::read(Pod::read(review.request.object.as_ref()).unwrap()).unwrap_err();
        assert_eq!(twice.to_string(), "label durward.dev/lxcfs is duplicate");
        let number = with_pod(&pod(&json!({FILES: 7}), &json!({})), |pod| PodOptIn::read(pod).unwrap_err());
        assert_eq!(number.to_string(), "annotation durward.dev/lxcfs-files is not a string");
    }

    #[test]
    fn selects_a_subset_of_the_served_files() {
        let served = Files::of(&LxcfsFile::DEFAULT);
        let read = |list: &str| {
            with_pod(&pod(&json!({FILES: list}), &json!({})), |pod| {
                let (files, warnings) = PodOptIn::read(pod).unwrap().files(served);
                (files.to_string(), warnings.len())
            })
        };
        assert_eq!(read("uptime , meminfo"), ("meminfo,uptime".to_owned(), 0));
        assert_eq!(read("meminfo,online,loadavg"), ("meminfo".to_owned(), 1));
        assert_eq!(read(" , "), (String::new(), 1));
        assert_eq!(read("a,b,c,d,e,f"), (String::new(), 1));
    }

    #[test]
    fn describes_a_long_list_in_a_few_words() {
        let list = "x,".repeat(100_000);
        with_pod(&pod(&json!({FILES: list, CONTAINERS: list}), &json!({})), |pod| {
            let opt_in = PodOptIn::read(pod).unwrap();
            let (_, warnings) = opt_in.files(Files::of(&LxcfsFile::DEFAULT));
            let expected = "LXCFS has no file \"x\", \"x\", \"x\", \"x\" and 99996 more (allowed: ";
            assert!(warnings[0].contains(expected), "{}", warnings[0]);
            let warning = opt_in.select(&[("app", true)]).1.unwrap();
            assert!(
                warning.contains("the pod has no container \"x\", \"x\", \"x\", \"x\" and 99996 more"),
                "{warning}"
            );
        });
    }

    #[test]
    fn selects_and_excludes_containers_by_name() {
        let containers = [("app", true), ("init", false), ("log", true), ("other", true)];
        for (list, expected, expected_warning) in [
            ("app, ! log", "app", ""),
            ("!log", "app,other", ""),
            ("app,!app", "", ""),
            ("init", "init", ""),
            ("ap,!lo,ap", "", "has no container \"ap\", \"lo\", \"ap\""),
            (",", "app,log,other", "is empty"),
        ] {
            with_pod(&pod(&json!({CONTAINERS: list}), &json!({})), |pod| {
                let (selected, warning) = PodOptIn::read(pod).unwrap().select(&containers);
                let names = containers.iter().zip(selected).filter_map(|((name, _), is)| is.then_some(*name));
                assert_eq!(names.collect::<Vec<_>>().join(","), expected, "{list}");
                assert_eq!(warning.is_none(), expected_warning.is_empty(), "{list}");
                assert!(warning.unwrap_or_default().contains(expected_warning), "{list}");
            });
        }
    }

    #[test]
    fn warns_about_an_invalid_value_of_the_older_annotation() {
        for value in ["on", "1", "y", "off", "0", "n", "", "maybe", "truee"] {
            let annotations = json!({OLD_SWITCH: value});
            let warning = with_pod(&pod(&annotations, &json!({})), |pod| {
                let opt_in = PodOptIn::read(pod).unwrap();
                assert_eq!(opt_in.enabled(), Enabled::No, "{value}");
                opt_in.old_value_warning().unwrap()
            });
            assert!(warning.contains(SWITCH) && warning.contains(OLD_SWITCH), "{warning}");
        }
        for value in ["true", "Yes", "false", "NO"] {
            let annotations = json!({OLD_SWITCH: value});
            let warning = with_pod(&pod(&annotations, &json!({})), |pod| {
                PodOptIn::read(pod).unwrap().old_value_warning()
            });
            assert_eq!(warning, None, "{value}");
        }
    }
}
