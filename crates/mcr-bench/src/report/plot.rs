//! Line plots as SVG, drawn so that they can be read on white and on black.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// One line: a name, and points from left to right.
pub type Line = (String, Vec<(f64, f64)>);

const GREY: RGBColor = RGBColor(0x86, 0x8e, 0x96);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0xd9, 0x48, 0x0f),
    RGBColor(0x19, 0x71, 0xc2),
    RGBColor(0x2f, 0x9e, 0x44),
    GREY,
    RGBColor(0x9c, 0x36, 0xb5),
];

/// A plot over the number of clusters. The y axis is linear, even if one line makes the others small: the plot shows
/// that difference.
///
/// # Errors
///
/// When the plot can't be drawn.
pub fn plot(title: &str, lines: &[Line]) -> Result<String> {
    let mut svg = String::new();
    draw(title, lines, &mut svg).map_err(|error| anyhow!("drawing a plot: {error}"))?;
    Ok(svg)
}

fn draw(title: &str, lines: &[Line], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let most = |of: fn(&(f64, f64)) -> f64| {
        let values = lines.iter().flat_map(|(_, points)| points.iter().map(of));
        values.fold(1.0, f64::max)
    };
    let (most_x, most_y) = (most(|point| point.0), most(|point| point.1));
    let root = SVGBackend::with_string(svg, (760, 400)).into_drawing_area();
    let text = |size: i32| ("sans-serif", size).into_font().color(&GREY);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, text(16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..most_x, 0.0..most_y * 1.05)?;
    let mesh = &mut chart.configure_mesh();
    let mesh = mesh
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY.mix(0.3));
    mesh.axis_style(GREY)
        .label_style(text(13))
        .x_desc("clusters")
        .draw()?;
    for ((name, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(3);
        let series = chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style);
        series.label(name).legend(legend);
    }
    let labels = &mut chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(text(13))
        .draw()?;
    Ok(root.present()?)
}
