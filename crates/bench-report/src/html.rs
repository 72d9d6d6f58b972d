//! One page that can be mailed: style and drawings are in it, nothing is loaded, and no script runs (its own policy
//! forbids both). First the answer, then the plots, then the numbers, then what it takes to make them again. The page and
//! its tables are templates, `templates/page.html` and `table.html`.

use askama::Template;

use crate::format;
use crate::markdown::is_text;
use crate::markup::escape;
use crate::model::{Cell, Finding, Plot, ResultFile, Severity, Table, TableRow};
use crate::plot::{self, Width};
use crate::report;

/// A table with more columns is set small on paper.
const COLUMNS_FEW: usize = 7;
/// A text of so many characters is not broken into lines.
const SHORT: usize = 36;

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    file: &'a ResultFile,
    style: &'static str,
    duration: String,
    findings: Vec<Finding>,
    figures: Vec<Figure<'a>>,
    tables: Vec<&'a Table>,
}

/// A plot, and what is said below it.
struct Figure<'a> {
    plot: &'a Plot,
    /// Two columns have no place for an odd one: the first, which is the most important, has both.
    is_wide: bool,
    notes: &'a [String],
}

/// One table with its notes. Below each invalid row, which is struck, stands why.
#[derive(Template)]
#[template(path = "table.html")]
struct TableView<'a> {
    table: &'a Table,
    /// The class of each, and the decimals of its numbers.
    columns: Vec<(&'static str, Option<usize>)>,
}

/// The page. No browser is asked to fetch anything, which the policy in its head enforces.
pub fn render(file: &ResultFile) -> String {
    let (latencies, repetitions) = (report::latencies(file), report::repetitions(file));
    let latency = report::latency_plot(file);
    let latency = latency.iter().map(|(plot, left_out)| (plot, left_out.as_slice()));
    let plots: Vec<(&Plot, &[String])> =
        file.plots.iter().map(|plot| (plot, Default::default())).chain(latency).collect();
    let odd = !plots.len().is_multiple_of(2);
    let figure = |(i, (plot, notes))| Figure { plot, is_wide: odd && i == 0, notes };
    written(&Page {
        file,
        style: include_str!("html/style.css"),
        duration: format::duration(file.seconds),
        findings: report::findings(file),
        figures: plots.into_iter().enumerate().map(figure).collect(),
        tables: file.tables.iter().chain(&latencies).chain(&repetitions).collect(),
    })
}

fn table(table: &Table) -> String {
    let class = |i| match (is_text(table, i), is_short(table, i)) {
        (true, true) => " class=\"text short\"",
        (true, false) => " class=\"text\"",
        (false, _) => "",
    };
    let columns = (0..table.columns.len()).map(|i| (class(i), decimals(table, i))).collect();
    written(&TableView { table, columns })
}

fn written(template: &impl Template) -> String {
    template.render().expect("writing to a string cannot fail")
}

/// The class of its paragraph, and the word before it.
fn marked(finding: &Finding) -> (&'static str, &'static str) {
    match finding.severity {
        Severity::Invalid => ("invalid", "INVALID"),
        Severity::Verdict => ("verdict", ""),
        Severity::Warning => ("warning", "Warning"),
        Severity::Note => ("note", "Note"),
    }
}

/// Escaped, with what stands before the first colon in bold: `limited by: WAN RTT`.
fn emphasised(finding: &Finding) -> String {
    match finding.text.split_once(": ") {
        Some((head, rest)) if head.len() <= 40 => {
            format!("<strong>{}:</strong> {}", escape(head), escape(rest))
        }
        _ => escape(&finding.text),
    }
}

impl Figure<'_> {
    /// Which of two drawings is shown depends on the room there is.
    fn drawn(&self) -> String {
        let whole = self.is_wide.then(|| plot::svg(self.plot, Width::Whole));
        plot::svg(self.plot, Width::Half) + &whole.unwrap_or_default()
    }
}

