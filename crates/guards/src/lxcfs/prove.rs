//! The proof that a patch applies, before it is sent.
//!
//! The API server turns a patch that does not apply into an error that passes by failurePolicy Ignore
//! (`plugin/webhook/mutating/dispatcher.go`): the pod would be lost. So where each addition goes is looked at once more in the
//! pod as it was sent, in one scan over the lists and without the reading that made the patch: the parent is there, it is of
//! the right type, the index is within the list, and nothing of the pod's would be replaced. The whole application is what the
//! property tests and the fuzz target do.

use admission::{JsonError, Raw, Shape};

use super::pod::{ANNOTATIONS, List, Pod, SPEC, Standing, VOLUMES};

/// Something that is added at one place. Values behind one another at the end of one list are one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The list or map.
    pub(super) target: Target,
    /// Whether it is added whole, or something to it.
    pub(super) standing: Standing,
}

/// The places at which something is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The pod's annotations.
    Annotations,
    /// The pod's volumes.
    Volumes,
    /// The mounts of the container at this place of this list.
    Mounts(List, usize),
}

/// Whether all of them apply. Those in the lists of containers stand in the order of the lists.
pub(super) fn applies(pod: Pod<'_>, places: &[Place]) -> bool {
    pod.field(SPEC).map(Raw::shape) == Some(Shape::Object)
        && is_once(places, Target::Annotations, pod.field(ANNOTATIONS), Shape::Object)
        && is_once(places, Target::Volumes, pod.field(VOLUMES), Shape::Array)
        && [List::Containers, List::Init, List::Ephemeral].into_iter().all(|list| mounts(pod, list, places))
}

