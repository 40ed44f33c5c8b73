//! One level up, by option: what takes more than one member with it, or what a member stands on. A `StatefulSet` that is scaled below
//! the quorum of what it has, or deleted; the claim of a member that lives; a disruption budget over members.
//!
//! Each pod of it is asked about too when its turn comes, so this is no second quorum rule: it catches deeds whose consequence
//! comes later, or by a way on which a pod cannot be held up any more. It binds people; controllers are warned, as an operator
//! that manages the set knows what it does, and teardown of what owns the set must not be held up.

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{
    Cause, LabelSelector, Object, Operation, Raw, Request, Requirement, Ruling, SelectorOperator, Shape,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::config::{Also, Config, Within};
use super::glass::{self, Glass, Refused};
use super::ground::{Look, Namespace, PODS, SETS, whole};
use super::group;
use super::pod::Pod;
use super::target::{ANNOTATIONS, DELETION, NAME, REPLICAS, broken};
use super::tell;
use crate::exempt::Exemption;
use crate::world::cause;
use crate::world::fleet::Part;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Scale,
    DeleteSet,
    DeleteClaim,
    DeleteBudget,
}

impl Deed {
    fn of(request: &Request<'_>) -> Option<Self> {
        let is = |group: &str, resource: &str| {
            request.resource.group == group && request.resource.resource == resource
        };
        let sub = request.subresource.as_ref();
        match request.operation {
            Operation::Update if is("apps", "statefulsets") && matches!(sub, "" | "scale") => {
                Some(Self::Scale)
            }
            Operation::Delete if !sub.is_empty() => None,
            Operation::Delete if is("apps", "statefulsets") => Some(Self::DeleteSet),
            Operation::Delete if is("", "persistentvolumeclaims") => Some(Self::DeleteClaim),
            Operation::Delete if is("policy", "poddisruptionbudgets") => Some(Self::DeleteBudget),
            _ => None,
        }
    }

    fn also(self) -> Also {
        match self {
            Self::Scale => Also::Scale,
            Self::DeleteSet => Also::StatefulSets,
            Self::DeleteClaim => Also::Claims,
            Self::DeleteBudget => Also::Budgets,
        }
    }

    /// As kubectl has it.
    fn word(self) -> &'static str {
        match self {
            Self::Scale | Self::DeleteSet => "statefulset",
            Self::DeleteClaim => "persistentvolumeclaim",
            Self::DeleteBudget => "poddisruptionbudget",
        }
    }
}

/// What a `StatefulSet` makes.
#[derive(Deserialize)]
struct Set<'s> {
    #[serde(borrow)]
    spec: SetSpec<'s>,
}

#[derive(Deserialize)]
struct SetSpec<'s> {
    replicas: Option<u64>,
    #[serde(borrow)]
    template: &'s RawValue,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
}

#[derive(Deserialize)]
struct Budget {
    #[serde(default)]
    spec: BudgetSpec,
}

#[derive(Default, Deserialize)]
struct BudgetSpec {
    selector: Option<Selector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Expression>>,
}

