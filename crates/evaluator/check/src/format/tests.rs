//! The end-to-end case `check::` validates the formats against published schemas.

use std::collections::BTreeMap;

use admission::Operation;
use config::Place;
use console::exit::Exit;
use manifests::LoadProblem;

use super::*;
use crate::args::FailOn;
use crate::report::{
    CheckReport, CheckedCase, CheckedDocument, DocumentFinding, FailedRule, Judge, Severity, Totals,
};

const GATE: Gate = Gate { fail_on: FailOn::Deny, allow_unknown: false };

fn at(file: &str, line: usize) -> Place {
    Place { file: file.to_owned(), line, column: 3 }
}

fn finding(verdict: Severity, policy: &str, message: &str) -> DocumentFinding {
    let has_rule = !policy.is_empty() && verdict != Severity::Error;
    DocumentFinding {
        verdict,
        policy: policy.to_owned(),
        binding: if policy.is_empty() { String::new() } else { format!("{policy}-everywhere") },
        rule: has_rule.then(|| FailedRule {
            index: 1,
            expression: "object.spec.replicas <= 5 && 'a' != \"b\"".to_owned(),
        }),
        message: message.to_owned(),
        reason: if verdict == Severity::Deny { "Invalid".to_owned() } else { String::new() },
        code: (verdict == Severity::Deny).then_some(422),
        field: "spec.replicas".to_owned(),
        position: at("./a dir/web%, 1:2.yaml", 7),
        server_order: (verdict == Severity::Deny).then_some(0),
        next: String::new(),
    }
}

fn document(name: &str, findings: Vec<DocumentFinding>, policies: &[&str]) -> CheckedDocument {
    CheckedDocument {
        position: at("./a dir/web%, 1:2.yaml", 1),
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        operation: Operation::Create,
        schema_checked: false,
        structure_only: false,
        policies: policies
            .iter()
            .map(|policy| Judge { policy: (*policy).to_owned(), binding: format!("{policy}-everywhere") })
            .collect(),
        lacks_server_fields: false,
        findings,
        audit_annotations: BTreeMap::from([("team/owner".to_owned(), "shop".to_owned())]),
    }
}

fn case(name: &str, passed: bool) -> CheckedCase {
    let verdict = |text: &str| if passed { String::new() } else { text.to_owned() };
    CheckedCase {
        position: at("tests/cases.yaml", 9),
        name: name.to_owned(),
        passed,
        expected: verdict("deny"),
        actual: verdict("allow"),
        next: verdict("correct the case or the policy"),
    }
}

/// A report with every kind of finding and with texts that every format must escape.
fn report() -> CheckReport {
    let mut missing_fact = finding(Severity::Unknown, "team", "needs the Namespace shop");
    missing_fact.next = "pass it with --with".to_owned();
    CheckReport {
        kube_version: "1.35".to_owned(),
        namespace: "default".to_owned(),
        notes: vec!["1 webhook is not evaluated".to_owned()],
        problems: vec![LoadProblem {
            position: Some(at("policies/b.yaml", 4)),
            kind: "ValidatingAdmissionPolicy".to_owned(),
            name: "b".to_owned(),
            field: "spec.validations[0].expression".to_owned(),
            message: "undeclared reference to 'x'\n | x\n | ^".to_owned(),
            next: "declare it".to_owned(),
        }],
        documents: vec![
            document(
                "web",
                vec![
                    finding(Severity::Deny, "limit", "100% of <b>\r\n:, \u{1b}[31m ]]> & \"more\""),
                    finding(Severity::Deny, "limit", "a second denial"),
                    finding(Severity::Warn, "hint", "use fewer"),
                    finding(Severity::Error, "broken", "no such key: x"),
                    missing_fact,
                    finding(Severity::Audit, "log", "recorded"),
                    finding(Severity::Deny, "", "field is immutable"),
                ],
                &["limit", "hint", "quiet"],
            ),
            document("api", Vec::new(), &["limit"]),
            document("lonely", Vec::new(), &[]),
        ],
        cases: vec![case("passes", true), case("a <large> size", false)],
        totals: Totals::default(),
        exit_code: Exit::Bad,
    }
}