/// Whether what is added at `target` is added once, and fits what stands there.
fn is_once(places: &[Place], target: Target, value: Option<Raw<'_>>, shape: Shape) -> bool {
    let mut here = places.iter().filter(|place| place.target == target);
    match (here.next(), here.next()) {
        (None, _) => true,
        (Some(place), None) => fits(place.standing, value, shape),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a whole list comes where nothing (or null, which an `add` replaces) is, and anything else where a list is.
fn fits(standing: Standing, value: Option<Raw<'_>>, shape: Shape) -> bool {
    match (standing, value.map(Raw::shape)) {
        (Standing::Missing, None | Some(Shape::Null)) => true,
        (Standing::There, Some(found)) => found == shape,
        (Standing::Missing, Some(_)) | (Standing::There, None) => false,
    }
}

/// Why the scan ends early.
struct Doubt;

impl From<JsonError> for Doubt {
    fn from(_: JsonError) -> Self {
        Self
    }
}

fn mounts(pod: Pod<'_>, list: List, places: &[Place]) -> bool {
    let mut here = places
        .iter()
        .filter_map(|place| match place.target {
            Target::Mounts(of, index) if of == list => Some((index, place.standing)),
            _ => None,
        })
        .peekable();
    if here.peek().is_none() {
        return true;
    }
    let Some(containers) = pod.field(list.field()).filter(|value| value.shape() == Shape::Array) else {
        return false;
    };
    let scanned = containers.scan().array(|scanner, index| {
        let Some((_, standing)) = here.next_if(|(wanted, _)| *wanted == index) else {
            scanner.value()?;
            return Ok(());
        };
        let (mut found, mut count) = (None, 0);
        scanner.object(|scanner, key| {
            let value = scanner.value()?;
            if key == "volumeMounts" {
                found = Some(value);
                count += 1;
            }
            Ok::<_, Doubt>(())
        })?;
        if count <= 1 && fits(standing, found, Shape::Array) { Ok(()) } else { Err(Doubt) }
    });
    // What is left over has an index past the end, or out of order.
    scanned.is_ok() && here.next().is_none()
}

#[cfg(test)]
mod tests {
    use admission::{Fields, Review, decode};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::{Value, json};

    use super::*;
    use crate::lxcfs::pod::POINTERS;

    fn holds(pod: &str, places: &[Place]) -> bool {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{pod}}}}}"#
        );
        let review: Review<'_> = decode(body.as_bytes(), &Fields::new(&POINTERS)).unwrap();
        applies(Pod::see(review.request.object.as_ref()).unwrap(), places)
    }

    fn at(target: Target, standing: Standing) -> Place {
        Place { target, standing }
    }

    const POD: &str = r#"{"metadata":{"annotations":{}},"spec":{"volumes":null,"containers":[
        {"name":"a","volumeMounts":[]},{"name":"b"},7,{"volumeMounts":null},{"volumeMounts":3},{"volumeMounts":[],"volumeMounts":[]}],
        "initContainers":{}}}"#;

    #[test]
    fn whole_lists_go_where_nothing_is_and_elements_where_a_list_is() {
        use Standing::{Missing, There};
        let mounts = |index| Target::Mounts(List::Containers, index);
        for (target, standing, expected) in [
            (Target::Annotations, There, true),
            (Target::Annotations, Missing, false),
            (Target::Volumes, Missing, true),
            (Target::Volumes, There, false),
            (mounts(0), There, true),
            (mounts(0), Missing, false),
            (mounts(1), Missing, true),
            (mounts(1), There, false),
            (mounts(2), Missing, false),
            (mounts(3), Missing, true),
            (mounts(4), There, false),
            (mounts(5), There, false),
            (mounts(6), Missing, false),
            (Target::Mounts(List::Init, 0), Missing, false),
            (Target::Mounts(List::Ephemeral, 0), Missing, false),
        ] {
            assert_eq!(holds(POD, &[at(target, standing)]), expected, "{target:?} {standing:?}");
        }
    }

    #[test]
    fn a_list_is_added_whole_only_once() {
        let volumes = at(Target::Volumes, Standing::Missing);
        assert!(!holds(POD, &[volumes, volumes]));
        let mounts = at(Target::Mounts(List::Containers, 1), Standing::Missing);
        assert!(!holds(POD, &[mounts, mounts]));
    }

    #[test]
    fn nothing_to_add_always_applies() {
        assert!(holds(r#"{"metadata":{},"spec":{}}"#, &[]));
    }

    // === Against a library that applies patches ===

    const ANNOTATIONS: [&str; 6] = ["", "null", "{}", r#"{"a":"b"}"#, "[]", "7"];
    const VOLUMES: [&str; 5] = ["", "null", "[]", "[{}]", "{}"];
    /// The last two have their mounts twice: which of them counts is anybody's guess.
    const CONTAINERS: [&str; 9] = [
        "{}",
        r#"{"volumeMounts":null,"name":"a"}"#,
        r#"{"volumeMounts":[]}"#,
        r#"{"name":"b","volumeMounts":[{}]}"#,
        r#"{"volumeMounts":{}}"#,
        "7",
        "null",
        r#"{"volumeMounts":[],"volumeMounts":null}"#,
        r#"{"volumeMounts":null,"volumeMounts":[]}"#,
    ];

    /// A pod, and whether no container in it has its mounts twice.
    fn pod() -> impl Strategy<Value = (String, bool)> {
        let list = || option::of(vec(0..CONTAINERS.len(), 0..4));
        (select(&ANNOTATIONS[..]), select(&VOLUMES[..]), list(), list()).prop_map(
            |(annotations, volumes, containers, init)| {
                let is_clear = containers.iter().chain(&init).flatten().all(|index| *index < 7);
                let list = |indices: Option<Vec<usize>>| {
                    let texts = indices?.into_iter().map(|index| CONTAINERS[index]).collect::<Vec<_>>();
                    Some(format!("[{}]", texts.join(",")))
                };
                let entry = |key: &str, value: &str| {
                    if value.is_empty() { String::new() } else { format!(r#""{key}":{value},"#) }
                };
                let spec = [
                    entry("volumes", volumes),
                    entry("containers", &list(containers).unwrap_or_default()),
                    entry("initContainers", &list(init).unwrap_or_default()),
                ];
                let annotations = entry("annotations", annotations);
                let pod = format!(
                    r#"{{"metadata":{{{annotations}"name":"web"}},"spec":{{{}"x":1}}}}"#,
                    spec.concat()
                );
                (pod, is_clear)
            },
        )
    }

    fn place() -> impl Strategy<Value = Place> {
        let list = select(vec![List::Containers, List::Init, List::Ephemeral]);
        let mounts = (list, 0..4_usize).prop_map(|(list, index)| Target::Mounts(list, index));
        let target = prop_oneof![1 => Just(Target::Annotations), 1 => Just(Target::Volumes), 3 => mounts];
        (target, select(vec![Standing::Missing, Standing::There]))
            .prop_map(|(target, standing)| at(target, standing))
    }

    /// What is added there, as the guard's patch says it.
    fn operation(place: Place) -> (String, Value) {
        let (list, whole, part) = match place.target {
            Target::Annotations => {
                let whole = json!({"durward.dev/lxcfs-status": "x"});
                ("/metadata/annotations".to_owned(), whole, ("durward.dev~1lxcfs-status", json!("x")))
            }
            Target::Volumes => ("/spec/volumes".to_owned(), json!([{}]), ("-", json!({}))),
            Target::Mounts(of, index) => {
                (format!("/spec/{}/{index}/volumeMounts", of.key()), json!([{}]), ("-", json!({})))
            }
        };
        match place.standing {
            Standing::Missing => (list, whole),
            Standing::There => (format!("{list}/{}", part.0), part.1),
        }
    }

    /// Whether the patch applies to the pod, adds to nothing but lists and maps of their kind, and replaces nothing of the pod's.
    fn is_harmless(pod: &str, places: &[Place]) -> bool {
        let mut patched: Value = serde_json::from_str(pod).unwrap();
        places.iter().all(|added| {
            let (path, value) = operation(*added);
            let of = |path: &str| patched.pointer(path);
            let fits = match (added.standing, added.target) {
                (Standing::Missing, _) => of(&path).is_none_or(Value::is_null),
                (Standing::There, Target::Annotations) => {
                    of("/metadata/annotations").is_some_and(Value::is_object)
                }
                // Elsewhere `-` is a key like any other.
                (Standing::There, _) => path.strip_suffix("/-").and_then(of).is_some_and(Value::is_array),
            };
            let operations = json!([{"op": "add", "path": path, "value": value}]);
            let operations: json_patch::Patch = serde_json::from_value(operations).unwrap();
            fits && json_patch::patch(&mut patched, &operations).is_ok()
        })
    }

    /// Whether the places are such as the guard makes: each once, those in lists of containers in the order of the lists.
    fn are_in_order(places: &[Place]) -> bool {
        let targets: Vec<Target> = places.iter().map(|place| place.target).collect();
        let index = |of: List| {
            targets.iter().filter_map(move |target| match target {
                Target::Mounts(list, index) if *list == of => Some(*index),
                _ => None,
            })
        };
        let once = |target| targets.iter().filter(|other| **other == target).count() <= 1;
        once(Target::Annotations)
            && once(Target::Volumes)
            && [List::Containers, List::Init, List::Ephemeral]
                .into_iter()
                .all(|list| index(list).is_sorted_by(|one, next| one < next))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases * 16,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_is_said_to_apply_is_applied_by_a_library_and_replaces_nothing(
            (pod, is_clear) in pod(), places in vec(place(), 0..4),
        ) {
            let said = holds(&pod, &places);
            let done = is_harmless(&pod, &places);
            prop_assert!(done || !said, "{pod}: {places:?} does not apply");
            // Nor is anything refused that the guard makes and that applies without a doubt.
            prop_assert!(said || !done || !is_clear || !are_in_order(&places), "{pod}: {places:?} applies");
        }
    }
}
