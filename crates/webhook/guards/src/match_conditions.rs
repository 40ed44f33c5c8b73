//! Compiles and evaluates match conditions as the oldest and the newest supported API server do.

use policy::expression::{Expression, Variables};
use policy::release::{NEWEST, OLDEST, Release};
use policy::value::{Arena, Value, read_json};
use serde_json::Value as Json;

use crate::webhook::WebhookEntry;

/// Whether the API server sends a review with this request, object and old object to the entry. Rules and selectors are not checked.
pub(crate) fn send(entry: &WebhookEntry, request: &Json, object: &Json, old_object: &Json) -> bool {
    let variables = [request, object, old_object].map(Json::to_string);
    entry.match_conditions.iter().all(|condition| {
        let results = [OLDEST, NEWEST].map(|server| {
            let expression = Expression::compile(&condition.expression, Release::for_new(server))
                .unwrap_or_else(|error| panic!("{}: {error}", condition.expression));
            assert_eq!(expression.output_type(), "bool", "{}", condition.expression);
            evaluate(&expression, &variables).unwrap_or_else(|why| panic!("{}: {why}", condition.expression))
        });
        assert_eq!(results[0], results[1], "{}", condition.expression);
        results[0]
    })
}

fn evaluate(expression: &Expression, [request, object, old_object]: &[String; 3]) -> Result<bool, String> {
    let arena = Arena::new();
    let variables = Variables {
        request: read(request, &arena)?,
        object: read(object, &arena)?,
        old_object: read(old_object, &arena)?,
        ..Variables::default()
    };
    match expression.evaluate(&variables, &|_| None, &arena).0 {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(_) => Err("not a bool".to_owned()),
        Err(failure) => Err(format!("{failure:?}")),
    }
}

fn read<'a>(json: &'a str, arena: &'a Arena) -> Result<Value<'a>, String> {
    read_json(json, arena).map_err(|_| format!("not JSON: {json}"))
}
