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
    follow(&mut events, steps.iter().copied()).0
}

/// Follows a path as far as it exists. The last event is present if the whole path exists.
fn follow<'t, 's>(
    events: &mut impl Iterator<Item = Item<'t>>,
    steps: impl Iterator<Item = &'s Step>,
) -> (Found, Option<Event<'t>>) {
    let mut found = Found::default();
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
    for step in steps {
        let next = match (&event, step) {
            (Some(Event::ListStart(_)), Step::Index(index)) => element(events, *index),
            (Some(Event::MapStart(_)), Step::Field(name) | Step::Key(name)) => entry(events, name),
            _ => None,
        };
        event = None;
        let Some((place, value)) = next else { break };
        (found, event) = (place, Some(value));
    }
    (found, event)
}

/// The start of each element of the list at a path. The result is empty if the path does not lead to a list.
pub(super) fn elements<'t>(mut events: impl Iterator<Item = Item<'t>>, steps: &[&Step]) -> Vec<usize> {
    let mut starts = Vec::new();
    let Some(Event::ListStart(_)) = follow(&mut events, steps.iter().copied()).1 else { return starts };
    while let Some(Ok((event, offset))) = events.next() {
        if matches!(event, Event::End) || skip(&mut events, &event).is_none() {
            break;
        }
        starts.push(offset);
    }
    starts
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
