//! Plots of curves as SVG, for light and dark pages. Both axes are logarithmic: the points span powers of ten.

use plotters::prelude::*;

use crate::Result;
use crate::figures::Curve;

/// Colors of a plot.
pub(super) struct Theme {
    background: RGBColor,
    text: RGBColor,
    grid: RGBColor,
    lines: [RGBColor; 4],
}

pub(super) const LIGHT: Theme = Theme {
    background: RGBColor(255, 255, 255),
    text: RGBColor(31, 35, 40),
    grid: RGBColor(216, 222, 228),
    lines: [RGBColor(9, 105, 218), RGBColor(110, 119, 129), RGBColor(207, 34, 46), RGBColor(26, 127, 55)],
};

pub(super) const DARK: Theme = Theme {
    background: RGBColor(13, 17, 23),
    text: RGBColor(230, 237, 243),
    grid: RGBColor(48, 54, 61),
    lines: [RGBColor(88, 166, 255), RGBColor(139, 148, 158), RGBColor(255, 123, 114), RGBColor(63, 185, 80)],
};

const SIZE: (u32, u32) = (720, 400);
const FONT: &str = "sans-serif";

/// Returns the plot.
pub(super) fn draw(curve: &Curve, theme: &Theme) -> Result<String> {
    let ys = || curve.lines.iter().flat_map(|line| line.points.iter().map(|(_, samples)| samples.median()));
    let xs = curve.xs();
    let (Some(first), Some(last)) = (xs.first().copied(), xs.last().copied()) else {
        return Err(format!("the curve {} has no points", curve.id).into());
    };
    let (least, most) = (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&theme.background)?;
        let font = |size: i32| (FONT, size).into_font().color(&theme.text);
        let mut chart = ChartBuilder::on(&root)
            .caption(&curve.title, font(17))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(
                (first / 1.1..last * 1.1).log_scale(),
                (least / 1.3..most * 1.3).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(&curve.x)
            .y_desc(&curve.y)
            .axis_desc_style(font(13))
            .label_style(font(12))
            .axis_style(theme.text)
            .bold_line_style(theme.grid)
            .light_line_style(theme.background)
            .x_label_formatter(&|x| thousands(*x))
            .y_label_formatter(&|y| curve.unit.show(*y))
            .draw()?;
        for (line, color) in curve.lines.iter().zip(theme.lines) {
            let points = || line.points.iter().map(|(x, samples)| (*x, samples.median()));
            chart
                .draw_series(LineSeries::new(points(), color.stroke_width(2)))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
            chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(theme.background)
            .border_style(theme.grid)
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
    use crate::figures::Unit;

    #[test]
    fn a_plot_has_the_lines_and_colors_of_its_theme() {
        let mut curve =
            Curve::new("size", "CPU of a review", "bytes", ("CPU", Unit::Seconds), &["Durward", "echo"]);
        for x in [2e3, 1e5, 3e6] {
            curve.add("Durward", x, x * 1e-9);
            curve.add("echo", x, x * 1e-10);
        }
        let svg = draw(&curve, &DARK).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("Durward") && svg.contains("#58A6FF"), "{svg}");
        assert!(draw(&Curve { lines: Vec::new(), ..curve }, &LIGHT).is_err());
    }
}