#[derive(Deserialize)]
struct Expression {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

/// Rules on what is none of a pod's.
pub(super) async fn rule(config: &Config, look: Look<'_>, request: &Request<'_>, now: SystemTime) -> Ruling {
    let Some(deed) = Deed::of(request).filter(|deed| config.also.contains(&deed.also())) else {
        return Ruling::allow();
    };
    if let Exemption::By(part) = config.terms.exempt.of(request) {
        return Ruling::allow().audit("exempt", part);
    }
    if request.namespace == config.terms.install_namespace {
        return Ruling::allow().audit("exempt", "installNamespace");
    }
    match judged(config, look, request, deed, now).await {
        Ok(ruling) => ruling,
        Err(why) => Ruling::unknown(why),
    }
}

async fn judged(
    config: &Config,
    look: Look<'_>,
    request: &Request<'_>,
    deed: Deed,
    now: SystemTime,
) -> Result<Ruling, Cause> {
    let Some(old) = &request.old_object else { return Err(broken("it has no oldObject")) };
    if let Some(twice) = old.doubled() {
        return Err(Cause::new(
            cause::GARBAGE,
            format!("{twice} stands twice in its oldObject; the API server never sends that"),
        ));
    }
    if old.field(DELETION).is_some_and(|raw| raw.shape() != Shape::Null) {
        return Ok(Ruling::allow().audit("allowed", "it is being deleted already"));
    }
    let namespace = look.namespace(&request.namespace).await?;
    if namespace.is_going {
        return Ok(Ruling::allow().audit("allowed", "its namespace is being deleted"));
    }
    if config.terms.exempt.selects(&namespace.labels) {
        return Ok(Ruling::allow().audit("exempt", "exempt.namespaceSelector"));
    }
    let name = old.field(NAME).and_then(Raw::text).unwrap_or_default();
    let told = format!("{} \"{}/{name}\"", deed.word(), request.namespace);
    let annotations = annotations(old)?;
    let tried = glass::judge(config, &name, &annotations, now);
    if let Glass::Broken { reason, until } = tried {
        return Ok(tell::glass_broken(&told, &reason, &until));
    }
    let why = match deed {
        Deed::Scale => scaled(config, look, request, old, &namespace).await?,
        Deed::DeleteSet => set_gone(config, request, old, &namespace)?,
        Deed::DeleteClaim => claim_gone(config, look, request, &name, &namespace).await?,
        Deed::DeleteBudget => budget_gone(config, look, request, old, &namespace).await?,
    };
    let Some(why) = why else { return Ok(Ruling::allow()) };
    if config.terms.stance.is_controller(&request.user) {
        return Ok(Ruling::allow().warn(format!("{}{told}: {why}", tell::VOICE)).audit("warned", &why));
    }
    Ok(tell::above(
        &told,
        &why,
        &glass::way(config, Refused::Deletion(deed.word()), (&request.namespace, &name), &tried, now),
    ))
}

/// Whether pods with such a template, or such a pod, are members.
fn are_members(config: &Config, namespace: (&str, &Namespace), json: &str) -> Result<bool, Cause> {
    let (name, state) = namespace;
    let pod = Pod { namespace: name.to_owned(), ..Pod::read(json, 0)? };
    let label = |key: &str| state.labels.get(key).map(String::as_str);
    Ok(group::entry(config, &pod, json).any(|(ensemble, _)| match &ensemble.within {
        Within::Named(_) => true,
        Within::Labelled(selector) => selector.matches(label),
    }))
}

async fn scaled(
    config: &Config,
    look: Look<'_>,
    request: &Request<'_>,
    old: &Object<'_>,
    namespace: &Namespace,
) -> Result<Option<String>, Cause> {
    let new = request.object.as_ref().ok_or_else(|| broken("it has no object"))?;
    let replicas = |object: &Object<'_>, absent: u64| match object.field(REPLICAS) {
        None => Ok(absent),
        Some(raw) => raw
            .parse::<Option<u64>>()
            .map(|number| number.unwrap_or(absent))
            .map_err(|_| broken("replicas is no number")),
    };
    // In a Scale nothing is zero; in a StatefulSet it is one.
    let absent = u64::from(request.subresource.is_empty());
    let (before, after) = (replicas(old, absent)?, replicas(new, absent)?);
    let quorum = before / 2 + 1;
    if after >= before || after >= quorum {
        return Ok(None);
    }
    let owned;
    let json = if request.subresource.is_empty() {
        old.raw().get()
    } else {
        let found = look.find(&SETS, &request.namespace, &request.name, Part::Whole).await?;
        let Some(set) = found else { return Ok(None) };
        owned = whole(&set)?.to_owned();
        owned.as_str()
    };
    if !are_members(config, (&request.namespace, namespace), set(json)?.spec.template.get())? {
        return Ok(None);
    }
    if after == 0 {
        return Ok(Some(format!("none of its {before} members would be left")));
    }
    Ok(Some(format!(
        "{after} of its {before} members would be left, and {quorum} are a quorum; remove members from etcd one by one (etcdctl member remove), and scale behind them"
    )))
}

fn set(json: &str) -> Result<Set<'_>, Cause> {
    serde_json::from_str(json)
        .map_err(|error| Cause::new(cause::GARBAGE, format!("the StatefulSet cannot be read: {error}")))
}

