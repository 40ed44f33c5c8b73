//! The plot as SVG. Both axes are logarithmic: the points span powers of ten.

use plotters::prelude::*;

use crate::Result;
use crate::figures::{Curve, Unit};

const TEXT: RGBColor = RGBColor(31, 35, 40);
const GRID: RGBColor = RGBColor(216, 222, 228);
const LINES: [RGBColor; 3] = [RGBColor(9, 105, 218), RGBColor(110, 119, 129), RGBColor(207, 34, 46)];
const SIZE: (u32, u32) = (720, 400);
const FONT: &str = "sans-serif";

/// Returns the plot.
pub(super) fn draw(curve: &Curve) -> Result<String> {
    let points = || curve.lines.iter().flat_map(|(_, points)| points);
    let xs = || points().map(|(x, _)| *x);
    let ys = || points().map(|(_, samples)| samples.median());
    let range = |values: &dyn Fn() -> Vec<f64>| {
        let values = values();
        let [least, most] = [f64::min, f64::max].map(|of| values.iter().copied().fold(f64::NAN, of));
        (least / 1.2..most * 1.2).log_scale()
    };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let font = |size: i32| (FONT, size).into_font().color(&TEXT);
        let mut chart = ChartBuilder::on(&root)
            .caption(&curve.title, font(17))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(range(&|| xs().collect()), range(&|| ys().collect()))?;
        chart
            .configure_mesh()
            .x_desc(&curve.x)
            .y_desc(&curve.y)
            .axis_desc_style(font(13))
            .label_style(font(12))
            .axis_style(TEXT)
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .x_label_formatter(&|x| thousands(*x))
            .y_label_formatter(&|y| Unit::Seconds.show(*y))
            .draw()?;
        for ((name, points), color) in curve.lines.iter().zip(LINES) {
            let points = || points.iter().map(|(x, samples)| (*x, samples.median()));
            chart
                .draw_series(LineSeries::new(points(), color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
            chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(GRID)
            .label_font(font(13))
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}

/// Returns a whole number with k or M.
fn thousands(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e3.. => format!("{} k", value / 1e3),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Samples;

    #[test]
    fn a_plot_has_its_lines() {
        let points = [2e3, 1e5, 3e6].map(|x| (x, Samples::one(x * 1e-9))).to_vec();
        let curve = Curve { lines: vec![("Durward".to_owned(), points)], ..Curve::default() };
        let svg = draw(&curve).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("Durward") && svg.contains("#0969DA"), "{svg}");
    }
}