impl TableView<'_> {
    fn is_wide(&self) -> bool {
        self.columns.len() > COLUMNS_FEW
    }

    fn heads(&self) -> impl Iterator<Item = (&str, &String)> {
        self.columns.iter().map(|(class, _)| *class).zip(&self.table.columns)
    }

    /// Each with the reason that stands below it. Rows one after the other that are struck for the same reason have it once,
    /// behind the last of them.
    fn rows(&self) -> impl Iterator<Item = (&TableRow, Option<String>)> {
        let groups = self.table.rows.chunk_by(|row, next| row.invalid == next.invalid);
        groups.flat_map(|rows| {
            let all = if rows.len() > 1 { format!(" (these {} rows)", rows.len()) } else { String::new() };
            rows.iter().enumerate().map(move |(i, row)| {
                let is_last = i + 1 == rows.len() && !row.invalid.is_empty();
                (row, is_last.then(|| format!("{all} {}", row.invalid.join("; "))))
            })
        })
    }

    fn cells(&self, row: &TableRow) -> Vec<(&str, String)> {
        let columns = self.columns.iter().copied().chain(std::iter::repeat(("", None)));
        row.cells.iter().zip(columns).map(|(of, (class, decimals))| (class, cell(of, decimals))).collect()
    }
}

/// Texts such as `0.002 / 0.0005 / 0` are read as one line.
fn is_short(table: &Table, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|row| row.cells.get(column));
    cells.all(|cell| !matches!(cell, Cell::Text(text) if text.chars().count() > SHORT || text.contains('\n')))
}

/// Decimals for all numbers of a column, so that their points stand below each other. None if that took more than
/// one zero somewhere, which would pretend to digits that were not measured.
fn decimals(table: &Table, column: usize) -> Option<usize> {
    let numbers = table.rows.iter().filter_map(|row| match row.cells.get(column) {
        Some(Cell::Number(value)) => Some(format::number(*value)),
        _ => None,
    });
    let of = |text: String| {
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
        let plain = whole.trim_start_matches('-').bytes().chain(decimals.bytes()).all(|b| b.is_ascii_digit());
        plain.then_some(decimals.len())
    };
    let all: Vec<usize> = numbers.map(of).collect::<Option<_>>()?;
    let most = all.iter().copied().max()?;
    all.iter().all(|d| d + 1 >= most).then_some(most)
}

/// The interval is smaller than its median; a missing value says why when pointed at.
fn cell(cell: &Cell, decimals: Option<usize>) -> String {
    let text = escape(&format::cell(cell));
    match (cell, decimals, text.split_once(' ')) {
        (Cell::Number(value), Some(decimals), _) => format!("{value:.decimals$}"),
        (Cell::Missing(why), ..) => {
            format!("<span class=\"missing\" title=\"{}\">{text}</span>", escape(why))
        }
        (Cell::Estimate { n, .. }, _, Some((median, doubt))) => format!(
            "<span class=\"estimate\" title=\"{n} repetitions\">{median} <small>{doubt}</small></span>"
        ),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_rows_are_struck_and_say_why() {
        let row = TableRow { cells: vec![Cell::Number(5.0)], invalid: vec!["<too> short".to_owned()] };
        let html = table(&Table::new("T", ["MiB/s"], vec![row]));
        assert!(html.contains("<tr class=\"struck\"><td>5</td></tr>"), "{html}");
        assert!(html.contains("<b class=\"badge\">INVALID</b> &lt;too&gt; short"), "{html}");
    }

    #[test]
    fn rows_that_are_struck_for_the_same_reason_have_it_once() {
        let row = |why: &str| TableRow { cells: vec![Cell::Number(5.0)], invalid: vec![why.to_owned()] };
        let html = table(&Table::new("T", ["MiB/s"], vec![row("same"), row("same"), row("other")]));
        assert_eq!((html.matches("same").count(), html.matches("INVALID").count()), (1, 2), "{html}");
        assert!(html.contains("(these 2 rows) same"), "{html}");
    }

    #[test]
    fn the_points_of_a_column_stand_below_each_other() {
        let column = |values: &[f64]| {
            let rows = values.iter().map(|v| TableRow::new(vec![Cell::Number(*v)])).collect();
            table(&Table::new("T", ["s"], rows))
        };
        assert!(column(&[444.29, -1.125]).contains("<td>444.290</td></tr><tr><td>-1.125</td>"));
        assert!(column(&[1129.0, 4.867]).contains("<td>1129</td></tr><tr><td>4.867</td>"));
        assert!(column(&[0.0001, 3.0]).contains("<td>3</td>"));
        assert!(column(&[1e-30, 3.5]).contains("<td>3.5</td>"));
    }

    #[test]
    fn a_missing_value_is_a_dash_with_a_reason() {
        assert_eq!(
            cell(&Cell::missing("no \"samples\""), Some(2)),
            "<span class=\"missing\" title=\"no &quot;samples&quot;\">\u{2013}</span>"
        );
    }
}
