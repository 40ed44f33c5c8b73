//! The proof that a patch applies, before it is sent.
//!
//! The API server turns a patch that does not apply into an error that passes by failurePolicy Ignore
//! (`plugin/webhook/mutating/dispatcher.go`): the pod would be lost. So where each addition goes is looked at once more in the
//! pod as it was sent, in one scan over the lists and without the reading that made the patch: the parent is there, it is of
//! the right type, the index is within the list, and nothing of the pod's would be replaced. The whole application is what the
//! property tests and the fuzz target do.

use admission::{JsonError, Raw, Scanner, Shape};

use super::device::RESOURCE;
use super::pod::{AFFINITY, ANNOTATIONS, List, NODE_SELECTOR, Pod, SPEC, Standing, VOLUMES};
use super::readiness::{NODE_AFFINITY, PREFERRED, READY};

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
    /// The pod's node selector.
    NodeSelector,
    /// The pod's affinity, whole.
    Affinity,
    /// The part of its affinity that is about nodes, whole.
    NodeAffinity,
    /// The preferred common_config of that part.
    Preferred,
    /// The mounts of the container at this place of this list.
    Mounts(List, usize),
    /// The resources of the container at this place of this list.
    Resources(List, usize, Amounts),
}

/// Which of a container's resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Amounts {
    /// All of them, whole.
    Both,
    /// Its limits.
    Limits,
    /// Its requests.
    Requests,
}

/// What is added to a container, in the order in which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Mounts,
    Both,
    Limits,
    Requests,
}

/// Whether all of them apply. Those in the lists of containers stand in the order of the lists.
pub(super) fn applies(pod: Pod<'_>, places: &[Place]) -> bool {
    pod.field(SPEC).map(Raw::shape) == Some(Shape::Object)
        && the_pods_own(pod, places).is_ok()
        && [List::Containers, List::Init, List::Ephemeral]
            .into_iter()
            .all(|list| containers(pod, list, places))
}

/// Why a scan ends early.
struct Doubt;

impl From<JsonError> for Doubt {
    fn from(_: JsonError) -> Self {
        Self
    }
}

fn sure(is: bool) -> Result<(), Doubt> {
    if is { Ok(()) } else { Err(Doubt) }
}

/// What is added outside the containers: once at each place, and only one of what lies within one another.
fn the_pods_own(pod: Pod<'_>, places: &[Place]) -> Result<(), Doubt> {
    let (mut annotations, mut volumes, mut selector, mut affinity) = (0, 0, 0, 0);
    for Place { target, standing } in places {
        match target {
            Target::Mounts(..) | Target::Resources(..) => {}
            Target::Annotations => {
                annotations += 1;
                // The one key that is written there is the guard's own, and replaced where it says something else.
                sure(fits(*standing, pod.field(ANNOTATIONS), Shape::Object))?;
            }
            Target::Volumes => {
                volumes += 1;
                sure(fits(*standing, pod.field(VOLUMES), Shape::Array))?;
            }
            Target::NodeSelector => {
                selector += 1;
                fits_with_key(*standing, pod.field(NODE_SELECTOR), READY)?;
            }
            Target::Affinity => {
                affinity += 1;
                sure(*standing == Standing::Missing && fits(*standing, pod.field(AFFINITY), Shape::Object))?;
            }
            Target::NodeAffinity => {
                affinity += 1;
                let there = inner(pod.field(AFFINITY), NODE_AFFINITY)?;
                sure(*standing == Standing::Missing && fits(*standing, there, Shape::Object))?;
            }
            Target::Preferred => {
                affinity += 1;
                let there = inner(inner(pod.field(AFFINITY), NODE_AFFINITY)?, PREFERRED)?;
                sure(fits(*standing, there, Shape::Array))?;
            }
        }
    }
    sure([annotations, volumes, selector, affinity].into_iter().all(|times| times <= 1))
}

