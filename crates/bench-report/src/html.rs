//! One page that can be mailed: style and drawings are in it, nothing is loaded, and no script runs (its own policy
//! forbids both). First the answer, then the plots, then the numbers, then what it takes to make them again.

use std::fmt::Write;

use crate::format;
use crate::markdown::is_text;
use crate::markup::escape;
use crate::model::{Cell, Plot, ResultFile, Severity, Table, TableRow};
use crate::plot::{self, Width};
use crate::report;

const STYLE: &str = include_str!("html/style.css");

/// A table with more columns is set small on paper.
const COLUMNS_FEW: usize = 7;
/// A text of so many characters is not broken into lines.
const SHORT: usize = 36;

/// The page. No browser is asked to fetch anything, which the policy in its head enforces.
pub fn render(file: &ResultFile) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = escape(&file.title);
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n"
    );
    header(&mut out, file);
    if let Some(lead) = report::lead(file) {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(lead));
    }
    ten_lines(&mut out, file);
    findings(&mut out, file);
    plots(&mut out, file);
    for table in file.tables.iter().chain(&report::latencies(file)).chain(&report::repetitions(file)) {
        section(&mut out, table);
    }
    set_up(&mut out, file);
    let _ = write!(
        out,
        "<footer>Result schema {}. This page loads nothing and runs nothing.</footer>\n</main></body></html>\n",
        file.schema
    );
    out
}

fn header(out: &mut String, file: &ResultFile) {
    let [experiment, preset, title, started] =
        [&file.experiment, &file.preset, &file.title, &file.started].map(|text| escape(text));
    let (duration, seed) = (format::duration(file.seconds), file.seed);
    let _ = writeln!(
        out,
        "<header><p class=\"kicker\">forebay bench <b>{experiment}</b> <span>{preset}</span></p><h1>{title}</h1>\
         <p class=\"meta\">{started} \u{b7} {duration} \u{b7} seed {seed}</p></header>"
    );
}

fn ten_lines(out: &mut String, file: &ResultFile) {
    if file.answer.is_empty() {
        return;
    }
    out.push_str("<section class=\"answer\" aria-label=\"The answer\">");
    pairs(out, "<dl class=\"lines\">", report::answer(file));
    out.push_str("</section>\n");
}

/// Verdicts large, warnings and notes below them; what makes the whole result worthless above all.
fn findings(out: &mut String, file: &ResultFile) {
    let findings = report::findings(file);
    if findings.is_empty() {
        return;
    }
    out.push_str("<section class=\"answer\" aria-label=\"Findings\">");
    for finding in findings {
        let (class, mark) = match finding.severity {
            Severity::Invalid => ("invalid", "INVALID"),
            Severity::Verdict => ("verdict", ""),
            Severity::Warning => ("warning", "Warning"),
            Severity::Note => ("note", "Note"),
        };
        let mark = if mark.is_empty() { String::new() } else { format!("<b class=\"badge\">{mark}</b> ") };
        let _ = write!(out, "<p class=\"{class}\">{mark}{}</p>", emphasised(&finding.text));
    }
    out.push_str("</section>\n");
}

/// Escaped, with what stands before the first colon in bold: `limited by: WAN RTT`.
fn emphasised(text: &str) -> String {
    match text.split_once(": ") {
        Some((head, rest)) if head.len() <= 40 => {
            format!("<strong>{}:</strong> {}", escape(head), escape(rest))
        }
        _ => escape(text),
    }
}

fn plots(out: &mut String, file: &ResultFile) {
    let latency = report::latency_plot(file);
    let latency = latency.iter().map(|(plot, left_out)| (plot, left_out.as_slice()));
    let all: Vec<(&Plot, &[String])> =
        file.plots.iter().map(|plot| (plot, Default::default())).chain(latency).collect();
    if all.is_empty() {
        return;
    }
    out.push_str("<section class=\"plots\">");
    // Two columns have no place for an odd one: the first, which is the most important, has both.
    let odd = !all.len().is_multiple_of(2);
    for (i, (one, left_out)) in all.into_iter().enumerate() {
        let wide = odd && i == 0;
        let _ = write!(
            out,
            "<figure{}><figcaption>{}</figcaption>{}<div class=\"scroll\">{}",
            if wide { " class=\"wide\"" } else { "" },
            escape(&one.title),
            plot::legend(one),
            plot::svg(one, Width::Half)
        );
        if wide {
            // Which of the two is shown depends on the room there is.
            out.push_str(&plot::svg(one, Width::Whole));
        }
        out.push_str("</div>");
        for note in left_out {
            let _ = write!(out, "<p class=\"table-note\">{}</p>", escape(note));
        }
        out.push_str("</figure>");
    }
    out.push_str("</section>\n");
}

