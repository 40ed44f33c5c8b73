//! Readers of small files.

use super::*;
use crate::parse;

fn problems<T>(text: &str, reader: impl FnOnce(&mut Section<'_>) -> T) -> Vec<String> {
    let root = parse("d.yaml", text).unwrap();
    read("d.yaml", root.as_ref(), reader).2.iter().map(ToString::to_string).collect()
}

fn values<T>(text: &str, reader: impl FnOnce(&mut Section<'_>) -> T) -> T {
    let root = parse("d.yaml", text).unwrap();
    let (value, _, problems) = read("d.yaml", root.as_ref(), reader);
    assert_eq!(problems, []);
    value
}

#[test]
fn reports_every_problem_in_the_order_of_the_file() {
    let text =
        "listn: x\nlimits:\n  inFlight: 0\n  deadline: soon\nmode: enforced\nflag: \"true\"\nnames: x\n";
    let found = problems(text, |s| {
        s.text("listen", "address", "Where.", "0.0.0.0:1");
        s.section("limits", "Limits.", |s| {
            s.number("inFlight", "How many.", 256, (1, 4096));
            s.duration("deadline", "How long.", "10s", Duration::from_secs(30));
        });
        s.choice("mode", "How.", &[("enforce", 1), ("audit", 2)], 1);
        s.bool("flag", "Whether.", false);
        s.texts("names", "name", "Which.", &[]);
    });
    assert_eq!(
        found,
        [
            "d.yaml:1:1: unknown field \"listn\": did you mean listen?\n    known fields: listen, limits, mode, flag, names",
            "d.yaml:3:13: limits.inFlight: invalid value \"0\"\n    must be a whole number from 1 to 4096",
            "d.yaml:4:13: limits.deadline: invalid value \"soon\"\n    must be a time like 300ms or 10s",
            "d.yaml:5:7: mode: invalid value \"enforced\": did you mean enforce?\n    must be one of: enforce, audit",
            "d.yaml:6:7: flag: invalid value \"true\": is a string in quotes\n    must be true or false",
            "d.yaml:7:8: names: is not a list\n    must be a list: names: [ … ]; each entry: a name",
        ]
    );
}

#[test]
fn absent_and_null_keys_take_the_default() {
    let read = |s: &mut Section<'_>| {
        (
            s.bool("a", "A.", true),
            s.size("b", "B.", "8Mi"),
            s.texts("c", "name", "C.", &["x"]),
            s.optional_text("d", "name", "D."),
        )
    };
    let defaults = (true, 8 << 20, vec!["x".to_owned()], None);
    assert_eq!(values("a:\nb: null\n", read), defaults);
    assert_eq!(values("{}", read), defaults);
    assert_eq!(values("a: false\nb: 1Ki\nc: []\nd: y\n", read), (false, 1024, vec![], Some("y".to_owned())));
}

#[test]
fn reads_lists_of_sections_and_names_the_invalid_entry() {
    let reader = |s: &mut Section<'_>| {
        s.sections("acknowledge", "A.", |s| s.required_text("cluster", "name", "Which."))
    };
    assert_eq!(values("acknowledge: [{cluster: a}, {cluster: b}]", reader), ["a", "b"]);
    assert_eq!(
        problems("acknowledge:\n- cluster: a\n- {clustr: b}\n", reader),
        [
            "d.yaml:3:3: acknowledge[1].cluster: is required\n    add: cluster: <name>",
            "d.yaml:3:4: unknown field \"acknowledge[1].clustr\": did you mean cluster?\n    known fields: cluster",
        ]
    );
}

#[test]
fn readers_declare_the_keys() {
    let ((), keys, _) = read("-", None, |s| {
        s.bool("initContainers", "Also init containers.", false);
        s.section("optIn", "Ways to opt in.", |s| {
            s.bool("label", "By label.", true);
        });
        s.optional_text("root", "path", "Where.");
    });
    assert_eq!(
        Key::defaults(&keys),
        "# Also init containers.\ninitContainers: false\n# Ways to opt in.\noptIn:\n  # By label.\n  label: true\n# Where.\n# root: a path\n"
    );
    let schema = Shape::Section(keys).schema();
    assert_eq!(schema["properties"]["optIn"]["properties"]["label"]["type"], "boolean");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn selectors_are_read_as_kubernetes_writes_them() {
    let text =
        "s:\n  matchLabels: {team: shop}\n  matchExpressions:\n  - {key: tier, operator: In, values: [a]}\n";
    let selector = values(text, |s| s.selector("s", "Which.")).unwrap();
    assert_eq!(selector.to_string(), "team=shop,tier in (a)");
    assert_eq!(values("{}", |s| s.selector("s", "Which.")), None);
    let found = problems("s: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", |s| {
        s.selector("s", "Which.")
    });
    assert!(found[0].contains("Exists and DoesNotExist take no values"), "{found:?}");
    for empty in ["values: []", "values:"] {
        let text = format!("s: {{matchExpressions: [{{key: a, operator: In, {empty}}}]}}");
        let found = problems(&text, |s| s.selector("s", "Which."));
        assert!(found.len() == 1 && found[0].contains("In and NotIn need values"), "{found:?}");
    }
}

#[test]
fn reports_invalid_labels_with_place_and_allowed_values() {
    let text = "s:\n  matchLabels:\n    \"bad key!\": fine\n    team: \"x y\"\n  matchExpressions:\n  - {key: a/b/c, operator: In, values: [ok, -no]}\n  - {operator: Exists}\n";
    let found = problems(text, |s| s.selector("s", "Which."));
    let begins = [
        "d.yaml:3:5: s.matchLabels: invalid value \"bad key!\": is not a label key\n    must be a label key: letters, digits",
        "d.yaml:4:11: s.matchLabels.team: invalid value \"x y\": is not a label value\n    must be a label value: letters, digits",
        "d.yaml:6:11: s.matchExpressions[0].key: invalid value \"a/b/c\": is not a label key: it has more than one /\n    must be a label key",
        "d.yaml:6:45: s.matchExpressions[0].values: invalid value \"-no\": is not a label value\n    must be a label value",
        "d.yaml:7:5: s.matchExpressions[1].key: is required\n    add: key: <label key>",
    ];
    assert_eq!(found.len(), begins.len(), "{found:#?}");
    for (problem, begin) in found.iter().zip(begins) {
        assert!(problem.starts_with(begin), "{problem}\n{begin}");
    }
}

#[test]
fn a_removed_key_is_refused_with_its_successor() {
    let found = problems("a: 1\nold: null\n", |s| {
        s.number("a", "A number.", 1, (1, 9));
        s.removed("old", "use a instead");
        s.removed("older", "use a instead");
    });
    assert_eq!(found, ["d.yaml:2:1: field \"old\" was removed\n    use a instead"]);
}