fn set_gone(
    config: &Config,
    request: &Request<'_>,
    old: &Object<'_>,
    namespace: &Namespace,
) -> Result<Option<String>, Cause> {
    let set = set(old.raw().get())?;
    let options = request.options.map(Raw::parse::<Option<Options>>).transpose();
    let options =
        options.map_err(|_| broken("its options are none of a deletion"))?.flatten().unwrap_or_default();
    let is_orphaning =
        options.propagation_policy.as_deref() == Some("Orphan") || options.orphan_dependents == Some(true);
    let replicas = set.spec.replicas.unwrap_or(1);
    if replicas == 0
        || is_orphaning
        || !are_members(config, (&request.namespace, namespace), set.spec.template.get())?
    {
        return Ok(None);
    }
    let members =
        if replicas == 1 { "its member goes".to_owned() } else { format!("its {replicas} members go") };
    let way = if config.also.contains(&Also::Scale) { "" } else { ", or scale it to 0 where that is meant" };
    Ok(Some(format!("{members} with it; keep the pods with --cascade=orphan{way}")))
}

/// The pods of a namespace that are members and not on their way out, with their JSON.
async fn members(
    config: &Config,
    look: Look<'_>,
    request: &Request<'_>,
    namespace: &Namespace,
) -> Result<Vec<Pod>, Cause> {
    let mut members = Vec::new();
    for object in look.all(&PODS, &request.namespace).await? {
        let json = whole(&object)?;
        if are_members(config, (&request.namespace, namespace), json)? {
            members.push(Pod::read(json, 0)?);
        }
    }
    members.retain(|pod| !pod.is_going && !pod.has_ended());
    Ok(members)
}

async fn claim_gone(
    config: &Config,
    look: Look<'_>,
    request: &Request<'_>,
    name: &str,
    namespace: &Namespace,
) -> Result<Option<String>, Cause> {
    let members = members(config, look, request, namespace).await?;
    let user = members.iter().find(|pod| pod.claims.iter().any(|claim| claim == name));
    Ok(user.map(|pod| {
        format!("the data of the member {} is in it, and would be gone once its pod is", pod.name)
    }))
}

async fn budget_gone(
    config: &Config,
    look: Look<'_>,
    request: &Request<'_>,
    old: &Object<'_>,
    namespace: &Namespace,
) -> Result<Option<String>, Cause> {
    let budget: Budget = old.raw().parse().map_err(|error| {
        Cause::new(cause::GARBAGE, format!("the PodDisruptionBudget cannot be read: {error}"))
    })?;
    let Some(selector) = budget.spec.selector.map(selector).transpose()? else { return Ok(None) };
    let members = members(config, look, request, namespace).await?;
    let over = members
        .iter()
        .filter(|pod| selector.matches(|key: &str| pod.labels.get(key).map(String::as_str)))
        .count();
    let many = if over == 1 { "1 member".to_owned() } else { format!("{over} members") };
    Ok((over > 0)
        .then(|| format!("it is what keeps {many} from being evicted at once while Durward is not asked")))
}

fn selector(wire: Selector) -> Result<LabelSelector, Cause> {
    let mut selector =
        LabelSelector { match_labels: wire.match_labels.unwrap_or_default(), ..LabelSelector::default() };
    for Expression { key, operator, values } in wire.match_expressions.unwrap_or_default() {
        let operator = match operator.as_str() {
            "In" => SelectorOperator::In,
            "NotIn" => SelectorOperator::NotIn,
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            _ => return Err(Cause::new(cause::GARBAGE, "the budget's selector cannot be read")),
        };
        selector.match_expressions.push(Requirement { key, operator, values: values.unwrap_or_default() });
    }
    Ok(selector)
}

/// Its annotations; nothing and null are none.
fn annotations(object: &Object<'_>) -> Result<BTreeMap<String, String>, Cause> {
    let Some(raw) = object.field(ANNOTATIONS) else { return Ok(BTreeMap::new()) };
    let annotations: Option<BTreeMap<String, String>> =
        raw.parse().map_err(|_| broken("annotations in its oldObject are no texts"))?;
    Ok(annotations.unwrap_or_default())
}
