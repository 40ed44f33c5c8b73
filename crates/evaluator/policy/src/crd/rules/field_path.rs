//! The path of `fieldPath`, from a JSON path with fields and keys of maps.

use crate::field::Path;
use crate::schema::Schema;

/// Reads a path such as `.spec['foo-bar']`, whose fields a schema must declare. The error is the API server's text.
pub(super) fn parse(text: &str, schema: &Schema) -> Result<Path, String> {
    read(text, schema, true).map(|(path, _)| path)
}

/// Reads a path such as `.spec.size`, which has no brackets. Returns the schema of the field as well.
pub(in crate::crd) fn parse_names<'s>(
    text: &str,
    schema: &'s Schema,
) -> Result<(Path, Option<&'s Schema>), String> {
    read(text, schema, false)
}

fn read<'s>(
    text: &str,
    schema: &'s Schema,
    has_brackets: bool,
) -> Result<(Path, Option<&'s Schema>), String> {
    let (mut path, mut schema, mut rest) = (Path::default(), Some(schema), text);
    while !rest.is_empty() {
        match token(&mut rest) {
            "." => {
                let name = token(&mut rest);
                if name.is_empty() {
                    return Err("unexpected end of JSON path".to_owned());
                }
                (path, schema) = step(&path, schema, name)?;
            }
            "[" if !has_brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = token(&mut rest);
                if quoted.is_empty() {
                    return Err("unexpected end of JSON path".to_owned());
                }
                let name = quoted.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
                let name = name.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                (path, schema) = step(&path, schema, &unescape(name)?)?;
                match token(&mut rest) {
                    "]" => {}
                    "" => return Err("unexpected end of JSON path".to_owned()),
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok((path, schema))
}

/// The next delimiter, quoted string or name.
fn token<'t>(rest: &mut &'t str) -> &'t str {
    let text = *rest;
    let end = if text.starts_with(['.', '[', ']']) {
        1
    } else if text.starts_with('\'') {
        let mut before = '\0';
        let mut quote = None;
        for (index, character) in text.char_indices() {
            if index > 0 && character == '\'' && before != '\\' {
                quote = Some(index + 1);
                break;
            }
            before = character;
        }
        quote.unwrap_or(text.len())
    } else {
        text.find(['.', '[', ']']).unwrap_or(text.len())
    };
    let (token, left) = text.split_at(end);
    *rest = left;
    token
}

/// Goes to a property, or to an entry of a map, whose values can have any schema.
fn step<'s>(
    path: &Path,
    schema: Option<&'s Schema>,
    name: &str,
) -> Result<(Path, Option<&'s Schema>), String> {
    let invalid = || "does not refer to a valid field".to_owned();
    let schema = schema.ok_or_else(invalid)?;
    if !schema.properties.is_empty() {
        let property = schema.property(name).ok_or_else(invalid)?;
        return Ok((path.child(name), Some(property)));
    }
    schema.additional.as_ref().ok_or_else(invalid)?;
    Ok((path.key(name), schema.additional_schema()))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut unescaped = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            unescaped.push(character);
            continue;
        }
        unescaped.push(match characters.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(quote @ ('\'' | '\\')) => quote,
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(unescaped)
}
