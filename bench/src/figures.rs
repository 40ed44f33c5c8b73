//! Figures: samples of Durward and of a peer, one for each round, their ratio, and its limit; and the points of the plot.
//!
//! The samples of a round are taken one after another, so a ratio compares times of the same state of the machine. The table shows
//! the median of the ratios, and the lowest and the highest one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Samples of one quantity, in seconds, bytes, or without a unit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// No samples yet.
    pub(crate) const NONE: Self = Self(Vec::new());

    /// Returns samples of times.
    pub(crate) fn times(times: &[Duration]) -> Self {
        Self(times.iter().map(Duration::as_secs_f64).collect())
    }

    /// Returns a single sample.
    pub(crate) fn one(value: f64) -> Self {
        Self(vec![value])
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn push_time(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    /// Returns these samples divided by a number.
    pub(crate) fn per(&self, count: usize) -> Self {
        Self(self.0.iter().map(|value| value / count.max(1) as f64).collect())
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the quotients of the rounds. If one side was measured more often, the quotient is that of the medians.
    pub(crate) fn over(&self, other: &Self) -> Self {
        if self.len() == other.len() {
            Self(self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect())
        } else {
            Self::one(self.median() / other.median())
        }
    }
}

/// The unit of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    Count,
}

impl Unit {
    /// Returns a value with three digits and its unit.
    pub(crate) fn show(self, value: f64) -> String {
        let (value, unit) = match self {
            _ if !value.is_finite() => return "-".to_owned(),
            Self::Count => return digits(value),
            Self::Seconds if value >= 1.0 => (value, "s"),
            Self::Seconds if value >= 1e-3 => (value * 1e3, "ms"),
            Self::Seconds if value >= 1e-6 => (value * 1e6, "µs"),
            Self::Seconds => (value * 1e9, "ns"),
            Self::Bytes if value >= MIB => (value / MIB, "MiB"),
            Self::Bytes if value >= 1024.0 => (value / 1024.0, "KiB"),
            Self::Bytes => (value, "B"),
        };
        format!("{} {unit}", digits(value))
    }
}

/// Bytes of a MiB.
pub(crate) const MIB: f64 = 1024.0 * 1024.0;

/// Returns a number with three significant digits.
fn digits(value: f64) -> String {
    if value == 0.0 || (value.fract() == 0.0 && value < 1e6) || value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// The limit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Limit {
    /// Durward's value over the peer's.
    RatioAtMost(f64),
    /// The peer's value over Durward's.
    TimesAtLeast(f64),
    /// Durward's value.
    AtMost(f64),
}

/// One figure: a row of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) durward: Samples,
    /// The name of the peer, and its samples.
    pub(crate) peer: Option<(String, Samples)>,
    pub(crate) limit: Option<Limit>,
}

impl Row {
    /// Returns a figure without a peer.
    pub(crate) fn new(name: impl Into<String>, unit: Unit, durward: Samples) -> Self {
        Self { name: name.into(), unit, durward, peer: None, limit: None }
    }

    /// Returns a figure with a unit of seconds.
    pub(crate) fn seconds(name: impl Into<String>, durward: Samples) -> Self {
        Self::new(name, Unit::Seconds, durward)
    }

    /// Returns a figure with a unit of bytes.
    pub(crate) fn bytes(name: impl Into<String>, durward: Samples) -> Self {
        Self::new(name, Unit::Bytes, durward)
    }

    pub(crate) fn against(self, name: &str, samples: Samples) -> Self {
        Self { peer: Some((name.to_owned(), samples)), ..self }
    }

    pub(crate) fn limit(self, limit: Limit) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Returns the ratios of the rounds: how many times as fast for [`Limit::TimesAtLeast`], and otherwise Durward's value over the
    /// peer's.
    pub(crate) fn ratios(&self) -> Option<Samples> {
        let (_, peer) = self.peer.as_ref()?;
        Some(match self.limit {
            Some(Limit::TimesAtLeast(_)) => peer.over(&self.durward),
            _ => self.durward.over(peer),
        })
    }

    /// Returns whether the median is within the limit.
    pub(crate) fn is_within(&self) -> bool {
        let ratio = self.ratios().map_or(f64::NAN, |ratios| ratios.median());
        match self.limit {
            None => true,
            Some(Limit::RatioAtMost(most)) => ratio <= most,
            Some(Limit::TimesAtLeast(least)) => ratio >= least,
            Some(Limit::AtMost(most)) => self.durward.median() <= most,
        }
    }

    /// Returns the cells of the table: name, Durward, peer, ratio with its spread, limit.
    pub(crate) fn cells(&self) -> [String; 5] {
        let peer = self.peer.as_ref();
        let show = |samples: &Samples| self.unit.show(samples.median());
        let spread = |samples: &Samples, show: &dyn Fn(f64) -> String| {
            if samples.len() < 2 {
                return show(samples.median());
            }
            format!("{} ({} to {})", show(samples.median()), show(samples.least()), show(samples.most()))
        };
        let durward = if peer.is_some() {
            show(&self.durward)
        } else {
            spread(&self.durward, &|value| self.unit.show(value))
        };
        let ratio = self.ratios().map(|ratios| spread(&ratios, &digits)).unwrap_or_default();
        [
            self.name.clone(),
            durward,
            peer.map(|(name, samples)| format!("{}, {name}", show(samples))).unwrap_or_default(),
            ratio,
            self.limit_text(),
        ]
    }

    fn limit_text(&self) -> String {
        let Some(limit) = self.limit else { return String::new() };
        let text = match limit {
            Limit::RatioAtMost(most) => digits(most),
            Limit::TimesAtLeast(least) => format!("at least {}", digits(least)),
            Limit::AtMost(most) => self.unit.show(most),
        };
        if self.is_within() { text } else { format!("**{text}: missed**") }
    }
}

/// The points of a plot: several lines, and the samples of each at the same values of x.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) title: String,
    /// The labels of the axes.
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) lines: Vec<(String, Vec<(f64, Samples)>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(durward: &[f64], peer: &[f64], limit: Limit) -> Row {
        Row::new("a", Unit::Seconds, Samples(durward.to_vec()))
            .against("echo", Samples(peer.to_vec()))
            .limit(limit)
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_of_rounds() {
        // The medians alone would give 2.
        let one = row(&[1.0, 2.0, 9.0], &[1.0, 1.0, 3.0], Limit::RatioAtMost(1.9));
        assert_eq!(one.ratios().map(|ratios| ratios.median()), Some(2.0));
        assert!(!one.is_within());
        assert_eq!(one.cells()[3], "2 (1 to 3)");
        assert!(one.cells()[4].contains("missed"));
    }

    #[test]
    fn a_figure_without_samples_is_not_within_its_limit() {
        assert!(!row(&[], &[], Limit::RatioAtMost(1.0)).is_within());
        let one = Row::bytes("a", Samples::default()).limit(Limit::AtMost(MIB));
        assert!(!one.is_within());
    }

    #[test]
    fn shows_values_with_three_digits() {
        assert_eq!(Unit::Seconds.show(17.34e-6), "17.3 µs");
        assert_eq!(Unit::Seconds.show(0.6543), "654 ms");
        assert_eq!(Unit::Bytes.show(15.2 * MIB), "15.2 MiB");
        assert_eq!(Unit::Count.show(910.0), "910");
    }
}
