//! Keys with names of Kubernetes; see [`names`].

use std::collections::BTreeMap;

use super::super::names::{self, NameFault};
use super::super::node::Value;
use super::super::problem::Place;
use super::super::shape::Shape;
use super::{Section, invalid};

impl Section<'_> {
    /// Reads a name. `check` is a function of [`names`], and `what` is its description.
    pub fn name(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        default: &str,
        check: impl Fn(&str) -> Result<(), NameFault>,
    ) -> String {
        let read = |text: &str| check(text).map(|()| text.to_owned()).map_err(str::to_owned);
        self.scalar(key, doc, &Shape::Text(what), Some(default.to_owned()), read)
            .unwrap_or_else(|| default.to_owned())
    }

    /// Reads a name that is required if the section is present. Returns an empty text if it is invalid or missing.
    pub fn required_name(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        check: impl Fn(&str) -> Result<(), NameFault>,
    ) -> String {
        let read = |text: &str| check(text).map(|()| text.to_owned()).map_err(str::to_owned);
        let name = self.scalar(key, doc, &Shape::Text(what), None, read);
        if self.written && !self.has(key) {
            let word = what.split(':').next().unwrap_or_default();
            self.problem(key, "is required", Some(format!("add: {key}: <{word}>")));
        }
        name.unwrap_or_default()
    }

    /// Reads a name without a default.
    pub fn optional_name(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        check: impl Fn(&str) -> Result<(), NameFault>,
    ) -> Option<String> {
        let read = |text: &str| check(text).map(|()| text.to_owned()).map_err(str::to_owned);
        self.scalar(key, doc, &Shape::Text(what), None, read)
    }

    /// Reads a list of names.
    pub fn names(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        default: &[&str],
        check: impl Fn(&str) -> Result<(), NameFault>,
    ) -> Vec<String> {
        let read = |text: &str| check(text).map(|()| text.to_owned()).map_err(str::to_owned);
        let yaml = format!("[{}]", default.join(", "));
        self.list(key, doc, &Shape::Text(what), Some(yaml), read)
            .unwrap_or_else(|| default.iter().map(|&text| text.to_owned()).collect())
    }

    /// Reads labels.
    pub fn labels(&mut self, key: &'static str, doc: &'static str) -> BTreeMap<String, String> {
        self.declare(key, doc, Shape::Labels, Some("{}".to_owned()));
        let mut labels = BTreeMap::new();
        match self.find(key).map(|node| &node.value) {
            None => {}
            Some(Value::Map(entries)) => {
                for (name, place, node) in entries {
                    let Value::Scalar { text, .. } = &node.value else {
                        self.misplaced(key, place.clone(), &Shape::Labels);
                        continue;
                    };
                    self.judge(self.full(key), (place, name), names::label_key(name), names::LABEL_KEY);
                    let full = format!("{}.{name}", self.full(key));
                    self.judge(full, (&node.place, text), names::label_value(text), names::LABEL_VALUE);
                    labels.insert(name.clone(), text.clone());
                }
            }
            Some(_) => {
                self.problem(key, "is not a map", Some(Shape::Labels.must()));
            }
        }
        labels
    }

    fn judge(
        &mut self,
        key: String,
        (place, text): (&Place, &str),
        result: Result<(), NameFault>,
        allowed: &'static str,
    ) {
        if let Err(why) = result {
            let problem = invalid(key, place, text, why).next(Shape::Text(allowed).must());
            self.problems.borrow_mut().push(problem);
        }
    }
}
