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
}
