//! An open watch: lines of JSON, one event each.

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::api::{OBJECT_LIMIT, Object};
use super::failure::{Failure, SERVER, Status, brief, not_sent, not_understood, refusal};
use crate::metadata::Wire;
use crate::{Resource, cause};

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Event {
    /// Added or modified: it looks like this now.
    Is(Wire),
    /// Deleted.
    Gone(Wire),
    /// Nothing happened until this version.
    Bookmark(String),
}

/// The events of an open watch, one JSON document a line.
pub(super) struct Events {
    body: Body,
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    read: usize,
    resource: Resource,
}

impl Events {
    /// The events in the body of an answer to a watch of `resource`.
    pub(super) fn over(body: Body, resource: Resource) -> Self {
        Self { body, buffer: Vec::new(), read: 0, resource }
    }

    /// The next event; none when the API server ends the watch, as it does after a while. Must not be called again after it
    /// was dropped half way.
    pub(super) async fn next(&mut self) -> Option<Result<Event, Failure>> {
        let line = match self.line().await? {
            Ok(line) => line,
            Err(failure) => return Some(Err(failure)),
        };
        Some(event(&line, &self.resource))
    }

    async fn line(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        let mut searched = self.read;
        loop {
            let unsearched = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|&byte| byte == b'\n') {
                let end = searched + at;
                let line = self.buffer.get(self.read..end).unwrap_or_default().to_vec();
                self.read = end + 1;
                return Some(Ok(line));
            }
            self.buffer.drain(..self.read);
            self.read = 0;
            searched = self.buffer.len();
            if searched > OBJECT_LIMIT {
                return Some(Err(Failure::new(
                    cause::GARBAGE,
                    "the API server sends an event that does not end",
                )));
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Err(error) => return Some(Err(not_sent(&error, SERVER))),
            }
        }
    }
}

fn event(line: &[u8], resource: &Resource) -> Result<Event, Failure> {
    #[derive(Deserialize)]
    struct Line<'l> {
        r#type: &'l str,
        #[serde(borrow)]
        object: &'l RawValue,
    }
    let Line { r#type, object } =
        serde_json::from_slice(line).map_err(|error| not_understood(&error, line))?;
    if r#type == "ERROR" {
        let code = serde_json::from_str::<Status>(object.get()).ok().and_then(|status| status.code);
        let status = code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(refusal(status, object.get().as_bytes(), "watch", resource));
    }
    let object: Object = serde_json::from_str(object.get()).map_err(|error| not_understood(&error, line))?;
    match r#type {
        "BOOKMARK" if !object.metadata.resource_version.is_empty() => {
            Ok(Event::Bookmark(object.metadata.resource_version))
        }
        "ADDED" | "MODIFIED" | "DELETED"
            if object.metadata.name.is_empty()
                || object.metadata.resource_version.is_empty()
                || !object.is_of(resource) =>
        {
            Err(Failure::new(
                cause::GARBAGE,
                format!("the API server reports on something else ({})", brief(&object.kind)),
            ))
        }
        "ADDED" | "MODIFIED" => Ok(Event::Is(object.metadata)),
        "DELETED" => Ok(Event::Gone(object.metadata)),
        other => Err(Failure::new(
            cause::GARBAGE,
            format!("the API server reports an event of type {}", brief(other)),
        )),
    }
}
