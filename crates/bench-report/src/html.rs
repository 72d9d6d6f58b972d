//! One page that can be mailed: style and drawings are in it, nothing is loaded, and no script runs (its own policy
//! forbids both). First the answer, then the plots, then the numbers, then what it takes to make them again. What it looks like
//! is in the templates in `html/`.

use askama::Template;

use crate::markdown::is_text;
use crate::model::{Cell, Finding, Plot, ResultFile, Severity, Table, TableRow};
use crate::plot::Width;
use crate::{format, report};

/// A text of so many characters is not broken into lines.
const SHORT: usize = 36;

#[derive(Template)]
#[template(path = "page.html")]
struct ResultPage<'a> {
    file: &'a ResultFile,
    findings: &'a [Finding],
    /// Each with what it says of the curves that it leaves out.
    plots: &'a [(&'a Plot, &'a [String])],
    tables: Vec<PageTable<'a>>,
}

/// One table with its notes. Below each invalid row, which is struck, stands why.
#[derive(Template)]
#[template(path = "table.html")]
struct PageTable<'a> {
    table: &'a Table,
    /// The class of each column's cells, and the decimals of its numbers.
    columns: Vec<(&'static str, Option<usize>)>,
}

/// The page. No browser is asked to fetch anything, which the policy in its head enforces.
pub fn render(file: &ResultFile) -> String {
    let latency = report::latency_plot(file);
    let latency = latency.iter().map(|(plot, left_out)| (plot, left_out.as_slice()));
    let plots: Vec<(&Plot, &[String])> =
        file.plots.iter().map(|plot| (plot, Default::default())).chain(latency).collect();
    let (latencies, repetitions) = (report::latencies(file), report::repetitions(file));
    let tables = file.tables.iter().chain(&latencies).chain(&repetitions).map(PageTable::of).collect();
    let page = ResultPage { file, findings: &report::findings(file), plots: &plots, tables };
    page.render().expect("writing to a string cannot fail")
}

/// What stands before the first colon, which is set in bold, and the rest: `limited by: WAN RTT`.
fn emphasised(text: &str) -> (&str, &str) {
    text.split_once(": ").filter(|(head, _)| head.len() <= 40).unwrap_or(("", text))
}

impl PageTable<'_> {
    fn of(table: &Table) -> PageTable<'_> {
        let column = |at: usize| {
            let cells: Vec<&Cell> = table.rows.iter().filter_map(|row| row.cells.get(at)).collect();
            let align = match (is_text(table, at), is_short(&cells)) {
                (true, true) => " class=\"text short\"",
                (true, false) => " class=\"text\"",
                (false, _) => "",
            };
            (align, decimals(&cells))
        };
        PageTable { table, columns: (0..table.columns.len()).map(column).collect() }
    }

    fn align(&self, column: usize) -> &'static str {
        self.columns.get(column).map_or("", |(align, _)| align)
    }

    fn number(&self, column: usize, value: &f64) -> String {
        let decimals = self.columns.get(column).and_then(|(_, decimals)| *decimals);
        decimals.map_or_else(|| format::number(*value), |decimals| format!("{value:.decimals$}"))
    }

    /// Rows one after the other that are struck for the same reason have it once, behind the last of them: how many these are, if
    /// this row is the last.
    fn struck_until(&self, row: usize) -> Option<usize> {
        let why = &self.table.rows.get(row)?.invalid;
        let same = |row: &&TableRow| row.invalid == *why;
        let ends = !self.table.rows.get(row + 1).as_ref().is_some_and(same);
        (ends && !why.is_empty()).then(|| self.table.rows[..=row].iter().rev().take_while(same).count())
    }
}

/// Texts such as `0.002 / 0.0005 / 0` are read as one line.
fn is_short(cells: &[&Cell]) -> bool {
    let long = |text: &str| text.chars().count() > SHORT || text.contains('\n');
    !cells.iter().any(|cell| matches!(cell, Cell::Text(text) if long(text)))
}

/// Decimals for all numbers of a column, so that their points stand below each other. None if that took more than
/// one zero somewhere, which would pretend to digits that were not measured.
fn decimals(cells: &[&Cell]) -> Option<usize> {
    let numbers = cells.iter().filter_map(|cell| match cell {
        Cell::Number(value) => Some(format::number(*value)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(table: Table) -> String {
        PageTable::of(&table).to_string()
    }

    #[test]
    fn invalid_rows_are_struck_and_say_why() {
        let row = TableRow { cells: vec![Cell::Number(5.0)], invalid: vec!["<too> short".to_owned()] };
        let html = table(Table::new("T", ["MiB/s"], vec![row]));
        assert!(html.contains("<tr class=\"struck\"><td>5</td></tr>"), "{html}");
        assert!(html.contains("<b class=\"badge\">INVALID</b> &lt;too&gt; short"), "{html}");
    }

    #[test]
    fn rows_that_are_struck_for_the_same_reason_have_it_once() {
        let row = |why: &str| TableRow { cells: vec![Cell::Number(5.0)], invalid: vec![why.to_owned()] };
        let html = table(Table::new("T", ["MiB/s"], vec![row("same"), row("same"), row("other")]));
        assert_eq!((html.matches("same").count(), html.matches("INVALID").count()), (1, 2), "{html}");
        assert!(html.contains("(these 2 rows) same"), "{html}");
    }

    #[test]
    fn the_points_of_a_column_stand_below_each_other() {
        let column = |values: &[f64]| {
            let rows = values.iter().map(|v| TableRow::new(vec![Cell::Number(*v)])).collect();
            table(Table::new("T", ["s"], rows))
        };
        assert!(column(&[444.29, -1.125]).contains("<td>444.290</td></tr><tr><td>-1.125</td>"));
        assert!(column(&[1129.0, 4.867]).contains("<td>1129</td></tr><tr><td>4.867</td>"));
        assert!(column(&[0.0001, 3.0]).contains("<td>3</td>"));
        assert!(column(&[1e-30, 3.5]).contains("<td>3.5</td>"));
    }

    #[test]
    fn a_missing_value_is_a_dash_with_a_reason() {
        let row = TableRow::new(vec![Cell::missing("no \"samples\"")]);
        let missing = "<td><span class=\"missing\" title=\"no &quot;samples&quot;\">\u{2013}</span></td>";
        assert!(table(Table::new("T", ["s"], vec![row])).contains(missing));
    }
}