#[test]
fn junit_has_a_test_for_each_document_and_policy() {
    let xml = junit::write(&report(), GATE);
    let count = |text: &str| xml.matches(text).count();
    assert_eq!(
        count("<testcase "),
        count("</testcase>") + count("classname=\"apps.v1.Deployment\"/>") + 1,
        "{xml}"
    );
    assert!(
        xml.contains("<testsuites name=\"durward check\" tests=\"12\" failures=\"4\" errors=\"2\">"),
        "{xml}"
    );
    assert_eq!(count("<skipped message=\"no policy matches\"/>"), 1);
    assert_eq!(count("a second denial"), 1, "two findings of a policy are one test");
    assert!(xml.contains("&#13;&#10;:, \u{fffd}[31m ]]&gt; &amp; &quot;more&quot;"), "{xml}");
    assert!(
        xml.contains("classname=\"apps.v1.Deployment\"/>"),
        "a passed test without output is empty: {xml}"
    );
    assert!(!xml.contains('\u{1b}'));
}

#[test]
fn junit_fails_for_warnings_and_passes_unknown_verdicts_on_request() {
    let gate = Gate { fail_on: FailOn::Warn, allow_unknown: true };
    let xml = junit::write(&report(), gate);
    assert!(xml.contains("tests=\"12\" failures=\"5\" errors=\"1\""), "{xml}");
    assert!(xml.contains("<failure type=\"warn\" message=\"use fewer\">"), "{xml}");
}

#[test]
fn sarif_names_rule_place_and_object() {
    let sarif = serde_json::to_value(sarif::write(&report())).unwrap();
    let run = &sarif["runs"][0];
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 9);
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
    }
    let denial = &results[1];
    assert_eq!(denial["ruleId"], "limit/validations[1]");
    assert_eq!(results[2]["ruleIndex"], denial["ruleIndex"], "two results of a validation have one rule");
    let place = &denial["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20dir/web%25,%201%3A2.yaml");
    assert_eq!((&place["region"]["startLine"], &place["region"]["startColumn"]), (&7.into(), &3.into()));
    let levels: Vec<&str> = results.iter().map(|result| result["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["error", "error", "error", "warning", "error", "error", "note", "error", "error"]);
}

/// A workflow command as the runner of GitHub Actions parses it.
fn parse_command(line: &str) -> (String, Vec<(String, String)>, String) {
    let data = |text: &str| text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%");
    let property = |text: &str| data(&text.replace("%3A", ":").replace("%2C", ","));
    let (command, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
    let (name, properties) = command.split_once(' ').unwrap();
    let properties = properties.split(',').map(|entry| entry.split_once('=').unwrap());
    let properties = properties.map(|(key, value)| (key.to_owned(), property(value))).collect();
    (name.to_owned(), properties, data(message))
}

#[test]
fn github_commands_are_parsed_back() {
    let text = github::write(&report());
    let commands: Vec<_> = text.lines().map(parse_command).collect();
    assert_eq!(commands.len(), 9, "a line break in a message is escaped: {text}");
    let (name, properties, message) = &commands[1];
    assert_eq!(name, "error");
    let expected = [
        ("file", "./a dir/web%, 1:2.yaml"),
        ("line", "7"),
        ("col", "3"),
        ("title", "deny Deployment shop/web: policy limit"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(properties, &expected);
    assert_eq!(message, "spec.replicas: 100% of <b> \n:,  [31m ]]> & \"more\"");
    let names: Vec<&str> = commands.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["error", "error", "error", "warning", "error", "error", "notice", "error", "error"]);
}

#[test]
fn formats_of_an_empty_report_are_valid() {
    let empty = CheckReport {
        problems: Vec::new(),
        documents: Vec::new(),
        cases: Vec::new(),
        notes: Vec::new(),
        exit_code: Exit::Done,
        ..report()
    };
    assert!(
        junit::write(&empty, GATE)
            .contains("<testsuites name=\"durward check\" tests=\"0\" failures=\"0\" errors=\"0\">")
    );
    assert_eq!(github::write(&empty), "");
    assert_eq!(
        serde_json::to_value(sarif::write(&empty)).unwrap()["runs"][0]["results"],
        serde_json::json!([])
    );
}
