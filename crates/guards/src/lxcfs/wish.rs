//! What the pod itself says about LXCFS: whether it wants it, which files, in which containers.

use std::borrow::Cow;

use admission::Raw;

use super::bound;
use super::config::OptIn;
use super::files::{Files, LxcfsFile, why_refused};
use super::pod::{Pod, Unreadable};

/// Opts in (`enabled`) or out (`disabled`), as annotation or label of a pod; opts a namespace's pods in as its label.
pub(super) const SWITCH: &str = "durward.dev/lxcfs";
/// The annotation of an older injector, still understood.
pub(super) const OLD_SWITCH: &str = "sidecar-injector.lxcfs/inject";
/// The files that a pod wants, if not all.
const FILES: &str = "durward.dev/lxcfs-files";
/// The containers that get them, if not all.
const CONTAINERS: &str = "durward.dev/lxcfs-containers";
/// Where the guard tells what it did. Read only to see whether it would say the same again: templates are copied with it.
pub(super) const STATUS: &str = "durward.dev/lxcfs-status";
/// Set by the kubelet on the API server's image of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Words for yes and no that the older annotation may have.
const OLD_YES: [&str; 5] = ["true", "yes", "on", "1", "y"];
/// The words that the older annotation may have for no. The registration leaves such pods alone.
pub(super) const OLD_NO: [&str; 5] = ["false", "no", "off", "0", "n"];
/// So many characters are shown of what the pod says: the names of containers and namespaces, which have 63 at most, are whole.
const SHOWN: usize = 64;

/// What a switch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Yes,
    No,
    Neither,
}

/// What the pod says. Texts as they stand there; they are understood once something depends on them.
#[derive(Debug, Default)]
pub(super) struct Wish<'a> {
    annotation: Option<Cow<'a, str>>,
    label: Option<Cow<'a, str>>,
    old: Option<Cow<'a, str>>,
    files: Option<Cow<'a, str>>,
    containers: Option<Cow<'a, str>>,
    /// What an earlier pass, or the pod that this one was copied from, wrote.
    pub(super) status: Option<Cow<'a, str>>,
    /// Whether the pod is the image of a static one.
    pub(super) is_mirror: bool,
}

/// Whether the pod wants the files, as far as the pod alone tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It does.
    Yes,
    /// It does not, whatever its namespace says.
    No,
    /// It leaves that to its namespace.
    AsTheNamespace,
}

impl<'a> Wish<'a> {
    /// Reads annotations and labels.
    pub(super) fn read(pod: Pod<'a>) -> Result<Self, Unreadable> {
        let mut wish = Self::default();
        pod.annotations(|key, value| {
            let slot = match key {
                SWITCH => &mut wish.annotation,
                OLD_SWITCH => &mut wish.old,
                FILES => &mut wish.files,
                CONTAINERS => &mut wish.containers,
                STATUS => &mut wish.status,
                MIRROR => {
                    wish.is_mirror = true;
                    return Ok(());
                }
                _ => return Ok(()),
            };
            fill(slot, "annotation", key, value)
        })?;
        pod.labels(
            |key, value| {
                if key == SWITCH { fill(&mut wish.label, "label", key, value) } else { Ok(()) }
            },
        )?;
        Ok(wish)
    }

    /// Whether the pod wants the files. `disabled` beats everything; a word that is neither counts as a wish, so that whoever
    /// wrote it learns of it ([`Self::unclear`]).
    pub(super) fn wanted(&self, by: OptIn) -> Wanted {
        let annotation = self.annotation.as_deref().map(ours);
        let label = self.label.as_deref().map(ours);
        let old = self.old.as_deref().map(older);
        if annotation == Some(Said::No) || label == Some(Said::No) {
            return Wanted::No;
        }
        if annotation.is_some() && by.annotation || label.is_some() && by.label {
            return Wanted::Yes;
        }
        match old {
            Some(Said::No) => Wanted::No,
            Some(_) if by.annotation => Wanted::Yes,
            _ if by.namespace_label => Wanted::AsTheNamespace,
            _ => Wanted::No,
        }
    }

