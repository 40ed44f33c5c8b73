//! The other way into a container: one extended resource, for which the node's device plugin hands the mounts to the kubelet.
//!
//! The pod gets no volume, so Pod Security has nothing to refuse, and the scheduler counts the resource, so a pod comes only to
//! nodes whose plugin is well. In return it is all or nothing: the plugin mounts the files of the configuration, and which of
//! them is no pod's to say. A container that mounts something of its own at, above or below one of those places is left out as
//! a whole.
//!
//! Upstream facts (Kubernetes 1.35). The request of an extended resource must equal its limit
//! (`validateResourceRequirements` in `pkg/apis/core/validation`), so both are written. It has no bearing on the quality of service, nor
//! on limits of the pod as a whole, which know only cpu, memory and hugepages. Ephemeral containers cannot have resources. A pod
//! with a `nodeName` is past the scheduler, and the kubelet of a node whose plugin is not well fails it for good
//! (`devicesToAllocate` in `pkg/kubelet/cm/devicemanager`).

use admission::{JsonError, Raw, Shape};

use super::config::Config;
use super::containers::{Container, Limits, is_amount};
use super::files::Files;
use super::inject::{Injection, Picked, pick};
use super::messages;
use super::opt_in::{PodOptIn, shortened};
use super::pod::{NODE_NAME, Pod, Unreadable};
use super::slot::{Slot, Target};
use super::volumes::Volumes;

/// The extended resource. Of it a container has one or none.
pub(super) const RESOURCE: &str = "durward.dev/lxcfs";
/// How much of it a container gets, as a Quantity.
const ONE: &str = "1";

/// A container that is chosen, and what becomes of it.
#[derive(Debug)]
struct Share<'a> {
    container: Container<'a>,
    gets: Gets,
}

/// What a container gets.
#[derive(Debug)]
enum Gets {
    /// Its author, or an earlier pass, has written an amount of the resource: that stays, whatever it is. Whether it is more
    /// than none.
    Kept(bool),
    /// The resource, where it is lacking.
    Added(Lack),
    /// Nothing, because something is mounted already where these files would come.
    Conflict(Files),
    /// Nothing, because it has no limit that one of the files would show.
    NoLimit,
}

/// How the amounts of a container stand that knows nothing of the resource.
#[derive(Debug, Clone, Copy)]
enum Lack {
    /// It has no resources at all.
    All(Slot),
    /// It has some.
    In {
        /// Its `limits`.
        limits: Slot,
        /// Its `requests`.
        requests: Slot,
    },
}

/// Adds the resource to a pod that is being made.
pub(super) fn into_new<'a>(
    config: &Config,
    pod: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    mut volumes: Volumes<'a>,
) -> Result<Injection, Unreadable> {
    let Picked { containers, wrong } = pick(config, pod, opt_in, &mut volumes)?;
    let mut warnings: Vec<String> =
        opt_in.partial_files_warning(config.files).into_iter().chain(wrong).collect();
    let of_pod = Limits::of_pod(pod);
    let shares = containers
        .into_iter()
        .map(|container| Share::of(config, of_pod, container))
        .collect::<Result<Vec<_>, _>>()?;
    warnings.extend(conflicts(&shares));
    let has_no_limit = |share: &Share<'_>| matches!(share.gets, Gets::NoLimit);
    warnings.extend(messages::nothing(shares.len(), shares.iter().all(has_no_limit)));
    let is_added = |share: &Share<'_>| matches!(share.gets, Gets::Added(_));
    if shares.iter().any(is_added)
        && let Some(node) = pod.text(NODE_NAME).filter(|node| !node.is_empty())
    {
        warnings.push(format!(
            "nodeName {:?} passes the scheduler by: if the device plugin of LXCFS is not well on that node, the kubelet fails this pod for good",
            shortened(&node)
        ));
    }

    // Two operations a container, some 110 bytes each.
    let mut injection = Injection::with_room(shares.len() * 220, summary(&shares), warnings);
    for Share { gets, .. } in &shares {
        if let Gets::Added(lack) = gets {
            injection.resource(*lack)?;
        }
    }
    injection.status(pod, opt_in)?;
    Ok(injection)
}

