//! Responses of etcd members: a file for each pod, in the directory of the local cluster.
//!
//! `here/etcd/<namespace>_<pod>.json` contains the pod's `uid`, and under the key of each request the member's answer, or the
//! reason for its failure. Answers are the types of [`crate::etcd`] as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use admission::Cause;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::{entries, text};
use crate::cause;
use crate::etcd::{Alarm, EtcdRequest, EtcdResponse, EtcdResult, MemberList, Read, Status};
use crate::world::EtcdAnswers;
use config::Problem;

/// The directory with the files. No List has this name.
pub(super) const DIRECTORY: &str = "etcd";

/// The key of a failure.
const UNKNOWN: &str = "unknown";

/// Reads the directory, if it exists. Returns the answers by namespace and name of the pod.
pub(super) fn read(
    root: &Path,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> BTreeMap<(String, String), EtcdAnswers> {
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
                    .why("is not the name of a pod's file")
                    .next("name it <namespace>_<pod>.json, like shop_etcd-0.json"),
            );
            continue;
        };
        let read = text(root, &file).and_then(|text| parse(&text).map_err(|why| problem().why(why)));
        match read {
            Ok(read) => drop(pods.insert((namespace.to_owned(), pod.to_owned()), read)),
            Err(found) => problems.push(found),
        }
    }
    pods
}

/// Parses one file. The error is the end of a sentence about it.
fn parse(text: &str) -> Result<EtcdAnswers, String> {
    let mut all: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("is not a JSON object: {error}"))?;
    let Some(Value::String(uid)) = all.remove("uid") else {
        return Err("has no string uid (of the pod)".to_owned());
    };
    let mut answers = BTreeMap::new();
    for (word, value) in &all {
        let request = EtcdRequest::ALL.into_iter().find(|request| request.word() == word);
        let request = request.ok_or_else(|| {
            let words = EtcdRequest::ALL.map(EtcdRequest::word).join(", ");
            format!("unknown key {word:?}; keys are: uid, {words}")
        })?;
        let answer = match value.get(UNKNOWN) {
            Some(why) => Err(unknown(why).map_err(|why| format!("{word}.{UNKNOWN}: {why}"))?),
            None => {
                Ok(answer(request, value).map_err(|why| format!("{word}: {why}; take the snapshot again"))?)
            }
        };
        answers.insert(request, answer);
    }
    Ok(EtcdAnswers { uid, answers })
}

fn answer(request: EtcdRequest, value: &Value) -> Result<EtcdResponse, String> {
    let response = match request {
        EtcdRequest::Status => {
            Status::deserialize(value).map(|status| EtcdResponse::Status(Box::new(status)))
        }
        EtcdRequest::Members | EtcdRequest::MembersByQuorum => {
            MemberList::deserialize(value).map(EtcdResponse::Members)
        }
        EtcdRequest::Alarms => Vec::<Alarm>::deserialize(value).map(EtcdResponse::Alarms),
        EtcdRequest::Read => Read::deserialize(value).map(EtcdResponse::Read),
    };
    response.map_err(|error| error.to_string())?.check()
}

fn unknown(value: &Value) -> Result<Cause, String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let code = text("cause").and_then(|given| cause::recordable().find(|&code| code == given));
    let code = code.ok_or_else(|| {
        format!("cause must be one of: {}", cause::recordable().collect::<Vec<_>>().join(", "))
    })?;
    let text = text("text").ok_or_else(|| "text is missing".to_owned())?;
    Ok(Cause::new(code, text))
}

/// Returns the file's name. Neither part contains an underscore, because both are DNS names.
pub(super) fn name(namespace: &str, pod: &str) -> String {
    format!("{namespace}_{pod}.json")
}

/// Returns the text of a file.
pub(super) fn written(uid: &str, answers: &BTreeMap<EtcdRequest, EtcdResult>) -> String {
    let encode = |answer: &EtcdResult| match answer {
        Ok(answer) => json!(answer),
        Err(why) => {
            let code = if cause::is_recordable(why.code) { why.code } else { cause::BUSY };
            json!({UNKNOWN: {"cause": code, "text": why.reason()}})
        }
    };
    let mut out = Map::new();
    out.insert("uid".to_owned(), uid.into());
    out.extend(answers.iter().map(|(request, answer)| (request.word().to_owned(), encode(answer))));
    format!("{:#}\n", Value::Object(out))
}

/// Whether an answer is of the type of this request.
pub(super) fn belongs(request: EtcdRequest, answer: &EtcdResult) -> bool {
    matches!(
        (request, answer),
        (_, Err(_))
            | (EtcdRequest::Status, Ok(EtcdResponse::Status(_)))
            | (EtcdRequest::Members | EtcdRequest::MembersByQuorum, Ok(EtcdResponse::Members(_)))
            | (EtcdRequest::Alarms, Ok(EtcdResponse::Alarms(_)))
            | (EtcdRequest::Read, Ok(EtcdResponse::Read(_)))
    )
}
