//! Builds documents from events, with an explicit stack.

use std::borrow::Cow;
use std::collections::HashMap;

use super::event::{Event, Fault, Item};
use super::limits::{MAX_DEPTH, MAX_OBJECTS, MAX_TEXT, SPLIT, TOO_LARGE, TOO_MANY};
use super::scalar::{Refusal, Scalar};

/// Builds the values of a document. Entries of a map come in the order of the text.
pub trait Builder<'t> {
    /// A value.
    type Value: Clone;

    /// Builds a scalar, or refuses it. Floats are finite.
    fn scalar(&mut self, scalar: Scalar<'t>) -> Result<Self::Value, Refusal>;

    /// Builds a list.
    fn list(&mut self, items: impl Iterator<Item = Self::Value>) -> Self::Value;

    /// Builds a map. No key occurs twice.
    fn map(&mut self, entries: impl Iterator<Item = (Cow<'t, str>, Self::Value)>) -> Self::Value;

    /// Returns the entries of a map, which a merge key copies, or `None` for other values.
    fn entries(&self, value: &Self::Value) -> Option<Vec<(Cow<'t, str>, Self::Value)>>;

    /// Returns the elements of a list, or `None` for other values.
    fn elements(&self, value: &Self::Value) -> Option<Vec<Self::Value>>;
}

/// A document and its byte range.
pub(super) struct Tree<V> {
    pub(super) value: V,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Builds all documents but empty ones.
pub(super) fn build<'t, B: Builder<'t>>(
    events: impl Iterator<Item = Item<'t>>,
    builder: &mut B,
) -> Result<Vec<Tree<B::Value>>, Fault> {
    let mut trees = Vec::new();
    let mut growing = Growing::new(builder);
    let mut start = 0;
    for event in events {
        let (event, offset) = event?;
        match event {
            Event::DocumentStart => {
                growing.reset();
                start = offset;
            }
            Event::DocumentEnd => {
                growing.check_aliases(offset)?;
                if let Some((value, false)) = growing.root.take() {
                    if trees.len() >= MAX_OBJECTS {
                        return Err(Fault::refused(offset, TOO_MANY, SPLIT));
                    }
                    trees.push(Tree { value, start, end: offset });
                }
            }
            Event::ListStart(anchor) => growing.open(None, anchor, offset)?,
            Event::MapStart(anchor) => growing.open(Some(Map::default()), anchor, offset)?,
            Event::End => growing.close()?,
            Event::Scalar { scalar, anchor, merges } => growing.scalar(scalar, anchor, merges, offset)?,
            Event::Alias(anchor) => growing.alias(anchor, offset)?,
        }
    }
    Ok(trees)
}

/// A value that an alias can repeat.
struct Anchor<'t, V> {
    value: V,
    /// Present for scalars, which can be keys.
    scalar: Option<Scalar<'t>>,
    /// Values in it, with those of its own aliases.
    size: Size,
    /// Levels of lists and maps.
    height: usize,
}

/// The size of values.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Number of values.
    nodes: u64,
    /// Bytes of their texts.
    bytes: u64,
}

impl Size {
    fn add(&mut self, other: Size) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
    }

    fn since(self, earlier: Size) -> Size {
        Size { nodes: self.nodes - earlier.nodes, bytes: self.bytes - earlier.bytes }
    }

    fn of(scalar: &Scalar<'_>) -> Self {
        let bytes = if let Scalar::Text(text) = scalar { text.len() as u64 } else { 0 };
        Size { nodes: 1, bytes }
    }
}

struct Key<'t> {
    text: Cow<'t, str>,
    offset: usize,
    /// Whether a merge key copied the entry.
    merged: bool,
}

/// A list or map that is not complete.
struct Frame {
    map: Option<Map>,
    anchor: usize,
    values_from: usize,
    before: Size,
    height: usize,
}

/// The part of a frame that only maps have.
#[derive(Default)]
struct Map {
    keys_from: usize,
    /// Offset of a merge key whose value comes next.
    merge: Option<usize>,
}

struct Growing<'b, 't, B: Builder<'t>> {
    builder: &'b mut B,
    frames: Vec<Frame>,
    keys: Vec<Key<'t>>,
    values: Vec<B::Value>,
    anchors: HashMap<usize, Anchor<'t, B::Value>>,
    /// Size of the document, with the values that aliases repeat.
    size: Size,
    /// Size of the values that aliases repeat.
    repeated: Size,
    /// The value of the document, and whether it is null.
    root: Option<(B::Value, bool)>,
}