impl<'a> Share<'a> {
    fn of(config: &Config, of_pod: Limits, container: Container<'a>) -> Result<Self, Unreadable> {
        let gets = match held(&container)? {
            Held::Some(is_more_than_none) => Gets::Kept(is_more_than_none),
            Held::Nothing(lack) => {
                let places = container.shown.and(container.kept_files());
                let in_the_way = config.files.filter(|file| places.has(file));
                if !in_the_way.is_empty() {
                    Gets::Conflict(in_the_way)
                } else if config.limited(config.files, container.limits.and(of_pod)).is_empty() {
                    Gets::NoLimit
                } else {
                    Gets::Added(lack)
                }
            }
        };
        Ok(Self { container, gets })
    }
}

/// What a container has of the resource.
enum Held {
    /// It is written there. Whether as more than none.
    Some(bool),
    /// It is not.
    Nothing(Lack),
}

fn held(container: &Container<'_>) -> Result<Held, Unreadable> {
    let wrong = |why| Unreadable::new(format!("{}.resources", container.place()), why);
    let (list, index) = (container.list, container.index);
    let slot = Slot::read(Target::Resources(list, index), container.resources)
        .ok_or_else(|| wrong("is not an object"))?;
    let Some(resources) = container.resources.filter(|_| !slot.is_missing()) else {
        return Ok(Held::Nothing(Lack::All(slot)));
    };
    let (mut limits, mut requests) = (None, None);
    resources.scan().object(|scanner, key| {
        let slot = match key.as_ref() {
            "limits" => &mut limits,
            "requests" => &mut requests,
            _ => return scanner.value().map(drop).map_err(Unreadable::from),
        };
        if slot.replace(scanner.value()?).is_some() {
            return Err(wrong("has a key twice"));
        }
        Ok(())
    })?;
    let lack = Lack::In {
        limits: Slot::read(Target::Limits(list, index), limits)
            .ok_or_else(|| wrong("has limits that are no object"))?,
        requests: Slot::read(Target::Requests(list, index), requests)
            .ok_or_else(|| wrong("has requests that are no object"))?,
    };
    // One of the two alone is not valid, or becomes both by the API server's defaults: its author's, either way.
    let (limit, request) = (amount(limits)?, amount(requests)?);
    Ok(limit.or(request).map_or(Held::Nothing(lack), Held::Some))
}

/// Whether a map of amounts has one of the resource that is more than none; nothing if it does not have it.
fn amount(map: Option<Raw<'_>>) -> Result<Option<bool>, Unreadable> {
    let mut found = None;
    if let Some(map) = map.filter(|map| map.shape() == Shape::Object) {
        map.scan().object(|scanner, key| {
            let value = scanner.value()?;
            if key == RESOURCE {
                found = Some(is_amount(value));
            }
            Ok::<_, JsonError>(())
        })?;
    }
    Ok(found)
}

impl Injection {
    /// Adds the resource to one container.
    fn resource(&mut self, lack: Lack) -> Result<(), Unreadable> {
        match lack {
            Lack::All(slot) => {
                let amount = std::collections::BTreeMap::from([(RESOURCE, ONE)]);
                let both = std::collections::BTreeMap::from([("limits", &amount), ("requests", &amount)]);
                self.add_whole(slot, &both)
            }
            Lack::In { limits, requests } => {
                self.add_entry(limits, RESOURCE, &ONE)?;
                self.add_entry(requests, RESOURCE, &ONE)
            }
        }
    }
}

/// What each container has after the patch. By the pod alone it cannot be told which files those are: the plugin's.
fn summary(shares: &[Share<'_>]) -> String {
    messages::each(shares, |Share { container, gets }, text| {
        text.push_str(&container.name);
        text.push_str(match gets {
            Gets::Added(_) | Gets::Kept(true) => "=device",
            Gets::Conflict(_) | Gets::NoLimit | Gets::Kept(false) => "=none",
        });
        if let Gets::Conflict(files) = gets {
            text.push_str(" (mounted by the pod: ");
            files.write(text);
            text.push(')');
        }
    })
}

fn conflicts(shares: &[Share<'_>]) -> Vec<String> {
    let told = shares.iter().filter_map(|Share { container, gets }| {
        let Gets::Conflict(files) = gets else { return None };
        let first = files.iter().next()?;
        let kept = container.kept.iter().find(|kept| kept.files.has(first));
        let path = kept.map_or(first.path(), |kept| &kept.path);
        Some((container, path))
    });
    messages::few(
        told,
        |(container, path)| {
            format!(
                "container {:?} keeps the pod's own mount at {}, so it gets none of LXCFS's files: the device plugin gives all of them or none",
                shortened(&container.name),
                shortened(path)
            )
        },
        |more| format!("{more} more containers keep mounts of the pod's own, and get none of LXCFS's files"),
    )
}
