//! Responses of etcd members: a file for each pod, in the directory of the local cluster.
//!
//! `here/etcd/<namespace>_<pod>.json` holds the pod's `uid`, and under each question's word the answer as the member gave it, or
//! why there was none.

use std::collections::BTreeMap;
use std::path::Path;

use admission::Cause;
use serde_json::{Map, Value, json};

use super::{LOCAL, Snapshot, entries, text};
use crate::etcd::{Endpoint, EtcdRequest, EtcdResponse, EtcdResult};
use crate::{cause, gateway};
use config::Problem;

/// Beside the Lists; no List is called so.
pub(super) const FOLDER: &str = "etcd";

/// In place of an answer: why there is none.
const UNKNOWN: &str = "unknown";

/// All pods that were asked, by namespace and name.
pub(super) type Pods = BTreeMap<(String, String), Pod>;

/// The responses of one pod.
#[derive(Debug)]
pub(super) struct Pod {
    uid: String,
    answers: BTreeMap<EtcdRequest, EtcdResult>,
}

/// Reads the folder, if it is there.
pub(super) fn read(root: &Path, path: &Path, problems: &mut Vec<Problem>) -> Pods {
    let mut pods = BTreeMap::new();
    if !path.exists() {
        return pods;
    }
    for file in entries(path, problems) {
        let problem = || Problem::new(file.display().to_string());
        let name =
            file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
        let Some((namespace, pod)) = name.and_then(|name| name.split_once('_')) else {
            problems.push(
                problem()
                    .why("is not the name of a pod's answers")
                    .next("write: <namespace>_<pod>.json, as shop_etcd-0.json"),
            );
            continue;
        };
        let read = text(root, &file).and_then(|text| of(&text).map_err(|why| problem().why(why)));
        match read {
            Ok(read) => drop(pods.insert((namespace.to_owned(), pod.to_owned()), read)),
            Err(found) => problems.push(found),
        }
    }
    pods
}

/// The text of one file. The error is the end of a sentence about it.
fn of(text: &str) -> Result<Pod, String> {
    let mut all: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("is no JSON object: {error}"))?;
    let Some(Value::String(uid)) = all.remove("uid") else {
        return Err("has no uid, which is a text: that of the pod".to_owned());
    };
    let mut answers = BTreeMap::new();
    for (word, value) in &all {
        let question = EtcdRequest::ALL.into_iter().find(|question| question.word() == word);
        let question = question.ok_or_else(|| {
            let words = EtcdRequest::ALL.map(EtcdRequest::word).join(", ");
            format!("has {word:?} in it, which is no question (there are: uid, {words})")
        })?;
        let answer = match value.get(UNKNOWN) {
            Some(why) => Err(unknown(why).map_err(|why| format!("{word}.{UNKNOWN}: {why}"))?),
            None => Ok(gateway::recorded(question, value).map_err(|why| format!("{word}: {why}"))?),
        };
        answers.insert(question, answer);
    }
    Ok(Pod { uid, answers })
}

fn unknown(value: &Value) -> Result<Cause, String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let code = text("cause").and_then(|told| cause::recordable().find(|&code| code == told));
    let code = code.ok_or_else(|| {
        format!("its cause is none of: {}", cause::recordable().collect::<Vec<_>>().join(", "))
    })?;
    let text = text("text").ok_or_else(|| "it has no text".to_owned())?;
    Ok(Cause::new(code, text))
}

impl Snapshot {
    pub(super) fn answered(&self, peer: &Endpoint, question: EtcdRequest) -> EtcdResult {
        let file = self.path.join(LOCAL).join(FOLDER).join(name(&peer.namespace, &peer.name));
        let not_told = |why: String| {
            let what = format!("{peer} could not be asked for {question}");
            Err(Cause::new(cause::NOT_RECORDED, format!("{what}: {why}")))
        };
        let Some(pod) = self.pods.get(&(peer.namespace.clone(), peer.name.clone())) else {
            return not_told(format!("it is not recorded (there is no {})", file.display()));
        };
        if pod.uid != peer.uid {
            return not_told(format!(
                "{} is of another pod of that name (its uid is another)",
                file.display()
            ));
        }
        match pod.answers.get(&question) {
            Some(answer) => answer.clone(),
            None => not_told(format!("{} has no {:?}", file.display(), question.word())),
        }
    }
}

/// The file's name. Neither part can hold an underscore: both are DNS names.
pub(super) fn name(namespace: &str, pod: &str) -> String {
    format!("{namespace}_{pod}.json")
}

/// The text of a file, which [`read`] reads.
pub(super) fn written(uid: &str, answers: &BTreeMap<EtcdRequest, EtcdResult>) -> String {
    let told = |answer: &EtcdResult| match answer {
        Ok(answer) => gateway::written(answer),
        Err(Cause { code, text }) => {
            let code = if cause::is_recordable(code) { code } else { cause::BUSY };
            json!({UNKNOWN: {"cause": code, "text": text}})
        }
    };
    let mut out = Map::new();
    out.insert("uid".to_owned(), uid.into());
    out.extend(answers.iter().map(|(question, answer)| (question.word().to_owned(), told(answer))));
    format!("{:#}\n", Value::Object(out))
}

/// Whether an answer is one to this question: what a world gives beside it is not recorded.
pub(super) fn belongs(question: EtcdRequest, answer: &EtcdResult) -> bool {
    matches!(
        (question, answer),
        (_, Err(_))
            | (EtcdRequest::Status, Ok(EtcdResponse::Status(_)))
            | (EtcdRequest::Members | EtcdRequest::MembersByQuorum, Ok(EtcdResponse::Members(_)))
            | (EtcdRequest::Alarms, Ok(EtcdResponse::Alarms(_)))
            | (EtcdRequest::Read, Ok(EtcdResponse::Read(_)))
            | (EtcdRequest::Health, Ok(EtcdResponse::Health(_)))
            | (EtcdRequest::Metrics, Ok(EtcdResponse::Metrics(_)))
    )
}
