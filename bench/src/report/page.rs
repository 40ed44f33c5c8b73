//! Writes `RESULTS.md` and the plots from the stored figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::machine::Machine;
use super::{Report, Section, plot};
use crate::figures::Curve;
use crate::{PARTS, Result};

/// Characters of a line.
const WIDTH: usize = 120;

/// Writes the page. Parts that were not measured are named in it.
pub(crate) fn write() -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut reports = BTreeMap::new();
    for part in PARTS {
        if let Some(report) = Report::stored(part)? {
            reports.insert(*part, report);
        }
    }
    let reports: Vec<&Report> = PARTS.iter().filter_map(|part| reports.get(part)).collect();
    fs::write(directory.join("RESULTS.md"), page(&reports)?)?;
    fs::create_dir_all(directory.join("plots"))?;
    for curve in reports.iter().flat_map(|report| &report.sections).flat_map(|section| &section.curves) {
        for (theme, name) in [(&plot::LIGHT, "light"), (&plot::DARK, "dark")] {
            let file = directory.join("plots").join(format!("{}-{name}.svg", curve.id));
            fs::write(file, plot::draw(curve, theme)?)?;
        }
    }
    println!("wrote bench/RESULTS.md and bench/plots");
    Ok(())
}

fn page(reports: &[&Report]) -> Result<String> {
    let mut page = String::from("# Results\n\n");
    let intro = "`make bench` writes this page. [README.md](README.md) describes how each figure is measured. A ratio is Durward's value \
        divided by the peer's. If the limit is *at least*, it is the peer's time divided by Durward's. With several rounds, the table \
        shows the median, and the lowest and highest value.";
    paragraph(&mut page, intro);
    if reports.iter().any(|report| report.is_short) {
        paragraph(
            &mut page,
            "**This was a short run with few requests, to test the benchmark itself. Its figures mean nothing.**",
        );
    }
    let missing: Vec<_> =
        PARTS.iter().filter(|part| reports.iter().all(|report| report.part != **part)).copied().collect();
    if !missing.is_empty() {
        paragraph(&mut page, &format!("Not measured: {}.", missing.join(", ")));
    }
    for (machine, parts) in runs(reports) {
        describe(&mut page, machine, &parts)?;
    }
    missed(&mut page, reports)?;
    for section in reports.iter().flat_map(|report| &report.sections) {
        table(&mut page, section)?;
    }
    Ok(page)
}

/// Returns the runs with their parts. Parts that were measured one by one have runs of their own.
fn runs<'r>(reports: &[&'r Report]) -> Vec<(&'r Machine, Vec<&'r str>)> {
    let mut runs: Vec<(&Machine, Vec<&str>)> = Vec::new();
    for report in reports {
        let is_same = |machine: &Machine| {
            Machine { load: report.machine.load.clone(), ..machine.clone() } == report.machine
        };
        match runs.iter_mut().find(|(machine, _)| is_same(machine)) {
            Some((_, parts)) => parts.push(&report.part),
            None => runs.push((&report.machine, vec![&report.part])),
        }
    }
    runs
}

fn describe(page: &mut String, machine: &Machine, parts: &[&str]) -> Result<()> {
    writeln!(page, "| | |\n|---|---|")?;
    writeln!(page, "| parts | {} |", parts.join(", "))?;
    writeln!(page, "| machine | {} cores of {}, {} |", machine.cores, machine.cpu, machine.memory)?;
    writeln!(page, "| system | Linux {}, Rust {}, {} |", machine.kernel, machine.rust, machine.go)?;
    writeln!(page, "| commit | {} |", machine.commit)?;
    writeln!(page, "| date | {} |", machine.date)?;
    writeln!(page, "| load average before the first part | {} |\n", machine.load)?;
    Ok(())
}

fn missed(page: &mut String, reports: &[&Report]) -> Result<()> {
    let over: Vec<_> =
        reports.iter().flat_map(|report| report.rows()).filter(|row| !row.is_within()).collect();
    if reports.iter().all(|report| report.rows().next().is_none()) {
        return Ok(());
    }
    if over.is_empty() {
        paragraph(page, "All figures are within their limits.");
        return Ok(());
    }
    paragraph(page, "These figures miss their limits:");
    for row in over {
        let [name, durward, _, ratio, _] = row.cells();
        writeln!(page, "- {name}: {}", if ratio.is_empty() { durward } else { ratio })?;
    }
    page.push('\n');
    Ok(())
}

