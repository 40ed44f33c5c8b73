//! From a document of kind `Cases` to cases.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path as FilePath, PathBuf};

use admission::Operation;
use manifests::LoadProblem;
use manifests::files::{InputFile, Use};
use manifests::objects::{self, Manifest};
use policy::field::Path;
use policy::value::{Arena, Value};
use regex::Regex;

use super::case::{API_VERSION, PolicyCase};
use super::expect::{Expect, Expected, ExpectedMessage};
use super::fields::{FieldMap, FieldReader};
use crate::grants::{Grant, Grants};

const OPERATIONS: [Operation; 3] = [Operation::Create, Operation::Update, Operation::Delete];

/// Reads all cases of a document, or returns all its problems.
pub(crate) fn read(document: &Manifest) -> Result<Vec<PolicyCase>, Vec<LoadProblem>> {
    let arena = Arena::new();
    let value = document.value(&arena);
    let fields = FieldReader { object: document, problems: Vec::new() };
    let mut reader = CaseReader { fields, files: HashMap::new() };
    let cases = reader.document(value);
    if reader.fields.problems.is_empty() { Ok(cases) } else { Err(reader.fields.problems) }
}

struct CaseReader<'o> {
    fields: FieldReader<'o>,
    /// Objects of the files that cases name.
    files: HashMap<PathBuf, Vec<Manifest>>,
}

