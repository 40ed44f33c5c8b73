//! Metrics in Prometheus' text format.

use anyhow::{Context as _, Result, bail};

/// All samples of one read of `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    /// Parses the text format. Comments, timestamps and exemplars are ignored; a line of another form is an error.
    pub fn parse(text: &str) -> Result<Self> {
        let samples = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| sample(line).with_context(|| format!("not a metric: {line}")))
            .collect::<Result<_>>()?;
        Ok(Self { samples })
    }

    /// Returns the sum of all series of this name with these labels.
    ///
    /// Returns zero if there is none, because a counter with labels appears when it first counts. A test that expects
    /// zero must see the same name rise elsewhere.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// Returns the value of the one series of this name with these labels. Fails if there is none or more than one.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let mut matching = self.matching(name, labels);
        match (matching.next(), matching.next()) {
            (Some(sample), None) => Ok(sample.value),
            (None, _) => bail!("no series of {name} has {labels:?}; there are:\n{}", self.series(name)),
            (Some(_), Some(_)) => {
                bail!("several series of {name} have {labels:?}:\n{}", self.series(name))
            }
        }
    }

    /// Returns whether a series has this name.
    pub fn has(&self, name: &str) -> bool {
        self.matching(name, &[]).next().is_some()
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.iter().any(|(k, v)| k == key && v == value))
        })
    }

    fn series(&self, name: &str) -> String {
        self.matching(name, &[]).fold(String::new(), |text, sample| format!("{text}  {sample:?}\n"))
    }
}

/// Parses `name{key="value",…} number`.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((key.to_owned(), value));
            rest = after;
        }
    }
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Returns the string up to its closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total Things.\n# TYPE a_total counter\n\
        a_total{kind=\"x\",why=\"a \\\"b\\\", c}\"} 3\na_total{kind=\"x\",why=\"d\"} 4 1700000000000\nplain 1.5e+02\n\
        buckets_bucket{le=\"+Inf\"} +Inf\n";

    #[test]
    fn sums_the_series_with_the_labels() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert!((metrics.sum("a_total", &[("kind", "x")]) - 7.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a_total", &[("why", "a \"b\", c}")]) - 3.0).abs() < f64::EPSILON);
        assert!((metrics.sum("plain", &[]) - 150.0).abs() < f64::EPSILON);
        assert!(metrics.has("buckets_bucket"));
        assert!(metrics.sum("a_total", &[("kind", "y")]).abs() < f64::EPSILON);
    }

    #[test]
    fn rejects_metrics_with_zero_or_several_matching_series() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert!((metrics.value("a_total", &[("why", "d")]).unwrap() - 4.0).abs() < f64::EPSILON);
        assert!(metrics.value("a_total", &[]).is_err());
        assert!(metrics.value("b_total", &[]).is_err());
    }

    #[test]
    fn rejects_other_formats() {
        assert!(Metrics::parse("<html>").is_err());
        assert!(Metrics::parse("a{b=\"c} 1").is_err());
    }
}
