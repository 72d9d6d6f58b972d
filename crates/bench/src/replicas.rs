//! Reads that grow with the number of copies: the table of the MapR study, ready for the day that a tier has several
//! nodes with copies. Until then it shows what was published, and says what is missing.

use std::process::ExitCode;

use bench_report::model::{Axis, Cell, Plot, PlotKind, Point, ResultFile, Series, TableRow};
use bench_report::published::{PUBLISHED, Printed};
use clap::Args;
use types::Result;

use crate::args::OutputArgs;
use crate::results::{ResultBuilder, publish};

#[derive(Args, Clone, Debug)]
pub struct ReplicasArgs {
    #[command(flatten)]
    output: OutputArgs,
}

const WHY: &str = "a tier has one node in this version";

pub fn command(args: ReplicasArgs) -> Result<ExitCode> {
    publish(&prepared(), &args.output)
}

fn prepared() -> ResultFile {
    let mapr = &PUBLISHED.mapr;
    let mut draft =
        ResultBuilder::without_common("replicas", "Reads against the number of copies", "prepared", 0);
    let conditions = [(1, 1), (1, 2), (1, 3), (2, 2), (3, 3)];
    let rows = conditions.map(|(replicas, gateways)| {
        let mut cells = vec![Cell::Count(replicas), Cell::Count(gateways), Cell::Count(gateways)];
        cells.resize_with(mapr.wanted.columns.len(), || Cell::missing(WHY));
        TableRow::new(cells)
    });
    let missing = |of: &Printed| {
        of.filled(vec![TableRow::new(of.columns.iter().map(|_| Cell::missing(WHY)).collect())])
    };
    draft.file.tables = vec![
        mapr.wanted.filled(rows.into()),
        missing(&mapr.placement),
        missing(&mapr.placement_by_node),
        mapr.results.table(),
    ];
    let single = mapr.series().points.first().map_or(0.0, |point| point.y);
    let ideal = (1..=3).map(|n| Point::at(f64::from(n), single * f64::from(n))).collect();
    draft.file.plots.push(Plot {
        title: "Rate against copies".to_owned(),
        x: Axis::linear("copies, and gateways"),
        y: Axis::linear("all readers (MiB/s)"),
        kind: PlotKind::Lines,
        series: vec![mapr.series(), Series::published("each copy as fast as the first", ideal)],
    });
    draft.note(format!("nothing was measured: {WHY}; the table is what will be filled"));
    draft.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_columns_and_claims_no_figure() {
        let file = prepared();
        let (ours, mapr) = (&file.tables[0], &PUBLISHED.mapr);
        assert_eq!(ours.columns.len(), mapr.wanted.columns.len());
        assert!(ours.rows.iter().all(|row| row.cells.len() == ours.columns.len()));
        assert!(ours.rows.iter().all(|row| matches!(row.cells.last(), Some(Cell::Missing(_)))));
        assert!(file.measures.is_empty());
    }
}