/// Whether a whole list comes where nothing (or null, which an `add` replaces) is, and anything else where a list is.
fn fits(standing: Standing, value: Option<Raw<'_>>, shape: Shape) -> bool {
    match (standing, value.map(Raw::shape)) {
        (Standing::Missing, None | Some(Shape::Null)) => true,
        (Standing::There, Some(found)) => found == shape,
        (Standing::Missing, Some(_)) | (Standing::There, None) => false,
    }
}

/// The same for a map, to which a key is added that it does not have.
fn fits_with_key(standing: Standing, map: Option<Raw<'_>>, key: &str) -> Result<(), Doubt> {
    sure(fits(standing, map, Shape::Object))?;
    sure(standing == Standing::Missing || inner(map, key)?.is_none())
}

/// The value under a key of what must be an object, in which the key stands once at most.
fn inner<'a>(object: Option<Raw<'a>>, wanted: &str) -> Result<Option<Raw<'a>>, Doubt> {
    let mut found = None;
    object.ok_or(Doubt)?.scan().object(|scanner, key| {
        let value = scanner.value()?;
        if key == wanted { sure(found.replace(value).is_none()) } else { Ok(()) }
    })?;
    Ok(found)
}

fn containers(pod: Pod<'_>, list: List, places: &[Place]) -> bool {
    let mut wanted = places
        .iter()
        .filter_map(|place| {
            let (of, index, part) = match place.target {
                Target::Mounts(of, index) => (of, index, Part::Mounts),
                Target::Resources(of, index, Amounts::Both) => (of, index, Part::Both),
                Target::Resources(of, index, Amounts::Limits) => (of, index, Part::Limits),
                Target::Resources(of, index, Amounts::Requests) => (of, index, Part::Requests),
                _ => return None,
            };
            (of == list).then_some((index, part, place.standing))
        })
        .peekable();
    if wanted.peek().is_none() {
        return true;
    }
    let Some(value) = pod.field(list.field()).filter(|value| value.shape() == Shape::Array) else {
        return false;
    };
    let scanned = value.scan().array(|scanner, index| {
        if wanted.peek().is_none_or(|(at, ..)| *at != index) {
            scanner.value()?;
            return Ok(());
        }
        let container = Container::read(scanner)?;
        let mut previous = None;
        while let Some((_, part, standing)) = wanted.next_if(|(at, ..)| *at == index) {
            // In their order, each once, and nothing within what was added whole.
            sure(previous.is_none_or(|previous| previous < part && previous != Part::Both))?;
            previous = Some(part);
            container.fits(part, standing)?;
        }
        Ok::<_, Doubt>(())
    });
    // What is left over has an index past the end, or out of order.
    scanned.is_ok() && wanted.next().is_none()
}

/// What a container has of that to which something may be added.
struct Container<'a> {
    mounts: Option<Raw<'a>>,
    resources: Option<Raw<'a>>,
}

impl<'a> Container<'a> {
    fn read(scanner: &mut Scanner<'a>) -> Result<Self, Doubt> {
        let mut container = Self { mounts: None, resources: None };
        scanner.object(|scanner, key| {
            let value = scanner.value()?;
            match key.as_ref() {
                "volumeMounts" => sure(container.mounts.replace(value).is_none()),
                "resources" => sure(container.resources.replace(value).is_none()),
                _ => Ok(()),
            }
        })?;
        Ok(container)
    }

    fn fits(&self, part: Part, standing: Standing) -> Result<(), Doubt> {
        match part {
            Part::Mounts => sure(fits(standing, self.mounts, Shape::Array)),
            Part::Both => {
                sure(standing == Standing::Missing && fits(standing, self.resources, Shape::Object))
            }
            Part::Limits => fits_with_key(standing, inner(self.resources, "limits")?, RESOURCE),
            Part::Requests => fits_with_key(standing, inner(self.resources, "requests")?, RESOURCE),
        }
    }
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

