use super::*;
use crate::field::Path;

fn json(value: Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Double(value) => format!("{value:?}"),
        Value::String(text) => format!("{text:?}"),
        Value::List(items) => {
            format!("[{}]", items.iter().map(|item| json(*item)).collect::<Vec<_>>().join(","))
        }
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{key:?}:{}", json(*value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        other => panic!("{other:?} is not JSON"),
    }
}

fn values(text: &str) -> Vec<String> {
    let arena = Arena::new();
    let documents = read(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    documents.iter().map(|document| json(document.value(&arena))).collect()
}

fn error(text: &str) -> String {
    read(text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn reads_scalars_as_kubectl_does() {
    assert_eq!(
        values("[yes, Off, y, 0644, 0o17, 1e3, 1.5, 2001-01-01, ~, null, '5', 0x1F, 1.0, 12:30, 1.2.3, 0xg]"),
        [r#"[true,false,true,420,15,1000,1.5,"2001-01-01",null,null,"5",31,1,"12:30","1.2.3","0xg"]"#]
    );
    assert_eq!(values("a:\nb: \"yes\"\n"), [r#"{"a":null,"b":"yes"}"#]);
    assert_eq!(values("[18446744073709551615]"), ["[1.8446744073709552e19]"]);
}

#[test]
fn refuses_texts_that_readers_of_yaml_read_differently() {
    for number in [
        "08",
        "-0644",
        "1_000",
        "0b1",
        "-0x1f",
        ".nan",
        "-.inf",
        "1e400",
        "18446744073709551616",
        "0xffffffffffffffff",
    ] {
        assert_eq!(
            error(&format!("é: {number}")),
            format!("1:4: readers of YAML and JSON differ on the value of {number}")
        );
    }
    assert!(error("a:\n  b: !!str 5").starts_with("2:12: the value has a tag"));
    assert!(
        error("a: 1\nb: x\u{2028}y").starts_with("2:5: YAML readers differ on whether the character U+2028")
    );
    assert_eq!(values("a: '08'\nb: |\n  1_000\n"), [r#"{"a":"08","b":"1_000\n"}"#]);
}

#[test]
fn keys_become_texts() {
    assert_eq!(values("1: a\nyes: b\nno: c\n"), [r#"{"1":"a","false":"c","true":"b"}"#]);
    assert_eq!(error("~: a"), "1:1: YAML readers differ on the text of this key");
    assert_eq!(error("1.5: a"), "1:1: YAML readers differ on the text of this key");
    assert_eq!(error("x:\n  [a]: b"), "2:3: a key is a list or map");
}

#[test]
fn skips_empty_documents_and_comments() {
    let text = "\u{feff}# head\n---\n---\na: 1\r\n--- # more\r\n# only a comment\n---\nb: 2\n---\nnull\n";
    assert_eq!(values(text), [r#"{"a":1}"#, r#"{"b":2}"#]);
    assert_eq!(values(""), [""; 0]);
    assert_eq!(values("# nothing\n"), [""; 0]);
}

#[test]
fn reads_json_values_one_after_the_other() {
    assert_eq!(
        values(" {\"a\": [1, -0, 1.5e3, \"\\u00e9\"]}\n{\"b\":{}}[]"),
        [r#"{"a":[1,0,1500,"é"]}"#, r#"{"b":{}}"#, "[]"]
    );
    assert_eq!(values("{a: 1}"), [r#"{"a":1}"#], "YAML in flow style");
    assert_eq!(values("{\"a\": 1}\n---\n{\"b\": 2}\n"), [r#"{"a":1}"#, r#"{"b":2}"#]);
    assert_eq!(error("{\"a\": 1} x"), "1:10: this is not JSON: expected a value");
    assert_eq!(error("{\n  \"a\": 1\n}{"), "3:3: this is not JSON: the text ends too early");
    assert!(error("{\"a\": 1e999}").starts_with("1:7: readers of YAML and JSON differ"));
}

#[test]
fn refuses_duplicate_keys() {
    assert_eq!(error("a: 1\nb: 2\na: 3\n"), "3:1: duplicate key \"a\" (the first is in line 1)");
    assert_eq!(error("{\"a\": 1,\n \"a\": 1}"), "2:2: duplicate key \"a\" (the first is in line 1)");
    assert_eq!(error("x: {1: a, '1': b}"), "1:11: duplicate key \"1\" (the first is in line 1)");
    let many: Vec<String> = (0..50).map(|number| format!("k{number}: 1\n")).collect();
    assert_eq!(
        error(&format!("{}k7: 2\n", many.concat())),
        "51:1: duplicate key \"k7\" (the first is in line 8)"
    );
}

#[test]
fn merges_maps() {
    let text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\none: {<<: *x, b: 5}\nmany: {<<: [*x, *y]}\n";
    let read = values(text);
    assert!(read[0].contains(r#""one":{"a":1,"b":5}"#), "{read:?}");
    assert!(read[0].contains(r#""many":{"a":1,"b":2,"c":4}"#), "{read:?}");
    assert!(
        error("x: &x {b: 1}\na: {b: 5, <<: *x}")
            .starts_with("2:11: YAML readers differ on which \"b\" counts")
    );
    assert!(error("a: {<<: {b: 1}, b: 2, b: 3}").contains("duplicate key \"b\""));
    assert_eq!(error("a: {<<: 1}"), "1:5: the merge key << needs a map or a list of maps");
}

#[test]
fn bounds_aliases() {
    assert_eq!(
        values("a: &a [1, 2]\nb: *a\n&k c: d\n*k : e\n".replace("*k : e\n", "").as_str()),
        [r#"{"a":[1,2],"b":[1,2],"c":"d"}"#]
    );
    assert_eq!(error("a: &a [*a]"), "1:8: the alias contains itself");
    assert!(error("a: *b").contains("this is not YAML"));
    let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned()];
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        lines.push(format!("a{level}: &a{level} [{items}]\n"));
    }
    let text = lines.concat();
    assert!(error(&text).ends_with("the values of the text need too much memory"), "{}", error(&text));
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(600), "]".repeat(600));
    let deep = format!("a: &a {}\nb: {}\n", nested("1"), nested("*a"));
    assert!(error(&deep).starts_with("2:604: lists and maps are nested deeper"), "{}", error(&deep));
}

#[test]
fn bounds_the_nesting() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        assert_eq!(values(&nested(1_000)).len(), 1);
        assert!(
            error(&nested(1_001)).contains("nested deeper than 1000 levels"),
            "{}",
            error(&nested(1_001))
        );
        assert!(error(&nested(200_000)).contains("nested deeper than 1000 levels"));
        let unclosed = error(&open.repeat(200_000));
        assert!(unclosed.contains("nested deeper than 1000 levels"), "{unclosed}");
    }
    let block = |levels: usize| {
        (0..levels).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<Vec<_>>().concat()
    };
    assert_eq!(values(&block(1_000)).len(), 1);
    assert!(error(&block(1_500)).contains("nested deeper"), "{}", error(&block(1_500)));
    let dashes = error(&"- ".repeat(5_000));
    assert!(dashes.contains("nested deeper"), "{dashes}");
}

#[test]
fn items_of_lists_are_objects() {
    let text = "kind: List\napiVersion: v1\nitems:\n- kind: Pod\n  spec: {a: 1}\n- kind: PodList\n  b: 2\n  items: [1]\n---\nkind: PodList\napiVersion: v1\nitems:\n- c: 3\n---\nkind: PodList\nitems:\n";
    let arena = Arena::new();
    let documents = read(text).unwrap();
    let shown: Vec<_> = documents
        .iter()
        .map(|document| (document.item().to_string(), json(document.value(&arena))))
        .collect();
    assert_eq!(
        shown,
        [
            ("items[0]".to_owned(), r#"{"kind":"Pod","spec":{"a":1}}"#.to_owned()),
            ("items[1]".to_owned(), r#"{"b":2,"items":[1],"kind":"PodList"}"#.to_owned()),
            ("items[0]".to_owned(), r#"{"apiVersion":"v1","c":3,"kind":"Pod"}"#.to_owned()),
        ]
    );
    assert_eq!(documents[0].place(&Path::new("spec").child("a")), Position { line: 5, column: 10 });
    assert_eq!(documents[0].place(&Path::default()), Position { line: 4, column: 3 });
    assert_eq!(documents[1].place(&Path::new("items").index(0)), Position { line: 8, column: 11 });
    assert_eq!(documents[2].place(&Path::new("c")), Position { line: 13, column: 3 });
}

#[test]
fn an_object_of_any_kind_with_items_is_a_list_as_in_kubectl() {
    let arena = Arena::new();
    let shown = |text: &str| -> Vec<String> {
        read(text).unwrap().iter().map(|document| json(document.value(&arena))).collect()
    };
    assert_eq!(shown("{apiVersion: apps/v1, kind: List, items: [{kind: Pod}]}"), [r#"{"kind":"Pod"}"#]);
    for (version, kind) in
        [("v2", "List"), ("v1", "list"), ("v1", "FooList"), ("apps/v1", "PodList"), ("v1", "Foo")]
    {
        let text = format!("{{apiVersion: {version}, kind: {kind}, items: [{{kind: Pod}}]}}");
        assert!(shown(&text)[0].contains("items"), "an unknown list stays an object: {text}");
    }
    let widgets = shown("{apiVersion: a.org/v1, kind: WidgetList, items: [{a: 1}, {kind: Pod}]}");
    assert_eq!(widgets, [r#"{"a":1,"apiVersion":"a.org/v1","kind":"Widget"}"#, r#"{"kind":"Pod"}"#]);
    assert_eq!(shown("{apiVersion: v1, kind: ConfigMap, items: [{kind: Pod}]}"), [r#"{"kind":"Pod"}"#]);
    for object in ["{kind: Pod, items: []}", "{kind: Pod, items: null}", "{kind: AllowList, items: {a: 1}}"] {
        assert_eq!(shown(object).len(), 1, "{object}");
    }
}

#[test]
fn finds_the_place_of_a_field() {
    let text = "# first\n  x: 1\n---\n# c\nmetadata:\n  \"näme\": é\n  tags: [ä, {b: 1}]\nspec: &s\n- a: |\n    text\n- *s0\n".replace("- *s0\n", "- {z: 1}\n");
    let documents = read(&text).unwrap();
    let place = |path: &Path| {
        let place = documents[1].place(path);
        (place.line, place.column)
    };
    let metadata = Path::new("metadata");
    assert_eq!(documents[0].place(&Path::new("x")), Position { line: 2, column: 3 });
    assert_eq!(place(&Path::default()), (5, 1));
    assert_eq!(place(&metadata), (5, 1));
    assert_eq!(place(&metadata.child("näme")), (6, 3));
    assert_eq!(documents[1].value_place(&metadata.child("näme")), Position { line: 6, column: 11 });
    assert_eq!(place(&metadata.child("tags").index(1).child("b")), (7, 14));
    assert_eq!(place(&metadata.child("tags").index(5)), (7, 3), "the nearest parent");
    assert_eq!(place(&Path::new("spec").index(1).child("z")), (11, 4));
    assert_eq!(place(&Path::new("absent").child("x")), (5, 1));

    let text = "{\"a\": 1}\n {\"b\": [1,\n  {\"c\": 2}]}";
    let documents = read(text).unwrap();
    assert_eq!(documents[1].place(&Path::new("b").index(1).child("c")), Position { line: 3, column: 4 });
    assert_eq!(documents[1].place(&Path::default()), Position { line: 2, column: 2 });
}

#[test]
fn many_comments_are_no_problem() {
    assert_eq!(values(&format!("a:\n{}  b: 1\n", "# comment\n".repeat(2_000))), [r#"{"a":{"b":1}}"#]);
}

#[test]
fn reads_tabs_in_brackets_and_escapes_of_json() {
    assert_eq!(values("{\n\t\"a\": 1, b:\t2}"), [r#"{"a":1,"b":2}"#]);
    assert_eq!(values(r#"{"a": "\/\ud83d\ude00"}"#), [r#"{"a":"/😀"}"#]);
    assert!(error("a:\n\tb: 1\n").starts_with("2:"), "{}", error("a:\n\tb: 1\n"));
    assert!(error("%YAML 1.1\n---\na: 1\n").starts_with("1:1: this is not YAML"));
}