impl<'b, 't, B: Builder<'t>> Growing<'b, 't, B> {
    fn new(builder: &'b mut B) -> Self {
        Self {
            builder,
            frames: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            anchors: HashMap::new(),
            size: Size::default(),
            repeated: Size::default(),
            root: None,
        }
    }

    fn reset(&mut self) {
        self.anchors.clear();
        (self.size, self.repeated) = (Size::default(), Size::default());
    }

    fn open(&mut self, map: Option<Map>, anchor: usize, offset: usize) -> Result<(), Fault> {
        if self.expects_key() {
            return Err(Fault::refused(offset, "a key is a list or map", "write the key as text"));
        }
        check_depth(self.frames.len() + 1, offset)?;
        self.check_open(offset)?;
        let before = self.size;
        self.size.nodes += 1;
        let map = map.map(|_| Map { keys_from: self.keys.len(), merge: None });
        self.frames.push(Frame { map, anchor, values_from: self.values.len(), before, height: 0 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let value = match frame.map {
            None => self.builder.list(self.values.drain(frame.values_from..)),
            Some(map) => {
                unique(&mut self.keys, map.keys_from, &mut self.values, frame.values_from)?;
                let keys = self.keys.drain(map.keys_from..).map(|key| key.text);
                self.builder.map(keys.zip(self.values.drain(frame.values_from..)))
            }
        };
        let height = frame.height + 1;
        if frame.anchor > 0 {
            let size = self.size.since(frame.before);
            let anchor = Anchor { value: value.clone(), scalar: None, size, height };
            self.anchors.insert(frame.anchor, anchor);
        }
        self.add(value, height, false, false)
    }

    fn scalar(
        &mut self,
        scalar: Scalar<'t>,
        anchor: usize,
        merges: bool,
        offset: usize,
    ) -> Result<(), Fault> {
        if self.expects_key() {
            self.size.add(Size::of(&scalar));
            if merges && let Some(map) = self.frames.last_mut().and_then(|frame| frame.map.as_mut()) {
                map.merge = Some(offset);
                return Ok(());
            }
            if anchor > 0 {
                let value = self.scalar_value(scalar.clone(), offset)?;
                let size = Size::of(&scalar);
                let anchored = Anchor { value, scalar: Some(scalar.clone()), size, height: 0 };
                self.anchors.insert(anchor, anchored);
            }
            return self.key(scalar, offset);
        }
        self.check_open(offset)?;
        let size = Size::of(&scalar);
        self.size.add(size);
        let is_null = scalar == Scalar::Null;
        let anchored = (anchor > 0).then(|| scalar.clone());
        let value = self.scalar_value(scalar, offset)?;
        if anchored.is_some() {
            let anchored = Anchor { value: value.clone(), scalar: anchored, size, height: 0 };
            self.anchors.insert(anchor, anchored);
        }
        self.add(value, 0, is_null, false)
    }

    fn alias(&mut self, anchor: usize, offset: usize) -> Result<(), Fault> {
        let expects_key = self.expects_key();
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(Fault::refused(
                offset,
                "the alias contains itself",
                "write the value instead of the alias",
            ));
        };
        let (value, height) = (anchored.value.clone(), anchored.height);
        let scalar = anchored.scalar.clone();
        let size = anchored.size;
        self.size.add(size);
        self.size.nodes += 1;
        self.repeated.add(size);
        self.check_aliases(offset)?;
        self.check_open(offset)?;
        if expects_key {
            return match scalar {
                Some(scalar) => self.key(scalar, offset),
                None => Err(Fault::refused(offset, "a key is a list or map", "write the key as text")),
            };
        }
        check_depth(self.frames.len() + height, offset)?;
        self.add(value, height, scalar == Some(Scalar::Null), true)
    }

    /// Refuses a text whose aliases repeat too many values, with the limits of go-yaml: 99 % of 400,000 values, and 10 % of
    /// 4,000,000. Their texts together have the limit of a file.
    fn check_aliases(&self, offset: usize) -> Result<(), Fault> {
        let (nodes, repeated) = (self.size.nodes, self.repeated.nodes);
        let (low, high) = (400_000.0, 4_000_000.0);
        let above = ((nodes as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let too_many =
            repeated > 100 && nodes > 1_000 && repeated as f64 / nodes as f64 > 0.99 - 0.89 * above;
        if too_many || self.repeated.bytes > MAX_TEXT as u64 {
            let next = "write the values instead of aliases";
            return Err(Fault::refused(offset, "aliases repeat too many values", next));
        }
        Ok(())
    }

    fn check_open(&self, offset: usize) -> Result<(), Fault> {
        if self.values.len() < MAX_OPEN {
            return Ok(());
        }
        Err(Fault::refused(offset, TOO_LARGE, "remove values: no API server reads such an object"))
    }

    fn scalar_value(&mut self, scalar: Scalar<'t>, offset: usize) -> Result<B::Value, Fault> {
        let scalar = scalar.sent();
        if let Scalar::Float(value) = scalar
            && !value.is_finite()
        {
            let message = "NaN and infinity can't be sent to an API server";
            return Err(Fault::refused(offset, message, "write a finite number or quote the text"));
        }
        self.builder.scalar(scalar).map_err(|refusal| Fault::refused(offset, refusal.message, refusal.next))
    }

    fn expects_key(&self) -> bool {
        self.frames.last().is_some_and(|frame| {
            frame.map.as_ref().is_some_and(|map| {
                map.merge.is_none()
                    && self.keys.len() - map.keys_from == self.values.len() - frame.values_from
            })
        })
    }

    fn key(&mut self, scalar: Scalar<'t>, offset: usize) -> Result<(), Fault> {
        let text =
            scalar.into_key().map_err(|refusal| Fault::refused(offset, refusal.message, refusal.next))?;
        self.keys.push(Key { text, offset, merged: false });
        Ok(())
    }

    /// Adds a complete value to its list or map.
    fn add(&mut self, value: B::Value, height: usize, is_null: bool, is_alias: bool) -> Result<(), Fault> {
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some((value, is_null));
            return Ok(());
        };
        frame.height = frame.height.max(height);
        match frame.map.as_mut().and_then(|map| map.merge.take()) {
            None => self.values.push(value),
            Some(offset) => self.merge(&value, is_alias, offset)?,
        }
        Ok(())
    }

    /// Copies the entries of a map, or of the maps in a list, of which the first one counts.
    fn merge(&mut self, value: &B::Value, is_alias: bool, offset: usize) -> Result<(), Fault> {
        let sources = match self.builder.elements(value) {
            Some(elements) if !is_alias => elements,
            _ => vec![value.clone()],
        };
        for source in sources.iter().rev() {
            let Some(entries) = self.builder.entries(source) else {
                let message = "the merge key << needs a map or a list of maps";
                return Err(Fault::refused(offset, message, "merge an alias of a map"));
            };
            for (text, value) in entries {
                self.keys.push(Key { text, offset, merged: true });
                self.values.push(value);
            }
        }
        Ok(())
    }
}

/// Values of lists and maps that are not complete. Memory for them is needed before the builder sees them. An object of the largest
/// size that an API server accepts, 3 MiB, has at most 1.5 million values.
const MAX_OPEN: usize = 2_000_000;

fn check_depth(depth: usize, offset: usize) -> Result<(), Fault> {
    if depth <= MAX_DEPTH { Ok(()) } else { Err(Fault::too_deep(offset)) }
}

/// Maps with so few keys are not sorted to find equal ones.
const FEW_KEYS: usize = 12;

fn has_equal(keys: &[Key<'_>]) -> bool {
    keys.iter().enumerate().any(|(index, key)| keys.iter().take(index).any(|other| other.text == key.text))
}

/// Refuses duplicate keys. As in go-yaml, the last one counts of keys that a merge key copied.
fn unique<V>(
    keys: &mut Vec<Key<'_>>,
    keys_from: usize,
    values: &mut Vec<V>,
    values_from: usize,
) -> Result<(), Fault> {
    let own = keys.get(keys_from..).unwrap_or_default();
    if own.len() <= FEW_KEYS && !has_equal(own) {
        return Ok(());
    }
    let mut order: Vec<usize> = (0..own.len()).collect();
    let text = |index: &usize| own.get(*index).map(|key| &*key.text);
    order.sort_by(|left, right| text(left).cmp(&text(right)));
    let mut dropped = vec![false; own.len()];
    let mut any = false;
    for run in order.chunk_by(|left, right| text(left) == text(right)).filter(|run| run.len() > 1) {
        let mut explicit = run.iter().filter_map(|index| own.get(*index)).filter(|key| !key.merged);
        if let (Some(first), Some(second)) = (explicit.next(), explicit.next()) {
            let message = format!("duplicate key {:?}", second.text);
            let fault = Fault::refused(second.offset, message, "keep one of the two keys");
            return Err(Fault { earlier: Some(first.offset), ..fault });
        }
        for index in run.iter().rev().skip(1) {
            if let Some(flag) = dropped.get_mut(*index) {
                (*flag, any) = (true, true);
            }
        }
    }
    if any {
        let mut flags = dropped.iter();
        let own: Vec<Key<'_>> = keys.drain(keys_from..).filter(|_| flags.next() == Some(&false)).collect();
        keys.extend(own);
        let mut flags = dropped.iter();
        let own: Vec<V> = values.drain(values_from..).filter(|_| flags.next() == Some(&false)).collect();
        values.extend(own);
    }
    Ok(())
}
