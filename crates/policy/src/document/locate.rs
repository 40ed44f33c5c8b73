//! Finds the place of a field in the events of a document.

use super::event::{Event, Item};
use crate::field::Step;

/// Byte offsets of a field.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Its key, or the start of a list element.
    pub(super) field: usize,
    /// The start of its value.
    pub(super) value: usize,
}

/// Follows a path as far as it exists. An alias or a merged map on the path ends it: the place is that of the alias.
pub(super) fn locate<'t>(mut events: impl Iterator<Item = Item<'t>>, steps: &[&Step]) -> Found {
    let mut found = Found::default();
    let mut steps = steps.iter();
    let mut event = None;
    for next in events.by_ref() {
        match next {
            Ok((Event::DocumentStart, _)) => {}
            Ok((root, offset)) => {
                found = Found { field: offset, value: offset };
                event = Some(root);
                break;
            }
            Err(_) => break,
        }
    }
    while let (Some(container), Some(step)) = (event.take(), steps.next()) {
        let next = match (container, step) {
            (Event::ListStart(_), Step::Index(index)) => element(&mut events, *index),
            (Event::MapStart(_), Step::Field(name)) => entry(&mut events, name),
            _ => None,
        };
        if let Some((place, value)) = next {
            (found, event) = (place, Some(value));
        }
    }
    found
}

/// Moves to an element of the list that has begun.
fn element<'t>(events: &mut impl Iterator<Item = Item<'t>>, index: usize) -> Option<(Found, Event<'t>)> {
    for _ in 0..index {
        let (event, _) = events.next()?.ok()?;
        skip(events, &event)?;
    }
    let (event, offset) = events.next()?.ok()?;
    (!matches!(event, Event::End)).then_some((Found { field: offset, value: offset }, event))
}

/// Moves to the value of a key of the map that has begun.
fn entry<'t>(events: &mut impl Iterator<Item = Item<'t>>, name: &str) -> Option<(Found, Event<'t>)> {
    loop {
        let (key, field) = events.next()?.ok()?;
        let is_found = match key {
            Event::Scalar { scalar, merges: false, .. } => scalar.into_key().is_ok_and(|key| key == name),
            Event::Scalar { .. } | Event::Alias(_) => false,
            _ => return None,
        };
        let (event, value) = events.next()?.ok()?;
        if is_found {
            return Some((Found { field, value }, event));
        }
        skip(events, &event)?;
    }
}

/// Skips the rest of a value.
fn skip<'t>(events: &mut impl Iterator<Item = Item<'t>>, event: &Event<'t>) -> Option<()> {
    let mut depth = match event {
        Event::ListStart(_) | Event::MapStart(_) => 1,
        Event::End => return None,
        _ => 0,
    };
    while depth > 0 {
        match events.next()?.ok()?.0 {
            Event::ListStart(_) | Event::MapStart(_) => depth += 1,
            Event::End => depth -= 1,
            _ => {}
        }
    }
    Some(())
}
