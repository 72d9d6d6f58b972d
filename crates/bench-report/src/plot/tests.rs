use super::*;
use crate::model::Axis;
use crate::published::PUBLISHED;

fn svg(plot: &Plot) -> String {
    super::svg(plot, Width::Half)
}

fn plot(kind: PlotKind, series: Vec<Series>) -> Plot {
    Plot { title: "T <1>".to_owned(), x: Axis::log("x"), y: Axis::linear("y & z"), kind, series }
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn every_point_has_a_marker_and_its_error_bar() {
    let ours = vec![Point { x: 1.0, y: 2.0, interval: Some((1.5, 2.5)) }, Point::at(10.0, 3.0)];
    let theirs = vec![Point::at(1.0, 4.0)];
    let svg = svg(&plot(PlotKind::Lines, vec![Series::ours("a", ours), Series::published("b", theirs)]));
    assert_eq!(count(&svg, "class=\"marker c0\""), 2);
    assert_eq!(
        count(&svg, "class=\"marker c0 published\""),
        1,
        "the first published series has the first colour"
    );
    assert_eq!(count(&svg, "class=\"whisker"), 1);
    assert!(svg.contains("<title>a: 2 at 1 [1.5, 2.5]</title>"), "{svg}");
    assert!(svg.contains("y &amp; z") && svg.contains("T &lt;1&gt;"));
}

#[test]
fn a_fit_is_a_line_without_points_in_the_colour_of_its_series() {
    let points = vec![Point::at(1.0, 497.0), Point::at(2.0, 836.0), Point::at(3.0, 900.0)];
    let line = crate::fit::line(&[(1.0, 497.0), (2.0, 836.0), (3.0, 900.0)]).unwrap();
    let fitted = Series::model("fit", [0.0, 4.0].map(|x| Point::at(x, line.predict(x))).into());
    let plot = plot(PlotKind::Lines, vec![Series::ours("direct", points), fitted]);
    let svg = svg(&plot);
    assert_eq!(count(&svg, "class=\"line c0 model\""), 1);
    assert_eq!(count(&svg, "class=\"marker"), 3);
    assert!(svg.find("line c0 model") < svg.find("line c0\""), "what was measured lies on top");
    assert_eq!(count(&legend(&plot), "class=\"marker"), 1);
}

#[test]
fn published_bars_are_told_from_ours() {
    let published = PUBLISHED.vfxt.plot();
    let drawn = svg(&published);
    assert_eq!(count(&drawn, "class=\"bar"), 12);
    assert_eq!(count(&drawn, "published\" x="), 12);
    assert!(drawn.contains(">1280</text>") && drawn.contains(">NFS Southeast</text>"), "{drawn}");
    let legend = legend(&published);
    assert_eq!(count(&legend, "<li>"), 3);
    assert_eq!(count(&legend, "<i>published</i>"), 3);
}

#[test]
fn steps_go_flat_and_then_up() {
    let series = Series::ours("cdf", vec![Point::at(1.0, 0.0), Point::at(2.0, 100.0)]);
    let svg = svg(&plot(PlotKind::Steps, vec![series]));
    let path = svg.split("class=\"line c0\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(
        path.starts_with('M') && path.contains('H') && path.contains('V') && !path.contains('L'),
        "{path}"
    );
}

#[test]
fn nothing_to_draw_says_so() {
    let empty = plot(PlotKind::Lines, vec![Series::ours("a", vec![Point::at(f64::NAN, 1.0)])]);
    assert!(svg(&empty).contains("no data"));
    assert!(svg(&plot(PlotKind::Bars, vec![])).contains("no data"));
}

/// No number in a drawing is infinite, or no number, whatever the points are.
#[test]
fn odd_points_make_no_odd_drawing() {
    let odd = [0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 1e-308, f64::INFINITY, f64::NAN];
    let points: Vec<Point> =
        odd.iter().flat_map(|x| odd.map(|y| Point { x: *x, y, interval: Some((y, 1e308)) })).collect();
    for kind in [PlotKind::Lines, PlotKind::Bars, PlotKind::Steps] {
        for logarithmic in [false, true] {
            let mut plot = plot(kind, vec![Series::ours("a", points.clone())]);
            plot.x.logarithmic = logarithmic;
            plot.y.logarithmic = logarithmic;
            plot.x.names = vec!["first".to_owned()];
            let svg = svg(&plot);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
