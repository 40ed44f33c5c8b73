//! Builds a document from its parts, with an explicit stack.

use super::node::{Content, DocumentEntry, DocumentNode, SmallPosition};
use super::{MAX_DEPTH, Position, SyntaxError};

/// Memory for the values of a text.
const MAX_BYTES: usize = 256 << 20;
/// Memory for the values that aliases repeat.
const MAX_REPEATED: usize = 16 << 20;

pub(super) type Built<T = ()> = Result<T, SyntaxError>;

/// A list or map that is not complete.
enum OpenNode {
    List(Vec<DocumentNode>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<DocumentEntry>,
    /// The key whose value comes next.
    key: Option<(TreeKey, SmallPosition)>,
    /// The keys of entries that a merge key has copied.
    merged: Vec<Box<str>>,
}

pub(super) enum TreeKey {
    Text(Box<str>),
    /// `<<`
    Merge,
}

/// A document that is built.
pub(super) struct DocumentTree {
    open: Vec<(OpenNode, Position)>,
    root: Option<DocumentNode>,
    /// Memory that is left.
    left: usize,
    /// Memory that is left for aliases.
    repeatable: usize,
}

impl DocumentTree {
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), root: None, left: MAX_BYTES, repeatable: MAX_REPEATED }
    }

    /// The complete document, unless it is empty.
    pub(super) fn take(&mut self) -> Option<DocumentNode> {
        self.root.take().filter(|root| root.content != Content::Null)
    }

    /// Whether the innermost open part is a map, if there is one.
    pub(super) fn is_in_map(&self) -> Option<bool> {
        self.open.last().map(|(open, _)| matches!(open, OpenNode::Map(_)))
    }

    pub(super) fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some((OpenNode::Map(OpenMap { key: None, .. }), _)))
    }

    pub(super) fn open_list(&mut self, place: Position) -> Built {
        self.open(OpenNode::List(Vec::new()), place)
    }

    pub(super) fn open_map(&mut self, place: Position) -> Built {
        self.open(OpenNode::Map(OpenMap::default()), place)
    }

    fn open(&mut self, open: OpenNode, place: Position) -> Built {
        if self.expects_key() {
            return Err(SyntaxError::new(place, "a key is a list or map", "write the key as text"));
        }
        self.check_depth(1, place)?;
        charge(&mut self.left, size_of::<DocumentNode>(), place)?;
        self.open.push((open, place));
        Ok(())
    }

    fn check_depth(&self, more: usize, place: Position) -> Built {
        if self.open.len() + more <= MAX_DEPTH { Ok(()) } else { Err(too_deep(place)) }
    }

    /// Ends the innermost list or map, and returns it for its anchor.
    pub(super) fn close(&mut self) -> Built<Option<&DocumentNode>> {
        let Some((open, place)) = self.open.pop() else { return Ok(None) };
        let content = match open {
            OpenNode::List(items) => Content::List(items),
            OpenNode::Map(map) => {
                check_keys(&map.entries)?;
                Content::Map(map.entries)
            }
        };
        self.add(DocumentNode::new(place, content))
    }

    pub(super) fn key(&mut self, key: TreeKey, place: Position) -> Built {
        let text = if let TreeKey::Text(text) = &key { text.len() } else { 0 };
        charge(&mut self.left, size_of::<DocumentEntry>() - size_of::<DocumentNode>() + text, place)?;
        if let Some((OpenNode::Map(map), _)) = self.open.last_mut() {
            map.key = Some((key, place.into()));
        }
        Ok(())
    }

    /// Adds a copy of a value that has an anchor.
    pub(super) fn alias(&mut self, node: &DocumentNode, place: Position) -> Built {
        charge(&mut self.repeatable, node.size(), place)?;
        self.check_depth(node.height(), place)?;
        self.add(DocumentNode::new(place, node.content.clone())).map(|_| ())
    }

    pub(super) fn scalar(&mut self, content: Content, place: Position) -> Built<Option<&DocumentNode>> {
        let text = if let Content::Text(text) = &content { text.len() } else { 0 };
        charge(&mut self.left, size_of::<DocumentNode>() + text, place)?;
        self.add(DocumentNode::new(place, content))
    }

    /// Adds a complete value to its list or map.
    fn add(&mut self, node: DocumentNode) -> Built<Option<&DocumentNode>> {
        match self.open.last_mut() {
            None => Ok(Some(self.root.insert(node))),
            Some((OpenNode::List(items), _)) => {
                items.push(node);
                Ok(items.last())
            }
            Some((OpenNode::Map(map), _)) => map.add(node),
        }
    }
}

impl OpenMap {
    fn add(&mut self, node: DocumentNode) -> Built<Option<&DocumentNode>> {
        match self.key.take() {
            None => Ok(None),
            Some((TreeKey::Merge, mark)) => self.merge(node, mark.into()).map(|()| None),
            Some((TreeKey::Text(key), mark)) => {
                // A later key replaces one that was merged.
                if let Some(at) = self.merged.iter().position(|merged| *merged == key) {
                    self.merged.remove(at);
                    self.entries.retain(|entry| entry.key != key);
                }
                self.entries.push(DocumentEntry { key, mark, node });
                Ok(self.entries.last().map(|entry| &entry.node))
            }
        }
    }

    /// Copies the entries of a map, or of the maps in a list, of which the first one counts.
    fn merge(&mut self, node: DocumentNode, place: Position) -> Built {
        if !self.merged.is_empty() {
            return Err(SyntaxError::new(place, "duplicate key \"<<\"", "merge a list of maps"));
        }
        let sources = match node.content {
            Content::List(items) => items,
            _ => vec![node],
        };
        for source in sources {
            let Content::Map(entries) = source.content else {
                let message = "the merge key << needs a map or a list of maps";
                return Err(SyntaxError::new(place, message, "merge an alias of a map"));
            };
            for entry in entries {
                if self.merged.contains(&entry.key) {
                    continue;
                }
                if self.entries.iter().any(|other| other.key == entry.key) {
                    let message = format!(
                        "YAML readers differ on which {:?} counts: that before <<, or that of <<",
                        entry.key
                    );
                    return Err(SyntaxError::new(place, message, "write << as the first key of the map"));
                }
                self.merged.push(entry.key.clone());
                self.entries.push(entry);
            }
        }
        Ok(())
    }
}

fn charge(left: &mut usize, bytes: usize, place: Position) -> Built {
    let next = "split the file, and write values instead of aliases; an API server accepts 3 MiB";
    let too_large = || SyntaxError::new(place, "the values of the text need too much memory", next);
    *left = left.checked_sub(bytes).ok_or_else(too_large)?;
    Ok(())
}

/// Refuses duplicate keys.
fn check_keys(entries: &[DocumentEntry]) -> Built {
    let mut sorted: Vec<&DocumentEntry> = entries.iter().collect();
    sorted.sort_by(|left, right| left.key.cmp(&right.key));
    let pairs = sorted.windows(2).filter_map(|pair| match pair {
        [first, second] if first.key == second.key => Some((first, second)),
        _ => None,
    });
    let Some((first, second)) = pairs.min_by_key(|(_, second)| Position::from(second.mark)) else {
        return Ok(());
    };
    let (first, place) = (Position::from(first.mark), Position::from(second.mark));
    let message = format!("duplicate key {:?} (the first is in line {})", second.key, first.line);
    Err(SyntaxError::new(place, message, "keep one of the two keys"))
}

pub(super) fn too_deep(place: Position) -> SyntaxError {
    let message = format!("lists and maps are nested deeper than {MAX_DEPTH} levels");
    SyntaxError::new(place, message, "remove levels")
}
