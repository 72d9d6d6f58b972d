use super::*;
use crate::fit;
use crate::summary::coefficient_of_variation;

fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() < tolerance, "{a} is not {b}");
}

/// The numbers that a cell of text begins with or has between its signs.
fn numbers(printed: &Printed, row: usize, column: usize) -> Vec<f64> {
    let text = printed.text(row, column).expect("text");
    text.split([' ', '-']).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_vfxt_direct_column_is_534_s_and_3_38_s_for_each_ms() {
    let line = fit::line(&PUBLISHED.vfxt.direct()).unwrap();
    assert_eq!(format!("{:.0} {:.2}", line.intercept.value, line.slope.value), "534 3.38");
    assert_eq!(format!("{:.2}", line.r2), "0.98");
    // Seconds per millisecond to round trips.
    close(line.slope.times(1000.0).value, 3381.0, 1.0);
}

#[test]
fn the_other_vfxt_columns_do_not_depend_on_distance() {
    let column = |y| -> Vec<(f64, f64)> {
        PUBLISHED.vfxt.results.points(1, y).iter().map(|point| (point.x, point.y)).collect()
    };
    let (cold, warm) = (fit::line(&column(3)).unwrap(), fit::line(&column(4)).unwrap());
    for slope in [cold.slope, warm.slope] {
        assert!(slope.interval.is_some_and(|(low, high)| low < 0.0 && 0.0 < high), "{slope:?}");
    }
    close(cold.intercept.value, 392.3, 0.1);
    close(warm.intercept.value, 328.3, 0.1);
    let seconds: Vec<f64> = column(4).iter().map(|(_, seconds)| *seconds).collect();
    close(coefficient_of_variation(&seconds).unwrap(), 0.098, 0.001);
    assert_eq!(PUBLISHED.vfxt.place(69.5), Some("NFS West US"));
    assert_eq!(PUBLISHED.vfxt.plot().series.iter().map(|series| series.points.len()).sum::<usize>(), 12);
}

/// Each pair of throughput and latency is the number of workers, over again.
#[test]
fn aistores_latencies_follow_from_its_throughputs() {
    let study = &PUBLISHED.aistore;
    let of = |printed: &Printed, row, column| numbers(printed, row, column)[0];
    for (throughput_gib_s, latency_ms) in [
        (of(&study.results, 0, 1), of(&study.results, 1, 1)),
        (of(&study.results, 0, 2), of(&study.results, 1, 2)),
    ] {
        let objects_per_second = throughput_gib_s * (1u64 << 30) as f64 / study.object_bytes as f64;
        close(objects_per_second * latency_ms / 1000.0, 500.0, 2.0);
    }
}

/// Each total over each rate is a whole number of milliseconds: the originals were timed so.
#[test]
fn azures_writes_are_totals_over_whole_milliseconds() {
    for study in [&PUBLISHED.azure.sfmw, &PUBLISHED.azure.mfmw] {
        assert_eq!(study.rows(), 10);
        for row in 0..study.rows() {
            let total = study.number(row, 1).unwrap();
            assert_eq!(study.number(row, 0).unwrap() * 20.0, total);
            for rate in (2..5).filter_map(|column| study.number(row, column)) {
                let ms = total / rate * 1000.0;
                close(total / (ms.round() / 1000.0), rate, 0.001);
            }
        }
    }
}

/// Bytes over rate is the printed time, for each node and test.
#[test]
fn sobs_rates_belong_to_its_times() {
    for run in &PUBLISHED.tryggve.sob {
        for node in &run.nodes {
            let tests = [
                (10240.0, node.write_1),
                (10240.0, node.read_1),
                (500.0, node.write_2),
                (6400.0, node.write_3),
                (1024.0, node.write_4),
            ];
            for (mib, timing) in tests {
                assert!((mib / timing.rate - timing.seconds).abs() <= 1.0, "{} {timing:?}", node.name);
            }
            close(1024.0 / node.read_4.rate, node.read_4.seconds, 0.06);
        }
    }
}

/// Bytes moved over the aggregate is the time that fio printed for the longest job.
#[test]
fn maprs_reads_move_what_they_say() {
    let study = &PUBLISHED.mapr;
    let seconds = [42.366, 60.009, 60.008, 60.004, 52.074, 54.895, 42.781];
    let moved = [10240.0, 14378.0, 14394.0, 14396.0, 20480.0, 30720.0, 30720.0];
    assert_eq!(study.results.rows(), seconds.len());
    for (row, (moved_mib, seconds)) in moved.into_iter().zip(seconds).enumerate() {
        let of = |column| study.results.number(row, column).unwrap();
        let (mounts, aggregate) = (of(1), of(2));
        close(moved_mib * 1024.0 / aggregate, seconds, 0.01);
        let jobs = numbers(&study.results, row, 3);
        let (slowest, fastest) = (jobs[0], jobs[jobs.len() - 1]);
        assert!(slowest * mounts <= aggregate && fastest * mounts >= aggregate - 3.0);
        close(of(5), aggregate / study.results.number(0, 2).unwrap(), 0.005);
    }
    assert_eq!(study.series().points.len(), 3);
}

#[test]
fn the_published_tables_have_a_cell_for_each_column() {
    let all = &*PUBLISHED;
    let (aistore, azure, mapr, tryggve) = (&all.aistore, &all.azure, &all.mapr, &all.tryggve);
    let printed = [
        &all.vfxt.results,
        &aistore.results,
        &azure.read,
        &azure.nodes,
        &azure.sfmw,
        &azure.mfmw,
        &mapr.results,
        &tryggve.partitions,
        &tryggve.caw,
        &tryggve.link,
    ];
    let mut tables = printed.map(Printed::table).to_vec();
    tables.extend(tryggve.sob.iter().map(sob::SobRun::table));
    for table in tables {
        assert!(!table.title.is_empty() && !table.rows.is_empty(), "{table:?}");
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "{}", table.title);
        }
    }
    assert_eq!(tryggve.caw.table().rows[0].cells[1], Cell::text("23m 58s"));
    assert_eq!(mapr.results.table().rows[0].cells[4], Cell::missing("no change"));
    assert_eq!(azure.nodes.table().rows[3].cells[2], Cell::missing("not published"));
    assert_eq!(tryggve.partitions.table().rows[0].cells[3], Cell::text(""));
    assert!(azure.series("SFMW").len() == 2 && azure.series("MFMW").len() == 3);
    assert_eq!(azure.series("SFMR")[2].points[10], Point::at(1024.0, 837.285));
}
