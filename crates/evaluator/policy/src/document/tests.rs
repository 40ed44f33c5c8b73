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
    let documents = read(text, &arena).unwrap_or_else(|error| panic!("{error}\n{text}"));
    documents.iter().map(|document| json(document.value())).collect()
}

fn error(text: &str) -> String {
    read(text, &Arena::new()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn reads_scalars_as_kubectl_does() {
    assert_eq!(
        values("[yes, Off, y, 0644, 0o17, 08, 1e3, 1.5, 1_000, 2001-01-01, ~, null, '5', 0x1F, 1.0, 12:30]"),
        [r#"[true,false,true,420,15,8,1000,1.5,1000,"2001-01-01",null,null,"5",31,1,"12:30"]"#]
    );
    assert_eq!(values("a:\nb: \"yes\"\n"), [r#"{"a":null,"b":"yes"}"#]);
    assert_eq!(
        values("- [18446744073709551615, 1e400, !!str 5, !!int '5']"),
        [r#"[[1.8446744073709552e19,"1e400","5",5]]"#]
    );
}

#[test]
fn keys_become_texts() {
    assert_eq!(values("1: a\nyes: b\n1.5: c\n1e6: d\n"), [r#"{"1":"a","1.5":"c","1e+06":"d","true":"b"}"#]);
    assert_eq!(error("~: a"), "1:1: a key is null");
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
    assert_eq!(error("{\"a\": 1e999}"), "1:7: a number is out of range");
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
fn refuses_numbers_that_json_does_not_have() {
    assert_eq!(error("a:\n  b: .nan"), "2:6: NaN and infinity can't be sent to an API server");
    assert_eq!(error("é: [-.inf]"), "1:5: NaN and infinity can't be sent to an API server");
    assert_eq!(error("a: !!binary aGk="), "1:13: the tag !!binary is not supported");
    assert_eq!(error("a: !!int x"), "1:10: \"x\" does not fit to its tag !!int");
}

#[test]
fn merges_maps() {
    let text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\none: {<<: *x, b: 5}\nlate: {b: 5, <<: *x}\nmany: {<<: [*x, *y]}\n";
    let read = values(text);
    assert!(read[0].contains(r#""one":{"a":1,"b":5}"#), "{read:?}");
    assert!(read[0].contains(r#""late":{"a":1,"b":2}"#), "go-yaml 2 lets the later one count: {read:?}");
    assert!(read[0].contains(r#""many":{"a":1,"b":2,"c":4}"#), "{read:?}");
    assert_eq!(error("a: {<<: 1}"), "1:5: the merge key << needs a map or a list of maps");
}

#[test]
fn bounds_aliases() {
    assert_eq!(values("a: &a [1, 2]\nb: *a\n"), [r#"{"a":[1,2],"b":[1,2]}"#]);
    assert_eq!(error("a: &a [*a]"), "1:8: the alias contains itself");
    assert!(error("a: *b").contains("this is not YAML"));
    let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned()];
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        lines.push(format!("a{level}: &a{level} [{items}]\n"));
    }
    let text = lines.concat();
    assert!(error(&text).ends_with("aliases repeat too many values"), "{}", error(&text));
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(600), "]".repeat(600));
    let deep = format!("a: &a {}\nb: {}\n", nested("1"), nested("*a"));
    assert!(error(&deep).starts_with("2:604: lists and maps are nested deeper"), "{}", error(&deep));
    let long = format!("a: &a {}\nb: [{}1]\n", "x".repeat(1 << 20), "*a, ".repeat(100));
    assert!(error(&long).contains("aliases repeat too many values"), "{}", error(&long));
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
    let documents = read(text, &arena).unwrap();
    let shown: Vec<_> = documents
        .iter()
        .map(|document| (document.origin().item().to_string(), json(document.value())))
        .collect();
    assert_eq!(
        shown,
        [
            ("items[0]".to_owned(), r#"{"kind":"Pod","spec":{"a":1}}"#.to_owned()),
            ("items[1]".to_owned(), r#"{"b":2,"items":[1],"kind":"PodList"}"#.to_owned()),
            ("items[0]".to_owned(), r#"{"apiVersion":"v1","c":3,"kind":"Pod"}"#.to_owned()),
        ]
    );
    assert_eq!(documents[0].place(&Path::new("spec").child("a")), Place { line: 5, column: 10 });
    assert_eq!(documents[0].place(&Path::default()), Place { line: 4, column: 3 });
    assert_eq!(documents[1].place(&Path::new("items").index(0)), Place { line: 8, column: 11 });
    assert_eq!(documents[2].place(&Path::new("c")), Place { line: 13, column: 3 });
}

#[test]
fn an_object_of_any_kind_with_items_is_a_list_as_in_kubectl() {
    let arena = Arena::new();
    let shown = |text: &str| -> Vec<String> {
        let text = arena.text(text);
        read(text, &arena).unwrap().iter().map(|document| json(document.value())).collect()
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

/// Finds the places of all items of a List, and returns the shortest time of several runs.
fn time_of_places(items: usize) -> std::time::Duration {
    let text = format!("kind: List\nitems:\n{}", "- kind: Pod\n  spec:\n    a: 1\n".repeat(items));
    let run = |_| {
        let arena = Arena::new();
        let began = std::time::Instant::now();
        for (index, document) in read(&text, &arena).unwrap().iter().enumerate() {
            let line = 3 + 3 * index;
            assert_eq!(document.place(&Path::default()), Place { line, column: 3 });
            assert_eq!(document.place(&Path::new("spec").child("a")), Place { line: line + 2, column: 5 });
        }
        began.elapsed()
    };
    (0..5).map(run).min().unwrap_or_default()
}

#[test]
fn places_in_long_lists_cost_no_more_than_in_short_ones() {
    // Linear cost is a factor of 16, quadratic cost one of 256.
    let (short, long) = (time_of_places(250), time_of_places(4_000));
    assert!(long < 64 * short, "{short:?}, {long:?}");
}

#[test]
fn finds_the_place_of_a_field() {
    let text = "# first\n  x: 1\n---\n# c\nmetadata:\n  \"näme\": é\n  tags: [ä, {b: 1}]\nspec: &s\n- a: |\n    text\n- *s0\n".replace("- *s0\n", "- {z: 1}\n");
    let arena = Arena::new();
    let documents = read(&text, &arena).unwrap();
    let place = |path: &Path| {
        let place = documents[1].place(path);
        (place.line, place.column)
    };
    let metadata = Path::new("metadata");
    assert_eq!(documents[0].place(&Path::new("x")), Place { line: 2, column: 3 });
    assert_eq!(place(&Path::default()), (5, 1));
    assert_eq!(place(&metadata), (5, 1));
    assert_eq!(place(&metadata.child("näme")), (6, 3));
    assert_eq!(documents[1].value_place(&metadata.child("näme")), Place { line: 6, column: 11 });
    assert_eq!(place(&metadata.child("tags").index(1).child("b")), (7, 14));
    assert_eq!(place(&metadata.child("tags").index(5)), (7, 3), "the nearest parent");
    assert_eq!(place(&Path::new("spec").index(1).child("z")), (11, 4));
    assert_eq!(place(&Path::new("absent").child("x")), (5, 1));

    let text = "{\"a\": 1}\n {\"b\": [1,\n  {\"c\": 2}]}";
    let documents = read(text, &arena).unwrap();
    assert_eq!(documents[1].place(&Path::new("b").index(1).child("c")), Place { line: 3, column: 4 });
    assert_eq!(documents[1].place(&Path::default()), Place { line: 2, column: 2 });
}

#[test]
fn refuses_text_after_a_separator_and_directives() {
    assert!(error("a: 1\n--- b: 2\n").starts_with("2:1: a line that begins with ---"));
    assert!(error("a: 1\n---b: 2\n").starts_with("2:1: a line that begins with ---"));
    assert!(error("a: 1\n...\nb: 2\n").starts_with("3:1: kubectl ignores the text"));
    assert_eq!(values("a: 1\n...\n# c\n---\nb: 2\n...\n"), [r#"{"a":1}"#, r#"{"b":2}"#]);
    assert!(error("%YAML 1.1\n---\na: 1\n").starts_with("1:1: this is not YAML"));
}

#[test]
fn many_comments_are_no_problem() {
    assert_eq!(values(&format!("a:\n{}  b: 1\n", "# comment\n".repeat(2_000))), [r#"{"a":{"b":1}}"#]);
}

#[test]
fn refuses_texts_that_kubectl_does_not_read() {
    assert!(error("a:\n\tb: 1\n").starts_with("2:"), "{}", error("a:\n\tb: 1\n"));
    for text in ["\ta: 1\n", "-\ta\n", "- x\n-\ty\n"] {
        assert!(error(text).contains("a tab can't indent YAML"), "{text:?}: {}", error(text));
    }
    assert_eq!(values("{\n\t\"a\": 1, b:\t2}"), [r#"{"a":1,"b":2}"#], "tabs are allowed in braces");
    assert!(error("a: 1\nb: x\u{2028}y").starts_with("2:5: the character U+2028 ends a line"));
    assert_eq!(values("a: 1\n  \t# c\nb: |\n  x\n  \ty\n\nc: {d: 1,\t e: 2}\n").len(), 1);
    assert!(
        error("a: {b: 1, c:}").starts_with("1:12: kubectl takes this colon"),
        "{}",
        error("a: {b: 1, c:}")
    );
    assert_eq!(values("{\"a\":, b: , c: }"), [r#"{"a":null,"b":null,"c":null}"#]);
    assert!(error("a: 1\n---# Source: b.yaml\nb: 1\n").starts_with("2:1: a line that begins with ---"));
    assert!(error("a: &x.y 1\nb: *x.y").contains("anchor"));
}

#[test]
fn refuses_a_tab_in_an_empty_line_or_before_a_comment() {
    assert_eq!(error("a: 1\n\t\nb: 2\n"), "2:1: a tab can't indent YAML");
    for text in [
        "a: 1\n\t# c\nb: 2\n",
        "a: 1\n\t\n",
        "a:\n  a: x\n  \t\n  b: z\n",
        "a:\n  \t\n  b: z\n",
        "a: 'x'\n  \t\nb: z\n",
        "a: {}\n \t\nb: z\n",
        "a: &x 1\nb: *x\n \t\nc: 1\n",
        "a: x # c\n  \t\nb: z\n",
        "a: x\n\t\n  y\n",
        "a: |\n  x\n \t\nb: 1\n",
        "\t\na: 1\n",
        " \t# c\na: 1\n",
        "a: 1\n---\n \t\nb: 1\n",
    ] {
        assert!(error(text).contains("a tab can't indent YAML"), "{text:?}: {}", error(text));
    }
    // kubectl takes these tabs for a part of a scalar, or reads them in brackets.
    assert_eq!(values("a: x\n  \t\nb: z\n"), [r#"{"a":"x","b":"z"}"#]);
    assert_eq!(values("a: x\n  \t\n  y\nb: \"x\n \t\n \ty\"\n"), [r#"{"a":"x\ny","b":"x\ny"}"#]);
    assert_eq!(
        values("a: [x,\n\t\n\t'y' ]\nb: |\n  x\n   \t\n\nc: 1\n"),
        [r#"{"a":["x","y"],"b":"x\n \t\n","c":1}"#]
    );
}

#[test]
fn refuses_a_tab_before_the_text_of_a_block_scalar() {
    for text in [
        "a: |\n  \tx\n",
        "a: >-\n\n    \n    \tx\n",
        "a: | # 2\r\n  \tx",
        "a: |\n \t\nb: 1\n",
        "- &a2 !!str |\n  \tx",
    ] {
        assert!(error(text).contains("a tab can't indent YAML"), "{text:?}: {}", error(text));
    }
    assert!(error("a: |\n\n  \tx\n").starts_with("3:3: "), "{}", error("a: |\n\n  \tx\n"));
    assert_eq!(values("a: |2-\n  \tx\n  \ty\n"), [r#"{"a":"\tx\n\ty"}"#]);
    assert_eq!(values("a: |\n  x\n  \ty\nb: |"), [r#"{"a":"x\n\ty\n","b":""}"#]);
}

#[test]
fn refuses_text_in_brackets_that_kubectl_reads_otherwise() {
    for text in [
        "{a: :8080}",
        "[:8080]",
        "[::1]",
        "{:k: v}",
        "{a: ?x}",
        "{?a: b}",
        "[?a: b]",
        "[?]",
        "{a: http://b/?c=d}",
        "[x, y?]",
    ] {
        assert!(error(text).contains("kubectl can't read this text in brackets"), "{text}: {}", error(text));
    }
    assert_eq!(values("[':8080', \"?a\", http://b:80/]"), [r#"[":8080","?a","http://b:80/"]"#]);
    assert_eq!(values("{? a : b, c: [? d : e]}"), [r#"{"a":"b","c":[{"d":"e"}]}"#]);
    assert_eq!(values("a: :8080\nb: ?x\n?c: d?\n"), [r#"{"?c":"d?","a":":8080","b":"?x"}"#]);
}

#[test]
fn refuses_a_tag_or_anchor_without_a_space_after_it() {
    for text in [
        "[a, !!str, b]",
        "[a, !, b]",
        "[a, !x]",
        "{a: !!null}",
        "!a#b",
        "[!!.]",
        "a: &a[b]",
        "&a{b: c}",
        "!!str[b]",
    ] {
        assert!(read(text, &Arena::new()).is_err(), "{text}");
    }
    assert_eq!(error("[a, !!str, b]"), "1:10: kubectl takes this character for a part of the tag or anchor");
    assert_eq!(values("[!!str , &a , &b c, !!int 1]"), [r#"["",null,"c",1]"#]);
    assert_eq!(values("a: !!str\nb: &b\n  c: !!str"), [r#"{"a":"","b":{"c":""}}"#]);
}

#[test]
fn refuses_escapes_of_json_in_yaml() {
    assert_eq!(error("a: \"b\\/\""), "1:6: kubectl reads this escape in JSON only");
    for text in [r#"a: "\ud83d\ude00""#, r#"a: "\uD83D\uDE00""#, r#"{"a": "\/", b: 1}"#, r#"a: "\\\/""#] {
        assert!(error(text).contains("this escape in JSON only"), "{text}: {}", error(text));
    }
    assert_eq!(values(r#"{"a": "\/\ud83d\ude00"}"#), [r#"{"a":"/😀"}"#]);
    assert_eq!(values(r#"a: "\\/\\ud83d\ud7a3\U0001f600""#), [r#"{"a":"\\/\\ud83d힣😀"}"#]);
    assert_eq!(values(r"a: '\/'"), [r#"{"a":"\\/"}"#]);
}

#[test]
fn refuses_a_colon_that_kubectl_takes_for_a_part_of_a_plain_key() {
    for text in ["{a\":}", "{=\"a\":}", "{a':}", "[a':]", "[? a :, b]", "{\"b\", a :}"] {
        assert!(error(text).contains("kubectl takes this colon"), "{text}: {}", error(text));
    }
    assert_eq!(values("{\"a\" :, 'b':, c: , d': }"), [r#"{"a":null,"b":null,"c":null,"d'":null}"#]);
    assert_eq!(values("[&a x, {*a :, b: }]"), [r#"["x",{"b":null,"x":null}]"#]);
}