    /// The switches that say neither yes nor no. One may be a misspelt `disabled`, so nothing is added to such a pod.
    pub(super) fn unclear(&self) -> Option<String> {
        let ours_of = |what: &str, value: &Option<Cow<'_, str>>| {
            let value = value.as_deref().filter(|value| ours(value) == Said::Neither)?;
            Some(format!("{what} {SWITCH} is {:?}, and only enabled and disabled are understood", cut(value)))
        };
        let says_yes =
            [&self.annotation, &self.label].iter().any(|v| v.as_deref().map(ours) == Some(Said::Yes));
        ours_of("annotation", &self.annotation).or_else(|| ours_of("label", &self.label)).or_else(|| {
            if says_yes {
                return None;
            }
            let value = self.old.as_deref().filter(|value| older(value) == Said::Neither)?;
            let (yes, no) = (OLD_YES.join(", "), OLD_NO.join(", "));
            Some(format!(
                "annotation {OLD_SWITCH} is {:?}, and only {yes} and {no} are understood",
                cut(value)
            ))
        })
    }

    /// The files for this pod, out of those that are served, and what is wrong with the list.
    pub(super) fn files(&self, served: Files) -> (Files, Vec<String>) {
        let Some(list) = self.files.as_deref() else { return (served, Vec::new()) };
        let (mut files, mut refused, mut unknown) = (Files::default(), None, Unknown::default());
        for word in words(list) {
            match (LxcfsFile::named(word), why_refused(word)) {
                (Some(file), _) => files = files.with(file),
                (None, Some(why)) => refused = Some((word, why)),
                (None, None) => unknown.add(word),
            }
        }
        let beyond = files.without(served);
        files = files.without(beyond);
        let mut wrong = Vec::new();
        if !beyond.is_empty() {
            wrong.push(format!(
                "annotation {FILES} asks for {beyond}, which this cluster does not add; allowed: {served}"
            ));
        }
        wrong.extend(
            refused.map(|(word, why)| format!("annotation {FILES}: {:?} is left out: {why}", cut(word))),
        );
        wrong.extend(unknown.told().map(|words| {
            format!("annotation {FILES} names {words}, which LXCFS does not have; allowed: {served}")
        }));
        if files.is_empty() && wrong.is_empty() {
            wrong.push(format!("annotation {FILES} is empty; allowed: {served}"));
        }
        (files, wrong)
    }

    /// What is to be said where the pod gets all that is served or nothing, and it asks for something else.
    pub(super) fn files_that_are_not(&self, served: Files) -> Option<String> {
        let list = self.files.as_deref()?;
        let (files, wrong) = self.files(served);
        (files != served || !wrong.is_empty()).then(|| {
            format!(
                "annotation {FILES} is {:?}, which cannot be honoured: the device plugin of LXCFS gives all files or none, and they are {served}",
                cut(list)
            )
        })
    }

    /// Which of the containers of these names, sorted, the pod chooses; none if it does not say.
    pub(super) fn chosen<'n>(&self, names: &'n [&'n str]) -> Option<Chosen<'n>> {
        self.containers.as_deref().map(|list| Chosen::read(list, names))
    }
}

/// Which containers a pod chooses by name.
///
/// There are at most a few thousand containers, and as many words as a hostile pod wants. So each word is looked up once among the
/// names and leaves a mark there; no list of words is made.
#[derive(Debug)]
pub(super) struct Chosen<'n> {
    names: &'n [&'n str],
    /// One for each of the names.
    marks: Vec<Mark>,
    /// Whether only those are chosen that are named.
    is_by_name: bool,
    /// What is wrong with the list, for the person.
    pub(super) wrong: Option<String>,
}

/// What a pod says of one of its containers.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    named: bool,
    left_out: bool,
}