fn section(out: &mut String, table: &Table) {
    out.push_str("<section>");
    if !table.title.is_empty() {
        let _ = write!(out, "<h2>{}</h2>", escape(&table.title));
    }
    out.push_str(&self::table(table));
    out.push_str("</section>\n");
}

/// One table with its notes. Below each invalid row, which is struck, stands why.
pub fn table(table: &Table) -> String {
    let align_of = |i: usize| match (is_text(table, i), is_short(table, i)) {
        (true, true) => " class=\"text short\"",
        (true, false) => " class=\"text\"",
        (false, _) => "",
    };
    let align: Vec<&str> = (0..table.columns.len()).map(align_of).collect();
    let align_of = |i: usize| align.get(i).copied().unwrap_or_default();
    let decimals: Vec<_> = (0..table.columns.len()).map(|i| decimals(table, i)).collect();
    // Can be reached and scrolled with keys: a wide table is in no other way.
    let mut out = format!(
        "<div class=\"scroll box\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">",
        escape(&table.title)
    );
    out.push_str(if table.columns.len() > COLUMNS_FEW { "<table class=\"many\">" } else { "<table>" });
    out.push_str("<thead><tr>");
    for (i, column) in table.columns.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", align_of(i), escape(column));
    }
    out.push_str("</tr></thead><tbody>");
    let mut struck = 0;
    for (n, row) in table.rows.iter().enumerate() {
        out.push_str(if row.invalid.is_empty() { "<tr>" } else { "<tr class=\"struck\">" });
        for (i, cell) in row.cells.iter().enumerate() {
            let cell = self::cell(cell, decimals.get(i).copied().flatten());
            let _ = write!(out, "<td{}>{cell}</td>", align_of(i));
        }
        out.push_str("</tr>");
        // Rows one after the other that are struck for the same reason have it once, behind the last of them.
        struck += 1;
        if table.rows.get(n + 1).is_none_or(|next| next.invalid != row.invalid) {
            out.push_str(&reason(row, struck, table.columns.len()));
            struck = 0;
        }
    }
    out.push_str("</tbody></table></div>");
    for note in &table.notes {
        let _ = write!(out, "<p class=\"table-note\">{}</p>", escape(note));
    }
    out
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

fn reason(row: &TableRow, rows: usize, columns: usize) -> String {
    if row.invalid.is_empty() {
        return String::new();
    }
    let all = if rows > 1 { format!(" (these {rows} rows)") } else { String::new() };
    format!(
        "<tr class=\"reason\"><td colspan=\"{}\"><div><b class=\"badge\">INVALID</b>{all} {}</div></td></tr>",
        columns.max(1),
        escape(&row.invalid.join("; "))
    )
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

fn set_up(out: &mut String, file: &ResultFile) {
    out.push_str("<section class=\"set-up\"><div><h2>Parameters</h2>");
    pairs(out, "<dl>", report::parameters(file));
    out.push_str("</div>");
    if !file.fingerprint.is_empty() {
        out.push_str("<div><h2>Fingerprint</h2>");
        pairs(out, "<dl>", file.fingerprint.clone());
        out.push_str("</div>");
    }
    out.push_str("</section>\n");
    if !file.command.is_empty() {
        let _ = writeln!(
            out,
            "<section><h2>Made by</h2><pre><code>{}</code></pre></section>",
            escape(&report::command_line(file))
        );
    }
}

fn pairs(out: &mut String, opening: &str, pairs: impl IntoIterator<Item = (String, String)>) {
    out.push_str(opening);
    for (name, value) in pairs {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&name), escape(&value));
    }
    out.push_str("</dl>");
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
