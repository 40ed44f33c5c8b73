//! `-o junit`: one test suite for each file, one test for each document and policy, and for each case.
//!
//! The output is valid against the schema of Jenkins' xUnit plugin, which is the strictest reader. It has no times, so equal
//! runs give equal files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use admission::{Operation, text as clean};
use manifests::LoadProblem;

use super::parts::{self, Gate, case_text, finding_text, push_next, with_field};
use crate::report::{CheckReport, CheckedCase, CheckedDocument, DocumentFinding, Severity};

/// Name of the run, and of the suite of problems that are in no file.
const NAME: &str = "durward check";

/// A test.
struct TestCase {
    name: String,
    /// Jenkins groups tests by the part before the last dot.
    class: String,
    result: CaseResult,
    /// Findings that fail nothing.
    output: String,
}

enum CaseResult {
    Passed,
    Skipped(&'static str),
    /// `failure` for a denial, `error` if something could not be decided or used.
    Failed {
        element: &'static str,
        kind: &'static str,
        message: String,
        text: String,
    },
}

/// Returns the report as XML.
pub(super) fn write(report: &CheckReport, gate: Gate) -> String {
    let mut suites: BTreeMap<&str, Vec<TestCase>> = BTreeMap::new();
    for problem in &report.problems {
        let file = problem.position.as_ref().map_or(NAME, |position| position.file.as_str());
        suites.entry(file).or_default().push(problem_case(problem));
    }
    for document in &report.documents {
        suites.entry(&document.position.file).or_default().extend(document_cases(document, gate));
    }
    for case in &report.cases {
        suites.entry(&case.position.file).or_default().push(expectation(case));
    }
    let all = || suites.values().flatten();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"{NAME}\"{}>", counts(&all()));
    for (file, cases) in &suites {
        let skipped = cases.iter().filter(|case| matches!(case.result, CaseResult::Skipped(_))).count();
        let (name, counts) = (escape(file), counts(&cases.iter()));
        let _ = writeln!(xml, "  <testsuite name=\"{name}\"{counts} skipped=\"{skipped}\" file=\"{name}\">");
        let version = escape(&report.kube_version);
        let _ = writeln!(
            xml,
            "    <properties>\n      <property name=\"kubeVersion\" value=\"{version}\"/>\n    </properties>"
        );
        for case in cases {
            case.write(&mut xml);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn counts<'a>(cases: &(impl Iterator<Item = &'a TestCase> + Clone)) -> String {
    let failed = |wanted: &str| {
        let is_wanted =
            |case: &&TestCase| matches!(case.result, CaseResult::Failed { element, .. } if element == wanted);
        cases.clone().filter(is_wanted).count()
    };
    let tests = cases.clone().count();
    format!(" tests=\"{tests}\" failures=\"{}\" errors=\"{}\"", failed("failure"), failed("error"))
}

fn problem_case(problem: &LoadProblem) -> TestCase {
    let subject = format!("{} {}", problem.kind, problem.name);
    let subject = if subject.trim().is_empty() { "document" } else { subject.trim() };
    let position =
        problem.position.as_ref().map(|position| parts::place(position) + ": ").unwrap_or_default();
    let mut text = format!("{position}{}", with_field(&problem.field, &problem.message));
    push_next(&mut text, &problem.next);
    TestCase {
        name: format!("{subject} can be used"),
        class: "input".to_owned(),
        result: CaseResult::Failed {
            element: "error",
            kind: "problem",
            message: problem.message.clone(),
            text,
        },
        output: String::new(),
    }
}

fn expectation(case: &CheckedCase) -> TestCase {
    let result = if case.passed {
        CaseResult::Passed
    } else {
        let text = case_text(case);
        let message = text.lines().next().unwrap_or_default().to_owned();
        let text = format!("{}: {text}", parts::place(&case.position));
        CaseResult::Failed { element: "failure", kind: "case", message, text }
    };
    TestCase { name: case.name.clone(), class: "cases".to_owned(), result, output: String::new() }
}

/// Returns the tests of a document: one for each policy and binding, and one for findings that are about neither.
fn document_cases(document: &CheckedDocument, gate: Gate) -> Vec<TestCase> {
    let class = format!("{}.{}", document.api_version.replace('/', "."), document.kind);
    let operation = match document.operation {
        Operation::Create => String::new(),
        other => format!(" ({})", other.as_str()),
    };
    let subject = format!("{} {}{operation}", document.kind, document.full_name());
    let mut findings: BTreeMap<(&str, &str), Vec<&DocumentFinding>> = document
        .policies
        .iter()
        .map(|judge| ((judge.policy.as_str(), judge.binding.as_str()), Vec::new()))
        .collect();
    for finding in &document.findings {
        findings.entry((&finding.policy, &finding.binding)).or_default().push(finding);
    }
    if findings.is_empty() {
        let result = match (document.schema_checked, document.structure_only) {
            (true, _) => CaseResult::Passed,
            (_, true) => CaseResult::Skipped("structure only: no policy matches"),
            _ => CaseResult::Skipped("no policy matches"),
        };
        return vec![TestCase { name: subject, class, result, output: String::new() }];
    }
    let case = |((policy, binding), findings): ((&str, &str), Vec<&DocumentFinding>)| {
        let name = match (policy, binding) {
            ("", _) => subject.clone(),
            (policy, "") => format!("{subject}: policy {policy}"),
            (policy, binding) => format!("{subject}: policy {policy}, binding {binding}"),
        };
        let (failing, passing): (Vec<&DocumentFinding>, Vec<&DocumentFinding>) =
            findings.into_iter().partition(|finding| gate.fails(finding.verdict));
        let result = failing.first().map_or(CaseResult::Passed, |first| CaseResult::Failed {
            element: if first.verdict == Severity::Unknown { "error" } else { "failure" },
            kind: first.verdict.name(),
            message: first.message.clone(),
            text: texts(&failing),
        });
        TestCase { name, class: class.clone(), result, output: texts(&passing) }
    };
    findings.into_iter().map(case).collect()
}

fn texts(findings: &[&DocumentFinding]) -> String {
    let texts: Vec<String> = findings.iter().map(|finding| finding_text(finding)).collect();
    texts.join("\n")
}

impl TestCase {
    fn write(&self, xml: &mut String) {
        let _ = write!(
            xml,
            "    <testcase name=\"{}\" classname=\"{}\"",
            escape(&self.name),
            escape(&self.class)
        );
        if matches!(self.result, CaseResult::Passed) && self.output.is_empty() {
            xml.push_str("/>\n");
            return;
        }
        xml.push_str(">\n");
        match &self.result {
            CaseResult::Passed => {}
            CaseResult::Skipped(why) => {
                let _ = writeln!(xml, "      <skipped message=\"{why}\"/>");
            }
            CaseResult::Failed { element, kind, message, text } => {
                let (message, text) = (escape(message), escape(text));
                let _ = writeln!(
                    xml,
                    "      <{element} type=\"{kind}\" message=\"{message}\">{text}</{element}>"
                );
            }
        }
        if !self.output.is_empty() {
            let _ = writeln!(xml, "      <system-out>{}</system-out>", escape(&self.output));
        }
        xml.push_str("    </testcase>\n");
    }
}

/// Escapes a text for attributes and elements. XML can't contain other control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\r' | '\t' => {
                let _ = write!(escaped, "&#{};", u32::from(character));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            other if !clean::is_printable(other) => {
                let _ = write!(escaped, "&#{};", u32::from(other));
            }
            other => escaped.push(other),
        }
    }
    // A workflow command in the older syntax.
    escaped.replace("##[", "##&#91;")
}
