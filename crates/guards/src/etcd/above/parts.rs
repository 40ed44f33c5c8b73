//! What a member stands on: its claim, and the budget that holds while Durward is not asked.

use admission::Cause;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::super::ground::{PODS, whole};
use super::super::pod::Pod;
use super::{Case, Objection, Subject, entry};
use ::config::{Selector, SelectorExt as _};
use cluster::cause;

#[derive(Deserialize)]
struct Budget {
    #[serde(default)]
    spec: BudgetSpec,
}

#[derive(Default, Deserialize)]
struct BudgetSpec {
    selector: Option<LabelSelector>,
}

/// The pods of the namespace that are members and not on their way out.
async fn members(case: Case<'_>, subject: &Subject<'_>) -> Result<Vec<Pod>, Cause> {
    let mut members = Vec::new();
    for object in case.look.all(&PODS, &case.request.namespace).await? {
        members.extend(entry(case, &subject.namespace, whole(&object)?)?.map(|(_, pod)| pod));
    }
    members.retain(|pod| !pod.is_going && !pod.has_ended());
    Ok(members)
}

pub(super) async fn claim_gone(case: Case<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let members = members(case, subject).await?;
    let user = members.iter().find(|pod| pod.claims.contains(&subject.name));
    let why = |pod: &Pod| {
        format!("the data of the member {} is in it, and would be gone once its pod is", pod.name)
    };
    Ok(user.map(|pod| Objection::deny(why(pod))).into_iter().collect())
}

pub(super) async fn budget_gone(case: Case<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Cause::new(cause::GARBAGE, format!("the PodDisruptionBudget cannot be read: {error}"))
    };
    let budget: Budget = serde_json::from_str(&subject.json).map_err(|error| unreadable(&error))?;
    let Some(selector) = budget.spec.selector else { return Ok(Vec::new()) };
    let selector = Selector::try_from(selector).map_err(|error| unreadable(&error))?;
    let members = members(case, subject).await?;
    let is_over = |pod: &&Pod| selector.matches(&pod.labels);
    let over = members.iter().filter(is_over).count();
    if over == 0 {
        return Ok(Vec::new());
    }
    let many = if over == 1 { "1 member".to_owned() } else { format!("{over} members") };
    let why = format!("it is what keeps {many} from being evicted at once while Durward is not asked");
    Ok(vec![Objection::deny(why)])
}