impl<'n> Chosen<'n> {
    fn read(list: &str, names: &'n [&'n str]) -> Self {
        let (mut is_by_name, mut is_empty, mut unknown) = (false, true, Unknown::default());
        let mut marks = vec![Mark::default(); names.len()];
        for word in words(list) {
            is_empty = false;
            let without = word.strip_prefix('!').map(str::trim_start);
            is_by_name |= without.is_none();
            let name = without.unwrap_or(word);
            match names.binary_search(&name).ok().and_then(|at| marks.get_mut(at)) {
                Some(mark) if without.is_some() => mark.left_out = true,
                Some(mark) => mark.named = true,
                None => unknown.add(name),
            }
        }
        let wrong = if is_empty {
            Some(format!("annotation {CONTAINERS} is empty; write names like app,!sidecar"))
        } else {
            let told = unknown.told();
            told.map(|names| format!("annotation {CONTAINERS} names {names}, which this pod does not have"))
        };
        Self { names, marks, is_by_name, wrong }
    }

    /// Whether the container is chosen: yes or no by name, or as containers of its list are by default.
    pub(super) fn has(&self, name: &str, by_default: bool) -> bool {
        let at = self.names.binary_search(&name).ok();
        let mark = at.and_then(|at| self.marks.get(at)).copied().unwrap_or_default();
        !mark.left_out && if self.is_by_name { mark.named } else { by_default }
    }
}

/// Words that are not understood: the first few, and how many more.
#[derive(Debug, Default)]
struct Unknown {
    first: Vec<String>,
    more: usize,
}

impl Unknown {
    fn add(&mut self, word: &str) {
        if self.first.len() < 4 { self.first.push(format!("{:?}", cut(word))) } else { self.more += 1 }
    }

    fn told(self) -> Option<String> {
        if self.first.is_empty() {
            return None;
        }
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        Some(format!("{}{more}", self.first.join(", ")))
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn ours(value: &str) -> Said {
    match value {
        "enabled" => Said::Yes,
        "disabled" => Said::No,
        _ => Said::Neither,
    }
}

fn older(value: &str) -> Said {
    let is = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
    if is(&OLD_YES) {
        Said::Yes
    } else if is(&OLD_NO) {
        Said::No
    } else {
        Said::Neither
    }
}

/// As much of a value as is shown.
pub(super) fn cut(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()),
    }
}

