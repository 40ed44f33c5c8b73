//! Expressions that are deep, long or expensive end with an error and not with the process.

#![allow(clippy::expect_used, reason = "a test fails by it")]

use policy::Authorization;
use policy::expression::{AccessCheck, Expression, ExpressionError, Variables};
use policy::release::Release;
use policy::value::{Arena, Value, read_json, write_json};

/// Levels of nesting that are read.
const DEEPEST: usize = 1_000;

/// The text of the value, or of the error.
fn answer(source: &str) -> String {
    let expression = match Expression::compile(source, Release { server: 37, environment: 37 }) {
        Ok(expression) => expression,
        Err(refused) => return refused.message,
    };
    let arena = Arena::new();
    let variables = Variables { object: Value::Null, ..Variables::default() };
    let nothing = |_: &AccessCheck| -> Option<Authorization> { None };
    match expression.evaluate(&variables, &nothing, &arena).0 {
        Ok(Value::Int(value)) => value.to_string(),
        Ok(Value::Bool(value)) => value.to_string(),
        Ok(value) => value.type_name().to_owned(),
        Err(ExpressionError::Error(message)) => message,
        Err(ExpressionError::TooExpensive) => "too expensive".to_owned(),
        Err(other) => format!("{other:?}"),
    }
}

fn around(open: &str, inner: &str, close: &str, count: usize) -> String {
    format!("{}{inner}{}", open.repeat(count), close.repeat(count))
}

#[test]
fn nests_as_deep_as_cel_go() {
    assert_eq!(answer(&around("(", "1", ")", 249)), "1");
    assert!(answer(&around("(", "1", ")", 250)).contains("expression recursion limit exceeded: 250"));
    assert_eq!(answer(&format!("1{}", "+1".repeat(250))), "251");
    assert!(answer(&format!("1{}", "+1".repeat(251))).contains("max recursion depth exceeded"));
}

#[test]
fn nests_macros_without_overflow_of_the_stack() {
    assert_eq!(answer(&around("[1].all(x, ", "true", ")", 245)), "true");
    assert_eq!(answer(&around("[[1].map(x, ", "1", ")]", 120)), "list");
    assert_eq!(answer(&around("(true ? ", "1", " : 2)", 120)), "1");
    assert_eq!(answer(&around("[1].all(x, true && !(false || ", "true", "))", 120)), "true");
    assert_eq!(answer(&around("[", "", "]", 240)), "list");
    assert_eq!(answer(&around("{1: ", "2", "}", 200)), "map");
}

#[test]
fn ends_copies_of_chained_macros() {
    let chain = format!("optional.of(1){}", ".optMap(x, x)".repeat(60));
    assert!(answer(&chain).contains("expression is too large"));
}

#[test]
fn ends_expensive_loops() {
    let range = "lists.range(5000)";
    assert_eq!(answer(&format!("{range}.all(x, {range}.all(y, x != -y - 1))")), "too expensive");
}

#[test]
fn refuses_long_sources() {
    assert!(answer(&" ".repeat(100_001)).contains("expression code point size exceeds limit"));
    let terms = format!("1{}", " + 1".repeat(20_000));
    assert!(answer(&terms).contains("max recursion depth exceeded"));
}

#[test]
fn values_of_1000_levels_fit_on_the_stack_of_a_thread() {
    let walk = |open: &str, close: &str| {
        let deep = |count| format!(r#"{{"deep":{}}}"#, around(open, "1", close, count));
        let (text, too_deep) = (deep(DEEPEST - 1), deep(DEEPEST));
        let arena = Arena::new();
        let read = |text| read_json(text, &arena);
        let error = read(&too_deep).expect_err("it is one level too deep").to_string();
        assert!(error.starts_with("nested too deeply"), "{error}");
        let (object, old_object) = (read(&text).expect("it is JSON"), read(&text).expect("it is JSON"));
        assert_eq!(write_json(object), text);
        let variables = Variables { object, old_object, ..Variables::default() };
        for source in
            ["object == oldObject", "object in [oldObject]", "{'a': [object]} == {'a': [oldObject]}"]
        {
            let expression = Expression::compile(source, Release { server: 37, environment: 37 });
            let expression = expression.expect("it compiles");
            let (result, _) = expression.evaluate(&variables, &|_| None, &arena);
            assert!(matches!(result, Ok(Value::Bool(true))), "{source}: {result:?}");
        }
    };
    // Test threads and those of the server have 2 MiB as well.
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let run = move || [("[", "]"), (r#"{"a":"#, "}")].map(|(open, close)| walk(open, close));
    thread.spawn(run).expect("a thread starts").join().expect("all walks end");
}

#[test]
fn a_list_is_charged_while_it_is_read() {
    // 100,000 values of 24 bytes. The list has grown to 131,072 of them, and its copy is smaller.
    let text = format!("[{}0]", "0,".repeat(99_999));
    let (capacity, size) = (131_072 * 24, 100_000 * 24);
    for (max, fits) in [(capacity + size - 1_000, false), (capacity + size + 1_000, true)] {
        let (sender, charges) = std::sync::mpsc::channel();
        let arena = Arena::charged(max, move |bytes| sender.send(bytes).is_ok());
        assert_eq!(read_json(&text, &arena).is_ok(), fits, "{max}");
        assert_eq!(arena.is_full(), !fits);
        let charged: usize = charges.try_iter().sum();
        assert!(charged <= max && charged >= capacity - 1_000, "{charged} of {max}");
    }
}

#[test]
fn a_value_without_memory_is_not_read_to_its_end() {
    let text = format!("[{} this is not JSON", "0,".repeat(99_999));
    let error = read_json(&text, &Arena::charged(1 << 20, |_| false)).expect_err("it needs memory");
    assert!(error.message.contains("too much memory") && error.offset < 100, "{error}");
}
