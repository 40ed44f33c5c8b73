//! SARIF 2.1.0, as GitHub code scanning and editors read it. There are no times, so equal runs give equal files.

use config::Place;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Characters that a path in a URI can't contain.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b']')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b':');

/// Rules in the order of their first result.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Value>,
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Log<R> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    runs: [Run<R>; 1],
    version: &'static str,
}

#[derive(Serialize)]
struct Run<R> {
    #[serde(flatten)]
    run: Value,
    results: Vec<R>,
}

/// Returns a log with one run. `run` has the parts that are particular to a command.
pub fn log<R: Serialize>(mut run: Value, rules: Rules, results: Vec<R>) -> impl Serialize {
    run["tool"] = json!({"driver": {
        "name": "durward",
        "informationUri": env!("CARGO_PKG_REPOSITORY"),
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": Value::Array(rules.rules),
    }});
    run["columnKind"] = json!("unicodeCodePoints");
    Log { schema: SCHEMA, runs: [Run { run, results }], version: "2.1.0" }
}

impl Rules {
    /// Returns the index of a rule, and adds it if it is new.
    pub fn index(&mut self, id: &str, short: &str, full: &str) -> usize {
        if let Some(index) = self.ids.iter().position(|known| known == id) {
            return index;
        }
        self.ids.push(id.to_owned());
        self.rules.push(json!({
            "id": id,
            "shortDescription": {"text": short},
            "fullDescription": {"text": full},
            "help": {"text": full},
        }));
        self.ids.len() - 1
    }
}

/// Returns the place of a result: the position in a file, and the object.
pub fn locations(position: Option<&Place>, object: &str) -> Value {
    let mut location = json!({});
    if let Some(Place { file, line, column }) = position {
        location["physicalLocation"] = json!({
            "artifactLocation": {"uri": uri(file)},
            "region": {"startLine": line, "startColumn": column},
        });
    }
    if !object.is_empty() {
        location["logicalLocations"] = json!([{"fullyQualifiedName": object, "kind": "object"}]);
    }
    json!([location])
}

/// Returns a file as a URI. A relative path is a relative reference, which GitHub resolves from the repository's root.
fn uri(file: &str) -> String {
    let path = utf8_percent_encode(file.strip_prefix("./").unwrap_or(file), NOT_IN_PATHS);
    if file.starts_with('/') { format!("file://{path}") } else { path.to_string() }
}