fn fill<'a>(
    slot: &mut Option<Cow<'a, str>>,
    what: &str,
    key: &str,
    value: Raw<'a>,
) -> Result<(), Unreadable> {
    let wrong = |why| Unreadable::new(format!("{what} {key}"), why);
    let value = bound::text(value, bound::ANNOTATIONS)
        .map_err(|_| wrong("is longer than all annotations may be"))?
        .ok_or_else(|| wrong("is not a text"))?;
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(wrong("stands twice")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::with_pod;
    use super::*;

    const ALL: OptIn = OptIn { annotation: true, label: true, namespace_label: true };

    fn pod(annotations: &Value, labels: &Value) -> Value {
        json!({"metadata": {"annotations": annotations, "labels": labels}, "spec": {}})
    }

    fn wanted(annotations: &Value, labels: &Value, by: OptIn) -> Wanted {
        with_pod(&pod(annotations, labels), |pod| Wish::read(pod).unwrap().wanted(by))
    }

    #[test]
    fn disabled_beats_everything_and_our_word_beats_the_older_one() {
        let on = || json!({SWITCH: "enabled"});
        let off = || json!({SWITCH: "disabled"});
        for (annotations, labels, expected) in [
            (json!({}), json!({}), Wanted::AsTheNamespace),
            (on(), json!({}), Wanted::Yes),
            (json!({}), on(), Wanted::Yes),
            (off(), on(), Wanted::No),
            (on(), off(), Wanted::No),
            (json!({OLD_SWITCH: "TRUE"}), json!({}), Wanted::Yes),
            (json!({OLD_SWITCH: "no"}), json!({}), Wanted::No),
            (json!({OLD_SWITCH: "no"}), on(), Wanted::Yes),
            (json!({OLD_SWITCH: "yes"}), off(), Wanted::No),
            (json!({SWITCH: "maybe"}), json!({}), Wanted::Yes),
        ] {
            assert_eq!(wanted(&annotations, &labels, ALL), expected, "{annotations} {labels}");
        }
    }

    #[test]
    fn a_way_that_is_turned_off_opts_nothing_in_but_still_out() {
        let on = json!({SWITCH: "enabled"});
        let none = json!({});
        assert_eq!(wanted(&on, &none, OptIn { annotation: false, ..ALL }), Wanted::AsTheNamespace);
        assert_eq!(wanted(&none, &on, OptIn { label: false, ..ALL }), Wanted::AsTheNamespace);
        assert_eq!(wanted(&none, &none, OptIn { namespace_label: false, ..ALL }), Wanted::No);
        let nothing = OptIn { annotation: false, label: false, namespace_label: true };
        assert_eq!(wanted(&json!({SWITCH: "disabled"}), &none, nothing), Wanted::No);
    }

    #[test]
    fn a_switch_that_stands_twice_or_is_no_text_makes_the_pod_unreadable() {
        let text = format!(
            r#"{{"metadata":{{"labels":{{"{SWITCH}":"enabled","{SWITCH}":"disabled"}}}},"spec":{{}}}}"#
        );
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{text}}}}}"#
        );
        let fields = admission::Fields::new(&super::super::pod::POINTERS);
        let review = admission::decode(body.as_bytes(), &fields).unwrap();
        let twice = Wish::read(Pod::see(review.request.object.as_ref()).unwrap()).unwrap_err();
        assert_eq!(twice.to_string(), "label durward.dev/lxcfs stands twice");
        let number = with_pod(&pod(&json!({FILES: 7}), &json!({})), |pod| Wish::read(pod).unwrap_err());
        assert_eq!(number.to_string(), "annotation durward.dev/lxcfs-files is not a text");
    }

    #[test]
    fn a_list_of_files_is_a_subset_of_what_is_served() {
        let served = Files::of(&LxcfsFile::DEFAULT);
        let read = |list: &str| {
            with_pod(&pod(&json!({FILES: list}), &json!({})), |pod| {
                let (files, wrong) = Wish::read(pod).unwrap().files(served);
                (files.to_string(), wrong.len())
            })
        };
        assert_eq!(read("uptime , meminfo"), ("meminfo,uptime".to_owned(), 0));
        assert_eq!(read("meminfo,online,loadavg"), ("meminfo".to_owned(), 1));
        assert_eq!(read(" , "), (String::new(), 1));
        assert_eq!(read("a,b,c,d,e,f"), (String::new(), 1));
    }

    #[test]
    fn a_list_of_a_hundred_thousand_words_is_told_in_a_few() {
        let list = "x,".repeat(100_000);
        with_pod(&pod(&json!({FILES: list, CONTAINERS: list}), &json!({})), |pod| {
            let wish = Wish::read(pod).unwrap();
            let (_, wrong) = wish.files(Files::of(&LxcfsFile::DEFAULT));
            assert!(wrong[0].contains("\"x\" and 99996 more, which LXCFS does not have"), "{}", wrong[0]);
            let wrong = wish.chosen(&["app"]).unwrap().wrong.unwrap();
            assert!(wrong.contains("\"x\" and 99996 more, which this pod does not have"), "{wrong}");
        });
    }

    #[test]
    fn containers_are_chosen_and_left_out_by_name() {
        let names = ["app", "init", "log", "other"];
        let chosen = Chosen::read("app, ! log", &names);
        assert!(chosen.has("app", false) && !chosen.has("log", true) && !chosen.has("other", true));
        assert_eq!(chosen.wrong, None);
        let but = Chosen::read("!log", &names);
        assert!(but.has("app", true) && !but.has("init", false) && !but.has("log", true));
        let both = Chosen::read("app,!app", &names);
        assert!(!both.has("app", true) && !both.has("other", true));
        assert_eq!(both.wrong, None);
        let unknown = Chosen::read("ap,!lo,ap", &names);
        assert!(!unknown.has("app", true));
        assert!(unknown.wrong.is_some_and(|wrong| wrong.contains("names \"ap\", \"lo\", \"ap\", which")));
        assert!(Chosen::read(",", &[]).wrong.is_some_and(|wrong| wrong.contains("is empty")));
    }
}