    const SCHEDULED: &str = r#"{"metadata":{},"spec":{"nodeSelector":{"a":"b"},
        "affinity":{"podAffinity":{},"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}}}"#;
    const UNSCHEDULED: &str =
        r#"{"metadata":{},"spec":{"nodeSelector":null,"affinity":{"nodeAffinity":null}}}"#;
    const ODDLY_SCHEDULED: &str = r#"{"metadata":{},"spec":{"nodeSelector":{"durward.dev/lxcfs-ready":"x"},
        "affinity":{"nodeAffinity":{},"nodeAffinity":{}}}}"#;

    #[test]
    fn selectors_and_terms_go_where_they_are_not_and_replace_none() {
        use Standing::{Missing, There};
        for (pod, target, standing, expected) in [
            (SCHEDULED, Target::NodeSelector, There, true),
            (SCHEDULED, Target::NodeSelector, Missing, false),
            (UNSCHEDULED, Target::NodeSelector, Missing, true),
            (UNSCHEDULED, Target::NodeSelector, There, false),
            (ODDLY_SCHEDULED, Target::NodeSelector, There, false),
            (SCHEDULED, Target::Affinity, Missing, false),
            (SCHEDULED, Target::Affinity, There, false),
            (SCHEDULED, Target::NodeAffinity, Missing, false),
            (SCHEDULED, Target::Preferred, There, true),
            (SCHEDULED, Target::Preferred, Missing, false),
            (UNSCHEDULED, Target::Affinity, Missing, false),
            (UNSCHEDULED, Target::NodeAffinity, Missing, true),
            (UNSCHEDULED, Target::Preferred, Missing, false),
            (ODDLY_SCHEDULED, Target::Preferred, Missing, false),
            (POD, Target::Affinity, Missing, true),
            (POD, Target::NodeAffinity, Missing, false),
        ] {
            assert_eq!(holds(pod, &[at(target, standing)]), expected, "{pod} {target:?} {standing:?}");
        }
    }

    const RESOURCES: &str = r#"{"metadata":{},"spec":{"containers":[
        {"name":"a"},{"resources":{}},{"resources":{"limits":{"cpu":1},"requests":null}},
        {"resources":{"limits":{"durward.dev/lxcfs":0}}},{"resources":[]},{"resources":{"limits":{},"limits":{}}}]}}"#;

    #[test]
    fn resources_go_where_they_are_not_and_replace_none() {
        use Amounts::{Both, Limits, Requests};
        use Standing::{Missing, There};
        for (index, amounts, standing, expected) in [
            (0, Both, Missing, true),
            (0, Limits, Missing, false),
            (1, Both, Missing, false),
            (1, Both, There, false),
            (1, Limits, Missing, true),
            (1, Limits, There, false),
            (2, Limits, There, true),
            (2, Requests, Missing, true),
            (2, Requests, There, false),
            (3, Limits, There, false),
            (3, Requests, Missing, true),
            (4, Limits, Missing, false),
            (5, Limits, There, false),
        ] {
            let place = at(Target::Resources(List::Containers, index, amounts), standing);
            assert_eq!(holds(RESOURCES, &[place]), expected, "{index} {amounts:?} {standing:?}");
        }
        let of = |amounts| at(Target::Resources(List::Containers, 1, amounts), Missing);
        assert!(holds(RESOURCES, &[of(Limits), of(Requests)]));
        assert!(!holds(RESOURCES, &[of(Requests), of(Limits)]));
        assert!(!holds(RESOURCES, &[of(Limits), of(Limits)]));
        let first = |amounts| at(Target::Resources(List::Containers, 0, amounts), Missing);
        assert!(!holds(RESOURCES, &[first(Both), first(Limits)]));
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
    const SELECTORS: [&str; 5] =
        ["", "null", r#"{"a":"b"}"#, r#"{"durward.dev/lxcfs-ready":null}"#, r#"["durward.dev/lxcfs-ready"]"#];
    /// The last has its nodes twice: which of them counts is anybody's guess.
    const AFFINITIES: [&str; 10] = [
        "",
        "null",
        "{}",
        "[]",
        r#"{"nodeAffinity":null,"podAffinity":{}}"#,
        r#"{"nodeAffinity":{}}"#,
        r#"{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":null}}"#,
        r#"{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{}]}}"#,
        r#"{"nodeAffinity":[]}"#,
        r#"{"nodeAffinity":{},"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}"#,
    ];
    /// The last three have something twice.
    const CONTAINERS: [&str; 15] = [
        "{}",
        r#"{"volumeMounts":null,"name":"a"}"#,
        r#"{"volumeMounts":[]}"#,
        r#"{"name":"b","volumeMounts":[{}]}"#,
        r#"{"volumeMounts":{}}"#,
        "7",
        "null",
        r#"{"resources":null}"#,
        r#"{"resources":{},"volumeMounts":[]}"#,
        r#"{"resources":{"limits":{"cpu":1},"requests":null}}"#,
        r#"{"resources":{"limits":{"durward.dev/lxcfs":null},"requests":[]}}"#,
        r#"{"resources":[]}"#,
        r#"{"volumeMounts":[],"volumeMounts":null}"#,
        r#"{"volumeMounts":null,"volumeMounts":[]}"#,
        r#"{"resources":{"limits":null,"limits":{}}}"#,
    ];

    /// A pod, and whether nothing in it stands twice.
    fn pod() -> impl Strategy<Value = (String, bool)> {
        let list = || option::of(vec(0..CONTAINERS.len(), 0..4));
        let own =
            (select(&ANNOTATIONS[..]), select(&VOLUMES[..]), select(&SELECTORS[..]), 0..AFFINITIES.len());
        (own, list(), list()).prop_map(|((annotations, volumes, selector, affinity), containers, init)| {
            let is_clear = affinity < 9 && containers.iter().chain(&init).flatten().all(|index| *index < 12);
            let list = |indices: Option<Vec<usize>>| {
                let texts = indices?.into_iter().map(|index| CONTAINERS[index]).collect::<Vec<_>>();
                Some(format!("[{}]", texts.join(",")))
            };
            let entry = |key: &str, value: &str| {
                if value.is_empty() { String::new() } else { format!(r#""{key}":{value},"#) }
            };
            let spec = [
                entry("volumes", volumes),
                entry("nodeSelector", selector),
                entry("affinity", AFFINITIES[affinity]),
                entry("containers", &list(containers).unwrap_or_default()),
                entry("initContainers", &list(init).unwrap_or_default()),
            ];
            let annotations = entry("annotations", annotations);
            let pod =
                format!(r#"{{"metadata":{{{annotations}"name":"web"}},"spec":{{{}"x":1}}}}"#, spec.concat());
            (pod, is_clear)
        })
    }

    fn place() -> impl Strategy<Value = Place> {
        let list = || select(vec![List::Containers, List::Init, List::Ephemeral]);
        let amounts = select(vec![Amounts::Both, Amounts::Limits, Amounts::Requests]);
        let mounts = (list(), 0..4_usize).prop_map(|(list, index)| Target::Mounts(list, index));
        let resources = (list(), 0..4_usize, amounts)
            .prop_map(|(list, index, amounts)| Target::Resources(list, index, amounts));
        let own = select(vec![
            Target::Annotations,
            Target::Volumes,
            Target::NodeSelector,
            Target::Affinity,
            Target::NodeAffinity,
            Target::Preferred,
        ]);
        let target = prop_oneof![3 => own, 3 => mounts, 3 => resources];
        (target, select(vec![Standing::Missing, Standing::There]))
            .prop_map(|(target, standing)| at(target, standing))
    }

    /// What is added at one place: its path, what comes there whole, and what is added to what is there.
    struct Added {
        path: String,
        whole: Value,
        part: Option<(&'static str, Value)>,
    }

    fn added(target: Target) -> Added {
        const RESOURCE: &str = "durward.dev~1lxcfs";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let of = |path: &str, whole: Value, part: Option<(&'static str, Value)>| Added {
            path: path.to_owned(),
            whole,
            part,
        };
        let amount = || json!({"durward.dev/lxcfs": "1"});
        match target {
            Target::Annotations => of(
                "/metadata/annotations",
                json!({"durward.dev/lxcfs-status": "x"}),
                Some(("durward.dev~1lxcfs-status", json!("x"))),
            ),
            Target::Volumes => of("/spec/volumes", json!([{}]), Some(("-", json!({})))),
            Target::NodeSelector => of(
                "/spec/nodeSelector",
                json!({"durward.dev/lxcfs-ready": "true"}),
                Some(("durward.dev~1lxcfs-ready", json!("true"))),
            ),
            Target::Affinity => of("/spec/affinity", json!({"nodeAffinity": {PREFERRED: [{}]}}), None),
            Target::NodeAffinity => of("/spec/affinity/nodeAffinity", json!({PREFERRED: [{}]}), None),
            Target::Preferred => {
                of(&format!("/spec/affinity/nodeAffinity/{PREFERRED}"), json!([{}]), Some(("-", json!({}))))
            }
            Target::Mounts(list, index) => {
                of(&format!("/spec/{}/{index}/volumeMounts", list.key()), json!([{}]), Some(("-", json!({}))))
            }
            Target::Resources(list, index, amounts) => {
                let path = format!("/spec/{}/{index}/resources", list.key());
                match amounts {
                    Amounts::Both => of(&path, json!({"limits": amount(), "requests": amount()}), None),
                    Amounts::Limits => of(&format!("{path}/limits"), amount(), Some((RESOURCE, json!("1")))),
                    Amounts::Requests => {
                        of(&format!("{path}/requests"), amount(), Some((RESOURCE, json!("1"))))
                    }
                }
            }
        }
    }

    /// Whether the patch applies to the pod, adds to nothing but lists and maps of their kind, and replaces nothing of the pod's.
    fn is_harmless(pod: &str, places: &[Place]) -> bool {
        let mut patched: Value = serde_json::from_str(pod).unwrap();
        places.iter().all(|place| {
            let Added { path, whole, part } = added(place.target);
            let (fits, path, value) = match (place.standing, part) {
                (Standing::Missing, _) => (patched.pointer(&path).is_none_or(Value::is_null), path, whole),
                (Standing::There, None) => return false,
                // Elsewhere `-` is a key like any other.
                (Standing::There, Some(("-", value))) => {
                    (patched.pointer(&path).is_some_and(Value::is_array), format!("{path}/-"), value)
                }
                (Standing::There, Some((key, value))) => {
                    let is_map = patched.pointer(&path).is_some_and(Value::is_object);
                    let path = format!("{path}/{key}");
                    let is_new = place.target == Target::Annotations || patched.pointer(&path).is_none();
                    (is_map && is_new, path, value)
                }
            };
            let operations = json!([{"op": "add", "path": path, "value": value}]);
            let operations: json_patch::Patch = serde_json::from_value(operations).unwrap();
            fits && json_patch::patch(&mut patched, &operations).is_ok()
        })
    }

    /// Whether the places are such as the guard makes: each once, those in lists of containers in the order of the lists, and
    /// nothing within what is added whole.
    fn are_in_order(places: &[Place]) -> bool {
        let parts = |of: List| {
            places.iter().filter_map(move |place| match place.target {
                Target::Mounts(list, index) if list == of => Some((index, 0)),
                Target::Resources(list, index, amounts) if list == of => Some((index, 1 + amounts as usize)),
                _ => None,
            })
        };
        let times = |is: fn(Target) -> bool| places.iter().filter(|place| is(place.target)).count();
        times(|target| target == Target::Annotations) <= 1
            && times(|target| target == Target::Volumes) <= 1
            && times(|target| target == Target::NodeSelector) <= 1
            && times(|t| matches!(t, Target::Affinity | Target::NodeAffinity | Target::Preferred)) <= 1
            && [List::Containers, List::Init, List::Ephemeral].into_iter().all(|list| {
                parts(list).is_sorted_by(|one, next| one < next && (one.0 < next.0 || one.1 != 1))
            })
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