fn table(page: &mut String, section: &Section) -> Result<()> {
    writeln!(page, "## {}\n", section.title)?;
    paragraph(page, &section.method);
    if !section.rows.is_empty() {
        writeln!(page, "| figure | Durward | peer | ratio | limit |\n|---|---|---|---|---|")?;
        for row in &section.rows {
            writeln!(page, "| {} |", row.cells().join(" | "))?;
        }
        page.push('\n');
    }
    for curve in &section.curves {
        points(page, curve)?;
    }
    for note in &section.notes {
        paragraph(page, note);
    }
    Ok(())
}

fn points(page: &mut String, curve: &Curve) -> Result<()> {
    let file = |theme: &str| format!("plots/{}-{theme}.svg", curve.id);
    writeln!(page, "<picture>")?;
    writeln!(page, "<source media=\"(prefers-color-scheme: dark)\" srcset=\"{}\">", file("dark"))?;
    writeln!(page, "<img alt=\"{}\" src=\"{}\">\n</picture>\n", curve.title, file("light"))?;
    let names: Vec<_> = curve.lines.iter().map(|line| line.name.as_str()).collect();
    writeln!(page, "| {} | {} |", curve.x, names.join(" | "))?;
    writeln!(page, "|---{}|", "|---".repeat(names.len()))?;
    for x in curve.xs() {
        let cell = |line: &crate::figures::Line| {
            let samples = line.points.iter().find(|(known, _)| known.total_cmp(&x).is_eq());
            samples.map(|(_, samples)| curve.unit.show(samples.median())).unwrap_or_default()
        };
        writeln!(page, "| {x} | {} |", curve.lines.iter().map(cell).collect::<Vec<_>>().join(" | "))?;
    }
    page.push('\n');
    Ok(())
}

/// Appends a paragraph in lines of limited width.
fn paragraph(page: &mut String, text: &str) {
    let mut used = 0;
    for word in text.split_whitespace() {
        if used > 0 && used + 1 + word.len() > WIDTH {
            page.push('\n');
            used = 0;
        } else if used > 0 {
            page.push(' ');
            used += 1;
        }
        page.push_str(word);
        used += word.len();
    }
    page.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Limit, Row, Samples};

    fn report(part: &str, median: f64) -> Report {
        let mut report = Report::new(part);
        report.section("Reviews", "Eight connections.");
        report.row(Row::seconds("CPU", Samples::one(median)).limit(Limit::AtMost(1.0)));
        report
    }

    #[test]
    fn the_page_names_missed_limits_and_missing_parts() {
        let [mut good, bad] = [report("server", 0.5), report("fleet", 2.0)];
        let y = ("CPU of a review", crate::figures::Unit::Seconds);
        let mut curve =
            Curve::new("concurrency-cpu", "CPU of a review by concurrent reviews", "reviews", y, &["echo"]);
        curve.add("echo", 1.0, 1.0);
        good.curve(curve);
        let page = page(&[&good, &bad]).unwrap();
        assert!(page.contains("These figures miss their limits:\n\n- CPU: 2 s"), "{page}");
        assert!(page.contains("Not measured: ") && page.contains("etcd"), "{page}");
        assert!(page.lines().all(|line| line.starts_with('|') || line.len() <= 160), "{page}");
    }

    #[test]
    fn parts_of_one_run_share_its_description() {
        let [one, two] = [report("server", 0.5), report("fleet", 0.5)];
        let two = Report { machine: Machine { load: "9 9 9".to_owned(), ..one.machine.clone() }, ..two };
        let other = Report {
            machine: Machine { commit: "another".to_owned(), ..one.machine.clone() },
            ..two.clone()
        };
        assert_eq!(runs(&[&one, &two]).len(), 1);
        assert_eq!(runs(&[&one, &other]).len(), 2);
    }
}
