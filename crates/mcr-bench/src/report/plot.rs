//! Line plots as SVG, drawn so that they can be read on white and on black.

/// One line: a name, and points from left to right.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name of the line.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
const COLOURS: [&str; 5] = ["#d9480f", "#1971c2", "#2f9e44", "#868e96", "#9c36b5"];

/// Steps of 1, 2 or 5 times a power of ten, about five of them up to `most`.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough);
    times.unwrap_or(10.0) * power
}

/// A plot over the number of clusters. The y axis is linear, even if one line makes the others small: the plot shows
/// that difference.
pub fn plot(title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most_x = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let most_y = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LEFT + value / most_x * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / most_y * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#868e96\">\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{title}</text>\n"
    );
    let mut draw = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    let step_y = step(most_y);
    for value in (0..=20)
        .map(|number| f64::from(number) * step_y)
        .take_while(|value| *value <= most_y)
    {
        let (at, end) = (y(value), WIDTH - RIGHT);
        draw(format!(
            "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#868e96\" stroke-opacity=\"0.3\"/>"
        ));
        draw(format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            at + 4.0
        ));
    }
    let step_x = step(most_x);
    for value in (0..=20)
        .map(|number| f64::from(number) * step_x)
        .take_while(|value| *value <= most_x)
    {
        draw(format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            x(value),
            HEIGHT - BOTTOM + 18.0
        ));
    }
    draw(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">clusters</text>",
        WIDTH - RIGHT,
        HEIGHT - 6.0
    ));
    // Each name is at the end of its line. Names that would overlap are moved apart.
    let mut ends: Vec<(f64, usize)> = lines
        .iter()
        .enumerate()
        .filter_map(|(number, line)| Some((y(line.points.last()?.1), number)))
        .collect();
    ends.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut free = HEIGHT;
    for (end, number) in ends {
        let Some(line) = lines.get(number) else { continue };
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> = line
            .points
            .iter()
            .map(|(px, py)| format!("{:.1} {:.1}", x(*px), y(*py)))
            .collect();
        draw(format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>",
            path.join("L")
        ));
        free = end.min(free - 16.0);
        draw(format!(
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            WIDTH - RIGHT + 8.0,
            free + 4.0,
            line.name
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (most, wanted) in [(500.0, 100.0), (57.0, 20.0), (1.2, 0.5), (0.3, 0.1), (9.0, 2.0)] {
            assert!((step(most) - wanted).abs() < 1e-9, "{most}: {}", step(most));
        }
    }

    #[test]
    fn lines_reach_into_their_corners_and_names_do_not_overlap() {
        let line = |name: &str, end| Line {
            name: name.to_owned(),
            points: vec![(0.0, 0.0), (500.0, end)],
        };
        let svg = plot("Memory", &[line("a", 100.0), line("b", 99.0)]);
        assert!(
            svg.contains(&format!(
                "M{LEFT:.1} {:.1}L{:.1} {TOP:.1}",
                HEIGHT - BOTTOM,
                WIDTH - RIGHT
            )),
            "{svg}"
        );
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.ends_with(">a</text>") || line.ends_with(">b</text>"))
            .filter_map(|line| line.split("y=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(heights.len(), 2);
        assert!((heights[0] - heights[1]).abs() >= 16.0 - 1e-9, "{heights:?}");
    }
}
