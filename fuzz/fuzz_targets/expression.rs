//! Feeds any text as an expression. Each release compiles it or refuses it at a place of the text, and its evaluation ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::expression::{Expression, Variables};
use policy::release::Release;
use policy::value::{Arena, read_json};

const OBJECT: &str = r#"{"metadata":{"name":"a","labels":{"app":"b"}},"spec":{"replicas":3,"list":["x","y","10.0.0.1/8"],
"ratio":0.5,"big":9223372036854775807,"quantity":"1Gi","time":"2026-11-22T10:00:00Z","empty":{},"none":null,"on":true}}"#;

fuzz_target!(|text: &str| {
    for minor in [30, 35, 37] {
        let expression = match Expression::compile(text, Release::for_new(minor)) {
            Ok(expression) => expression,
            Err(refused) => {
                let lines = text.lines().count().max(1);
                assert!(refused.places.iter().all(|(line, ..)| (1..=lines + 1).contains(line)), "{refused}");
                continue;
            }
        };
        let arena = Arena::new();
        let object = read_json(arena.text(OBJECT), &arena).expect("the object is JSON");
        let variables = Variables {
            object,
            old_object: object,
            params: Some(object),
            request: object,
            namespace_object: Some(object),
            ..Variables::default()
        };
        let (first, cost) = expression.evaluate(&variables, &|_| None, &arena);
        let (second, again) = expression.evaluate(&variables, &|_| None, &arena);
        assert_eq!((first.is_ok(), cost), (second.is_ok(), again), "two evaluations differ");
    }
});