impl CaseReader<'_> {
    fn document(&mut self, value: Value<'_>) -> Vec<PolicyCase> {
        let keys = ["apiVersion", "kind", "metadata", "cases"];
        let Some(map) = self.fields.map(value, Path::default(), &keys) else { return Vec::new() };
        if self.fields.text(&map, "apiVersion").is_some_and(|version| version != API_VERSION) {
            let next = format!("write apiVersion: {API_VERSION}");
            self.fields.report(&Path::new("apiVersion"), "this version of Cases is not known", next);
        }
        let items = self.fields.list(&map, "cases");
        if items.is_empty() && self.fields.problems.is_empty() {
            let next = "write cases: [{name: …, object: …, expect: {verdict: deny}}]";
            self.fields.report(&Path::new("cases"), "the document has no cases", next);
        }
        let mut names = HashSet::new();
        let mut cases = Vec::new();
        for (item, path) in items {
            let Some(case) = self.case(item, &path) else { continue };
            if !names.insert(case.name.clone()) {
                let message = format!("the name {:?} is used twice", case.name);
                self.fields.report(&path.child("name"), message, "give each case its own name");
            }
            cases.push(case);
        }
        cases
    }

    fn case(&mut self, value: Value<'_>, path: &Path) -> Option<PolicyCase> {
        let keys = [
            "name",
            "object",
            "oldObject",
            "operation",
            "subresource",
            "user",
            "namespaceLabels",
            "params",
            "grants",
            "expect",
        ];
        let map = self.fields.map(value, path.clone(), &keys)?;
        let before = self.fields.problems.len();
        let name = self.fields.text(&map, "name").unwrap_or_default().to_owned();
        if name.is_empty() && self.fields.problems.len() == before {
            self.fields.report(path, "the case has no name", "write name: …");
        }
        let new = map.get("object").and_then(|(value, path)| self.object(value, &path));
        let old = map.get("oldObject").and_then(|(value, path)| self.object(value, &path));
        self.check_operation(&map);
        let subresource = self.fields.text(&map, "subresource").unwrap_or_default().to_owned();
        let user = self.user(&map);
        let namespace_labels = self.labels(&map);
        let params = self.params(&map);
        let grants = self.grants(&map);
        let expect = self.expect(&map);
        Some(PolicyCase {
            name,
            position: self.fields.object.place_of(path),
            new,
            old,
            subresource,
            user,
            namespace_labels,
            params,
            grants,
            expect: expect?,
        })
    }

    /// Checks that the operation fits to the objects, which decide about it.
    fn check_operation(&mut self, map: &FieldMap<'_>) {
        let has = |key: &str| map.get(key).is_some();
        let (operation, needs) = match (has("object"), has("oldObject")) {
            (true, false) => (Operation::Create, "object alone"),
            (true, true) => (Operation::Update, "object and oldObject"),
            (false, true) => (Operation::Delete, "oldObject alone"),
            (false, false) => {
                return self.fields.report(&map.path, "the case has no object", "write object or oldObject");
            }
        };
        if let Some(named) =
            self.fields.word(map, "operation", &OPERATIONS.map(|operation| (operation.as_str(), operation)))
            && named != operation
        {
            let message = format!("{needs} is the operation {}", operation.as_str());
            let next = "CREATE needs object, DELETE needs oldObject, UPDATE needs both";
            self.fields.report(&map.path.child("operation"), message, next);
        }
    }

    fn user(&mut self, map: &FieldMap<'_>) -> Option<(String, Vec<String>)> {
        let (value, path) = map.get("user")?;
        if let Value::String(name) = value {
            return Some((name.to_owned(), Vec::new()));
        }
        let map = self.fields.map(value, path.clone(), &["name", "groups"])?;
        let name = self.fields.text(&map, "name").unwrap_or_default().to_owned();
        let groups = self.fields.texts(&map, "groups");
        if name.is_empty() {
            self.fields.report(
                &path,
                "the user has no name",
                "write user: NAME, or user: {name: …, groups: […]}",
            );
        }
        Some((name, groups))
    }

    fn labels(&mut self, map: &FieldMap<'_>) -> Option<BTreeMap<String, String>> {
        let (value, path) = map.get("namespaceLabels")?;
        let labels = self.fields.map(value, path, &[])?;
        let mut read = BTreeMap::new();
        for (key, value) in labels.entries() {
            if let Some(value) = self.fields.as_text(*value, &labels.path.child(key)) {
                read.insert((*key).to_owned(), value.to_owned());
            }
        }
        Some(read)
    }

    fn params(&mut self, map: &FieldMap<'_>) -> Option<Vec<Manifest>> {
        map.get("params")?;
        let items = self.fields.list(map, "params");
        Some(items.iter().filter_map(|(value, path)| self.object(*value, path)).collect())
    }

    fn grants(&mut self, map: &FieldMap<'_>) -> Option<Grants> {
        map.get("grants")?;
        let items = self.fields.list(map, "grants");
        Some(Grants::new(items.into_iter().filter_map(|(value, path)| self.grant(value, path)).collect()))
    }

    fn grant(&mut self, value: Value<'_>, path: Path) -> Option<Grant> {
        let keys = [
            "serviceAccount",
            "verbs",
            "apiGroups",
            "resources",
            "resourceNames",
            "namespaces",
            "nonResourceURLs",
        ];
        let map = self.fields.map(value, path, &keys)?;
        let service_account = self.fields.text(&map, "serviceAccount").and_then(|text| {
            let parts =
                text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
            if parts.is_none() {
                let path = map.path.child("serviceAccount");
                self.fields.report(
                    &path,
                    format!("{text:?} has no namespace or no name"),
                    "write NAMESPACE/NAME",
                );
            }
            parts.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        });
        Some(Grant {
            service_account,
            verbs: self.fields.texts(&map, "verbs"),
            api_groups: self.fields.texts(&map, "apiGroups"),
            resources: self.fields.texts(&map, "resources"),
            resource_names: self.fields.texts(&map, "resourceNames"),
            namespaces: self.fields.texts(&map, "namespaces"),
            urls: self.fields.texts(&map, "nonResourceURLs"),
        })
    }

    fn expect(&mut self, map: &FieldMap<'_>) -> Option<Expect> {
        let Some((value, path)) = map.get("expect") else {
            self.fields.report(
                &map.path,
                "the case has no expected verdict",
                "write expect: {verdict: deny}",
            );
            return None;
        };
        let map = self.fields.map(
            value,
            path.clone(),
            &["verdict", "policy", "reason", "message", "messageMatches"],
        )?;
        if map.get("verdict").is_none() {
            self.fields.report(&path, "the case has no expected verdict", "write expect: {verdict: deny}");
            return None;
        }
        let verdict = self.fields.word(&map, "verdict", &Expected::NAMES);
        let text = |fields: &mut FieldReader<'_>, key| fields.text(&map, key).map(str::to_owned);
        let policy = text(&mut self.fields, "policy");
        let reason = text(&mut self.fields, "reason");
        let exact = text(&mut self.fields, "message");
        let pattern = text(&mut self.fields, "messageMatches");
        let verdict = verdict?;
        if matches!(verdict, Expected::Allow | Expected::Skip) {
            for key in ["reason", "message", "messageMatches"].iter().filter(|key| map.get(key).is_some()) {
                let message = format!("{key} needs the verdict deny or error");
                self.fields.report(&path.child(key), message, "remove it, or change the verdict");
            }
        }
        let message = match (exact, pattern) {
            (None, None) => None,
            (Some(exact), None) => Some(ExpectedMessage::Is(exact)),
            (None, Some(pattern)) => Some(ExpectedMessage::Matches(self.pattern(&pattern, &path)?)),
            (Some(_), Some(_)) => {
                self.fields.report(
                    &path.child("messageMatches"),
                    "message is set too",
                    "remove one of the two",
                );
                return None;
            }
        };
        Some(Expect { verdict, policy, reason, message, position: self.fields.object.place_of(&path) })
    }

    fn pattern(&mut self, pattern: &str, path: &Path) -> Option<Regex> {
        if pattern.is_empty() {
            let path = path.child("messageMatches");
            self.fields.report(
                &path,
                "an empty pattern matches all messages",
                "remove it, or write a pattern",
            );
            return None;
        }
        let read = Regex::new(pattern);
        if let Err(error) = &read {
            // The last line has the reason; those before draw the pattern. These are words of regex-syntax: src/error.rs.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let message = format!("messageMatches is not a regular expression: {reason}");
            self.fields.report(&path.child("messageMatches"), message, "fix the pattern, or use message");
        }
        read.ok()
    }

    /// Reads an object, inline or as `FILE#N`.
    fn object(&mut self, value: Value<'_>, path: &Path) -> Option<Manifest> {
        if let Value::String(reference) = value {
            return self.reference(reference, path);
        }
        let whole = self.fields.object;
        let document = whole.document.within(path)?;
        if let Some((inner, message)) = objects::not_an_object(document.root()) {
            self.fields.report(&path.join(&inner), message, "write the object here, or FILE#N");
            return None;
        }
        Some(objects::object(&whole.source, document, whole.used))
    }

    /// Reads object number N of a file. Paths are relative to the file of the cases.
    fn reference(&mut self, reference: &str, path: &Path) -> Option<Manifest> {
        let (name, number) = match reference.rsplit_once('#') {
            Some((name, number)) => (name, number.parse().ok().filter(|number: &usize| *number > 0)),
            None => (reference, Some(0)),
        };
        let Some(number) = number else {
            self.fields.report(
                path,
                format!("{reference:?} has no number after #"),
                "objects are counted from 1: FILE#1",
            );
            return None;
        };
        let directory = FilePath::new(&self.fields.object.source.name).parent().unwrap_or(FilePath::new(""));
        let file = directory.join(name);
        if !self.files.contains_key(&file) {
            let (objects, problems) = objects::read(&[InputFile { path: file.clone(), used: Use::Fact }]);
            for problem in problems {
                let place = problem.position.as_ref().map(|place| format!("{}:{}: ", place.file, place.line));
                let message = format!("{}{}", place.unwrap_or_default(), problem.message);
                self.fields.report(path, message, problem.next);
            }
            self.files.insert(file.clone(), objects);
        }
        let all = self.files.get(&file)?;
        let count = all.len();
        let index = if number == 0 && count == 1 { 1 } else { number };
        let found = index.checked_sub(1).and_then(|index| all.get(index)).cloned();
        if found.is_none() && count > 0 {
            let message = match count {
                1 => format!("{} has one object", file.display()),
                _ => format!("{} has {count} objects", file.display()),
            };
            self.fields.report(path, message, format!("objects are counted from 1: {name}#1"));
        }
        found
    }
}
